"""DELETE: at once, or by a deletionTimestamp that finalizers, a grace period or a namespace's content hold up.

Source: k8s.io/apiserver `registry/rest` BeforeDelete and the pod strategy, as behaviour.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from haru.apiserver.apiextensions.reader import converted, lying, read_record
from haru.apiserver.encoding.objects import encode, recent
from haru.apiserver.encoding.rendering import check_list_shape, render_list, render_object
from haru.apiserver.registry.list import find, selection_of
from haru.apiserver.registry.strategies import written_with
from haru.apiserver.request import bodies
from haru.apiserver.request.call import Call, dry_run_errors
from haru.apiserver.request.http import Request, Response, json_response, success_status
from haru.kube.custom.definitions import CLEANUP, GROUP, PLURAL
from haru.kube.decoding import strict_decode
from haru.kube.errors import (
    FieldError,
    StatusError,
    bad_request_error,
    conflict_error,
    forbidden_error,
    invalid,
    invalid_error,
)
from haru.kube.kinds import delete_options
from haru.kube.meta import Obj
from haru.kube.names import format_time, parse_time
from haru.kube.strategy import is_shown_when_deleted
from haru.kube.validation.scheduling import SYSTEM_CLASSES
from haru.storage import CompareFailed, Delete, Put, Record

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


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
    call.dry_run = bool(body.get("dryRun"))
    return checked_options(body)


def checked_options(body: Obj) -> Options:
    """DeleteOptions; 422 where they contradict each other."""
    policy = body.get("propagationPolicy")
    orphan = body.get("orphanDependents")
    preconditions = body.get("preconditions") or {}
    errors: list[FieldError] = []
    if policy is not None and orphan is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        errors.append(invalid("propagationPolicy", policy, why))
    if policy not in (None, "Background", "Foreground", "Orphan"):
        why = 'supported values: "Foreground", "Background", "Orphan", "nil"'
        errors.append(FieldError("FieldValueNotSupported", "propagationPolicy", policy, why))
    errors += dry_run_errors(body.get("dryRun") or ())
    if errors:
        raise invalid_error("meta.k8s.io", "DeleteOptions", "", errors)
    return Options(
        body.get("gracePeriodSeconds"),
        policy or "",
        preconditions.get("uid") or "",
        preconditions.get("resourceVersion") or "",
        orphan,
        body,
    )


def _from_query(request: Request) -> Obj:
    body: Obj = {}
    if values := request.query.get("dryRun"):
        body["dryRun"] = [*values]
    if request.param("gracePeriodSeconds"):
        body["gracePeriodSeconds"] = request.number("gracePeriodSeconds")
    if "propagationPolicy" in request.query:
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
        check_preconditions(call, options, obj)
        if call.chain is not None:
            await call.chain.about_deletion(call, await converted(obj, kind), options.raw)
        marked = _marked(call, obj, options)
        removable = _is_removable(kind.group, kind.plural, marked)
        if removable and _is_marked_alike(marked, obj):
            marked = obj  # what goes at once is not written without finalizers first
        if call.dry_run:
            return Deletion(marked, removable)
        try:
            if marked != obj:
                record = await _write(call, record, marked)
            if not removable:
                return Deletion(recent(record), False)
            gone = Delete(record.key, record.revision)
            event, *_ = await call.objects.store.transact(gone, *await written_with(call, record, None))
        except CompareFailed:
            continue
        metadata = {**marked["metadata"], "resourceVersion": str(event.revision)}
        return Deletion({**marked, "metadata": metadata}, True)


def _is_marked_alike(marked: Obj, obj: Obj) -> bool:
    """Whether only finalizers have gone."""
    left, right = marked["metadata"], obj["metadata"]
    return all(left.get(name) == right.get(name) for name in ("deletionTimestamp", "deletionGracePeriodSeconds"))


async def _write(call: Call, record: Record, obj: Obj) -> Record:
    value, place = encode(obj)
    (event,) = await call.objects.store.transact(Put(record.key, value, record.revision, place))
    assert event.new is not None
    return event.new


def check_preconditions(call: Call, options: Options, obj: Obj) -> None:
    """409 if the object is not the one that a deletion is about."""
    kind, metadata = call.resource.kind, obj["metadata"]
    if (kind.group, kind.plural) in _ENDINGS:  # 1.36 deletes these in other words
        for what, given, found in (
            ("UID", options.uid, metadata["uid"]),
            ("ResourceVersion", options.resource_version, metadata["resourceVersion"]),
        ):
            if given and given != found:
                why = f"Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}"
                raise conflict_error(kind.group, kind.plural, call.name, why)
        return
    why = ""
    if options.uid and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
    elif options.resource_version and options.resource_version != metadata["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion "
            f"in record ({metadata['resourceVersion']}). The object might have been modified"
        )
    if why:
        raise conflict_error(call.told_group, kind.kind, call.name, why)


def _marked(call: Call, obj: Obj, options: Options) -> Obj:
    """The object as a deletion leaves it, or as it is seen last; itself where nothing of it changes."""
    key = (call.resource.kind.group, call.resource.kind.plural)
    now = call.objects.clock()
    stamp = obj["metadata"].get("deletionTimestamp")
    if stamp is None and key in _ENDINGS:
        marked = _ENDINGS[key](obj, call.now, options)
        marked["metadata"] = {**marked["metadata"], "deletionTimestamp": call.now}
        return marked
    if key == ("", "namespaces") and (obj.get("spec") or {}).get("finalizers"):
        return obj
    gracefully = _gracefully(obj, options, now) if key == _PODS else None
    if gracefully is not None:
        if gracefully is obj:
            return obj
        return {**gracefully, "metadata": _propagated(gracefully["metadata"], key, options)}
    metadata = _propagated(obj["metadata"], key, options)
    if not metadata.get("finalizers"):
        return obj if metadata is obj["metadata"] else {**obj, "metadata": metadata}
    metadata = {**metadata, "deletionGracePeriodSeconds": 0}
    if stamp is None:
        _raise_generation(metadata)
    if stamp is None or parse_time(stamp) > now:
        metadata["deletionTimestamp"] = format_time(now)
    return {**obj, "metadata": metadata}


def _raise_generation(metadata: Obj) -> None:
    if metadata.get("generation"):
        metadata["generation"] = int(metadata["generation"]) + 1


def _ending_namespace(namespace: Obj, now: str, options: Options) -> Obj:
    """To 1.36 a namespace whose dependents are not orphaned is deleted in the foreground."""
    if options.orphan_dependents is False:
        options = replace(options, orphan_dependents=None, policy="Foreground")
    metadata = _propagated(namespace["metadata"], ("", "namespaces"), options)
    return {**namespace, "metadata": metadata, "status": {**(namespace.get("status") or {}), "phase": "Terminating"}}


def _ending_definition(definition: Obj, now: str, options: Options) -> Obj:
    """A definition stays until its objects are gone, however it was to be deleted."""
    finalizers = [*(definition["metadata"].get("finalizers") or ())]
    if CLEANUP not in finalizers:
        finalizers.append(CLEANUP)
    status = dict(definition.get("status") or {})
    why = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
    condition = {"type": "Terminating", "status": "True", "reason": "InstanceDeletionPending", "message": why}
    others = [each for each in status.get("conditions") or () if each.get("type") != "Terminating"]
    status["conditions"] = [*others, {**condition, "lastTransitionTime": now}]
    return {**definition, "metadata": {**definition["metadata"], "finalizers": finalizers}, "status": status}


_PODS = ("", "pods")
_ENDINGS = {("", "namespaces"): _ending_namespace, (GROUP, PLURAL): _ending_definition}
"""Kinds that only begin to end with the first request: by group and plural, what is noted in them."""


def _gracefully(pod: Obj, options: Options, now: datetime) -> Obj | None:
    """A pod with the time until which it may end; itself while that goes on, None if it is over."""
    metadata = dict(pod["metadata"])
    asked = options.grace if options.grace is None or options.grace >= 0 else 1
    stamp, left = metadata.get("deletionTimestamp"), int(metadata.get("deletionGracePeriodSeconds") or 0)
    if stamp is None:
        grace = _grace(pod, asked)
        _raise_generation(metadata)
        metadata["deletionTimestamp"] = format_time(now + timedelta(seconds=grace))
    elif not left:
        return None
    elif asked is None or asked >= left:
        return pod
    else:
        # A second deletion may only shorten the wait, counted from when the first was asked for.
        until, grace = parse_time(stamp) + timedelta(seconds=asked - left), asked
        if until < now:
            until, grace = now, min(asked, 1)
        metadata["deletionTimestamp"] = format_time(until)
    metadata["deletionGracePeriodSeconds"] = grace
    return {**pod, "metadata": metadata}


def _grace(pod: Obj, asked: int | None) -> int:
    """Seconds of grace: only a pod that may be running has any."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    period = spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked
    return 1 if period < 0 else int(period)


