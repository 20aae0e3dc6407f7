"""DELETE: at once, or by a deletionTimestamp that finalizers, a grace period or a namespace's content hold up.

Source: k8s.io/apiserver `registry/rest` BeforeDelete and the pod strategy, as behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from haru.apiserver.apiextensions.reader import converted, lying
from haru.apiserver.encoding.objects import encode, recent
from haru.apiserver.encoding.rendering import render_object
from haru.apiserver.registry.list import find, selection_of
from haru.apiserver.registry.strategies import strategy_for
from haru.apiserver.request import bodies
from haru.apiserver.request.call import Call, is_dry_run
from haru.apiserver.request.http import Request, Response, json_response, success_status
from haru.kube.decoding import strict_decode
from haru.kube.errors import FieldError, StatusError, bad_request_error, conflict_error, invalid, invalid_error
from haru.kube.kinds import delete_options
from haru.kube.meta import Obj
from haru.kube.names import format_time, parse_time
from haru.storage import CompareFailed, Delete, Put, Record

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
DEFAULT_GRACE = 30


@dataclass(frozen=True, slots=True)
class Options:
    """DeleteOptions, from the body or the query."""

    grace: int | None = None
    policy: str = ""
    uid: str = ""
    resource_version: str = ""
    orphan_dependents: bool | None = None
    raw: Obj = field(default_factory=dict)
    """As they were sent, for webhooks."""


async def read_options(call: Call) -> Options:
    """The options of a deletion; the body wins over the query."""
    request = call.request
    data = await request.body()
    body: Obj = {}
    if data.strip():
        value = bodies.parse_body(data, bodies.media_type(request))
        if not isinstance(value, dict) or value.get("kind", "DeleteOptions") != "DeleteOptions":
            raise bad_request_error("the body of a deletion must be DeleteOptions")
        body, _ = strict_decode(value, delete_options())
    else:
        body = _from_query(request)
    if body.get("dryRun"):
        call.dry_run = is_dry_run(body["dryRun"])
    policy = body.get("propagationPolicy") or ""
    orphan = body.get("orphanDependents")
    preconditions = body.get("preconditions") or {}
    errors: list[FieldError] = []
    if policy and orphan is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, why))
    if policy not in ("", "Background", "Foreground", "Orphan"):
        why = 'supported values: "Background", "Foreground", "Orphan"'
        errors.append(FieldError("FieldValueNotSupported", "propagationPolicy", policy, why))
    if errors:
        raise invalid_error("meta.k8s.io", "DeleteOptions", "", errors)
    return Options(
        body.get("gracePeriodSeconds"),
        policy,
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        orphan,
        body,
    )


def _from_query(request: Request) -> Obj:
    body: Obj = {}
    if request.param("gracePeriodSeconds"):
        body["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
    if request.param("propagationPolicy"):
        body["propagationPolicy"] = request.param("propagationPolicy")
    if request.param("orphanDependents"):
        body["orphanDependents"] = request.flag("orphanDependents")
    return body


@dataclass(frozen=True, slots=True)
class Deletion:
    """What a deletion left: the last record and the object as it is now, and whether it is gone."""

    obj: Obj
    removed: bool


async def delete_one(call: Call, options: Options) -> Deletion:
    """Remove an object, or mark it as being deleted."""
    kind = call.resource.kind
    while True:
        record = await call.objects.record(call.resource, call.namespace, call.name)
        if record is None:
            raise call.not_found()
        obj = lying(record, call.resource)
        _check_preconditions(call, options, obj)
        if call.chain is not None:
            await call.chain.about_deletion(call, await converted(obj, kind), options.raw)
        marked = _marked(call, obj, options)
        removable = _is_removable(kind.group, kind.plural, marked)
        if call.dry_run:
            return Deletion(marked, removable)
        try:
            if removable:
                (event,) = await call.objects.store.transact(Delete(record.key, record.revision))
                marked["metadata"]["resourceVersion"] = str(event.revision)
                return Deletion(marked, True)
            if marked == obj:
                return Deletion(obj, False)
            return Deletion(await _write(call, record, marked), False)
        except CompareFailed:
            continue


async def _write(call: Call, record: Record, obj: Obj) -> Obj:
    value, place = encode(obj)
    (event,) = await call.objects.store.transact(Put(record.key, value, record.revision, place))
    assert event.new is not None
    return recent(event.new)


def _check_preconditions(call: Call, options: Options, obj: Obj) -> None:
    kind, metadata = call.resource.kind, obj["metadata"]
    why = ""
    if options.uid and options.uid != metadata["uid"]:
        why = f"UID in precondition: {options.uid}, UID in object meta: {metadata['uid']}"
    elif options.resource_version and options.resource_version != metadata["resourceVersion"]:
        why = (
            f"ResourceVersion in precondition: {options.resource_version}, "
            f"ResourceVersion in object meta: {metadata['resourceVersion']}"
        )
    if why:
        raise conflict_error(kind.group, kind.plural, call.name, f"Precondition failed: {why}")


def _marked(call: Call, obj: Obj, options: Options) -> Obj:
    """The object as a deletion leaves it if it is not removed."""
    metadata = dict(obj["metadata"])
    marked = {**obj, "metadata": metadata}
    _set_propagation(metadata, options)
    grace = _grace(obj, options)
    now = call.objects.clock()
    stamp = metadata.get("deletionTimestamp")
    if stamp is None:
        if metadata.get("generation"):
            metadata["generation"] = int(metadata["generation"]) + 1
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
        metadata["deletionGracePeriodSeconds"] = grace
    elif grace < int(metadata.get("deletionGracePeriodSeconds") or 0):
        # A second deletion may only shorten the wait, counted from when the first was asked for.
        asked = parse_time(stamp) - timedelta(seconds=int(metadata["deletionGracePeriodSeconds"]))
        if options.grace is not None:
            metadata["deletionTimestamp"] = format_time(max(asked + timedelta(seconds=grace), now))
            metadata["deletionGracePeriodSeconds"] = grace
    if (obj["apiVersion"], obj["kind"]) == ("v1", "Namespace"):
        marked["status"] = {**(obj.get("status") or {}), "phase": "Terminating"}
    return marked


def _grace(obj: Obj, options: Options) -> int:
    """Seconds of grace: only pods that may be running have any."""
    if (obj["apiVersion"], obj["kind"]) != ("v1", "Pod"):
        return 0
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    period = options.grace
    if period is None:
        period = spec.get("terminationGracePeriodSeconds", DEFAULT_GRACE)
    return 1 if period < 0 else int(period)


def _set_propagation(metadata: Obj, options: Options) -> None:
    """The finalizers that hand the dependents to the garbage collector first."""
    policy = options.policy
    if not policy and options.orphan_dependents is not None:
        policy = "Orphan" if options.orphan_dependents else "Background"
    if not policy:
        return
    finalizers = [f for f in metadata.get("finalizers") or () if f not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan":
        finalizers.append(ORPHAN)
    elif policy == "Foreground":
        finalizers.append(FOREGROUND)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)


def _is_removable(group: str, plural: str, obj: Obj) -> bool:
    metadata = obj["metadata"]
    if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    if (group, plural) == ("", "namespaces"):
        return not (obj.get("spec") or {}).get("finalizers")
    return True


async def handle_delete(call: Call) -> Response:
    """DELETE of an object."""
    options = await read_options(call)
    await call.admission.admit_delete(call)
    deletion = await delete_one(call, options)
    kind = call.resource.kind
    if deletion.removed and not strategy_for(kind.group, kind.plural).returns_deleted:
        details: Obj = {"name": call.name}
        if kind.group:
            details["group"] = kind.group
        details["kind"] = kind.plural
        details["uid"] = deletion.obj["metadata"]["uid"]
        return json_response(success_status(details))
    status = 202 if not deletion.removed and options.orphan_dependents is False else 200
    shown = await converted(deletion.obj, call.resource.kind)
    return render_object(call, None, shown, status)


async def handle_delete_collection(call: Call) -> Response:
    """DELETE of a collection: every selected object, each by the rules for one."""
    options = await read_options(call)
    found = await find(call, selection_of(call))
    items = []
    for record in found.records:
        *_, name = record.key.split("/")
        call.name = name
        call.namespace = record.key.split("/")[1] if call.resource.kind.namespaced else ""
        try:
            await call.admission.admit_delete(call)
            deletion = await delete_one(call, options)
        except StatusError as error:
            if error.code == 404:
                continue
            raise
        items.append(await converted(deletion.obj, call.resource.kind))
    kind = call.resource.kind
    listed = {
        "kind": kind.list_kind,
        "apiVersion": kind.api_version,
        "metadata": {"resourceVersion": str(call.objects.store.revision)},
        "items": items,
    }
    return json_response(listed)