_ORPHANED = frozenset({("", "replicationcontrollers"), ("batch", "jobs")})
"""Kinds whose dependents stay unless the request says otherwise."""


def _propagated(metadata: Obj, key: tuple[str, str], options: Options) -> Obj:
    """Metadata with the finalizers that hand the dependents to the garbage collector first."""
    if key == ("", "events") or key[0] == "events.k8s.io":
        return metadata
    finalizers = list(metadata.get("finalizers") or ())
    policy = options.policy
    if options.orphan_dependents is not None:
        policy = "Orphan" if options.orphan_dependents else "Background"
    if not policy:
        policy = next((each for each in finalizers if each in (ORPHAN, FOREGROUND)), "")
        if not policy and key in _ORPHANED:
            policy = "Orphan"
    wanted = {"Orphan": ORPHAN, "Foreground": FOREGROUND}.get(policy, policy)
    kept = [each for each in finalizers if each not in (ORPHAN, FOREGROUND)]
    if wanted in (ORPHAN, FOREGROUND):
        kept.append(wanted)
    if set(kept) == set(finalizers):
        return metadata
    changed = {**metadata, "finalizers": kept}
    if not kept:
        del changed["finalizers"]
    return changed


def _is_removable(group: str, plural: str, obj: Obj) -> bool:
    metadata = obj["metadata"]
    if metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds"):
        return False
    return (group, plural) != ("", "namespaces") or not (obj.get("spec") or {}).get("finalizers")


_JOBS_ORPHAN = (
    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set "
    "propagationPolicy=Orphan to suppress this warning"
)


def _warn_of_orphans(call: Call, options: Options) -> None:
    kind = call.resource.kind
    if (kind.group, kind.plural) == ("batch", "jobs") and not options.policy and options.orphan_dependents is None:
        call.request.warnings.append(_JOBS_ORPHAN)


async def handle_delete(call: Call) -> Response:
    """DELETE of an object."""
    options = await read_options(call)
    _warn_of_orphans(call, options)
    kind = call.resource.kind
    if (kind.group, kind.plural) == ("scheduling.k8s.io", "priorityclasses") and call.name in SYSTEM_CLASSES:
        why = "this is a system priority class and cannot be deleted"
        raise forbidden_error(kind.group, kind.plural, call.name, why)
    await call.admission.admit_delete(call)
    deletion = await delete_one(call, options)
    if deletion.removed and not is_shown_when_deleted(kind):
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
    """DELETE of a collection: every selected object, each by the rules for one; answered is how they were."""
    selection = selection_of(call)
    options = await read_options(call)
    _warn_of_orphans(call, options)
    found = await find(call, selection)
    items = []
    for record in found.records:
        *_, name = record.key.split("/")
        call.name = name
        call.namespace = record.key.split("/")[1] if call.resource.kind.namespaced else ""
        try:
            await call.admission.admit_delete(call)
            await delete_one(call, options)
        except StatusError as error:
            if error.code == 404:
                continue
            raise
        items.append(await read_record(record, call.resource))
    check_list_shape(call)
    return render_list(call, items, found.metadata())
