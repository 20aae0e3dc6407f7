"""Creating and changing objects: the one path that every write takes.

create: defaults, admission, the kind's strategy, validation, managedFields, conversion to the stored version, and a
compare-and-set that expects nothing under the key. change: read, let the caller make the new object out of the live
one, restore what the writer may not touch, judge, and a compare-and-set on the revision that was read; who loses the
race starts again from the newer object, unless the client named the version that it meant.
Source: k8s.io/apiserver `registry/generic`, as behaviour.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

import orjson

from haru.apiserver.apiextensions.reader import is_whole, read_record, stored_form
from haru.apiserver.apiextensions.rules import with_rule_errors
from haru.apiserver.encoding.objects import decode, encode, kept, noted, replaced
from haru.apiserver.registry.object_metadata import (
    check_changed,
    check_identity,
    check_preconditions,
    drop_empty,
    drop_repeated_owners,
    keep_server_metadata,
    made_up_name,
    may_make_up_name,
    name_new_object,
    named_version,
    other_uid,
    own,
    own_metadata,
    place_in_namespace,
)
from haru.apiserver.registry.strategies import strategy_for, written_with
from haru.apiserver.request.call import Call
from haru.kube.defaulting import apply_defaults, is_completed_by_reading, stays_complete
from haru.kube.equality import same_json
from haru.kube.errors import (
    StatusError,
    already_exists_error,
    bad_request_error,
    conflict_error,
    method_not_allowed_error,
)
from haru.kube.json_form import json_form
from haru.kube.kind_strategies import labelled_job, with_member
from haru.kube.kinds import Kind
from haru.kube.meta import Obj
from haru.kube.patch.apply import ManagedWrite, track_update
from haru.kube.strategy import (
    also_reset,
    next_generation,
    prepare_for_create,
    prepare_for_status_update,
    prepare_for_update,
)
from haru.kube.validation import validate_create, validate_status_update, validate_update
from haru.kube.warnings import warnings_on_create, warnings_on_update
from haru.storage import CompareFailed, Delete, Put, Record

Change = Callable[[Obj], Awaitable[Obj]]
"""From the live object, in the version of the request, to the wanted one. Must not change what it is given."""
Prepare = Callable[[Call, Obj, Obj], Awaitable[Obj]]
"""From the call, the wanted and the live object to the one that may be stored, or an error."""

NAME_ATTEMPTS = 8
CHANGE_ATTEMPTS = 100


@dataclass(slots=True)
class Outcome:
    """What a write left: the stored record (None for a dry run or a removal), or else the object itself."""

    record: Record | None
    obj: Obj | None
    created: bool = False


# --- create


async def create(call: Call, obj: Obj, *, applied: bool = False) -> Outcome:
    """Store a new object, which the call may change; `applied`: managedFields are already as they should be."""
    kind = call.resource.kind
    if not strategy_for(kind.group, kind.plural).allocates:
        return await _create(call, obj, applied)
    for _ in range(CHANGE_ATTEMPTS):
        call.together.clear()
        try:
            return await _create(call, copy.deepcopy(obj), applied)
        except CompareFailed:
            continue  # somebody else was given something meanwhile, perhaps the same: chosen anew
    raise conflict_error(kind.group, kind.plural, (obj.get("metadata") or {}).get("name", ""))


async def create_absent(call: Call, obj: Obj, *, applied: bool = False) -> Outcome:
    """Create what an update or an apply has not found; it must not be meant to be a certain object."""
    await call.admission.permit_creation(call)
    metadata = own_metadata(obj)
    if metadata.get("uid"):
        raise other_uid(call, metadata["uid"])
    return await create(call, obj, applied=applied)


async def _create(call: Call, obj: Obj, applied: bool) -> Outcome:
    kind = call.resource.kind
    if kind.custom is not None and kind.custom.terminating:
        raise method_not_allowed_error("create not allowed while custom resource definition is terminating")
    metadata = own_metadata(obj)
    place_in_namespace(call, metadata)
    drop_repeated_owners(call, metadata)
    version = metadata.get("resourceVersion") or ""
    name_new_object(call, metadata)
    obj = json_form(apply_defaults(obj, kind, call.objects.gates, call.now), kind, empties="kept")
    # What admission and the kind's strategy add is nobody's: a later apply must not take it away with the creator's.
    written = json_form(obj, kind)
    if not applied:
        obj = _owned(call, None, obj, written if written is obj else json_form(obj, kind, empties="given"))
    obj = own(obj)
    named = str(metadata.get("name") or "")
    obj = await _changed_new(call, obj)
    metadata = obj["metadata"]
    if call.request.method == "POST":  # who changes it may name a version as well
        version = version or metadata.pop("resourceVersion", "")
    generated = not call.name and not metadata.get("name") and may_make_up_name(call, metadata)
    for attempt in range(NAME_ATTEMPTS if generated else 1):
        if generated:
            obj["metadata"]["name"] = made_up_name(call, metadata)
            if kind.group_resource == "namespaces":  # what is filled in there goes by the name
                obj = own(apply_defaults(obj, kind, call.objects.gates))
        if attempt == 0:
            obj = await _judged_new(call, obj, named)
            _check_no_version(call, obj, version)
        taken = await _insert(call, await stored_form(obj, call.resource, written))
        if isinstance(taken, Outcome):
            return taken
    with_base = bool(metadata.get("generateName"))
    raise _taken(kind, obj["metadata"]["name"], await _is_going(call, obj["metadata"]), with_base)


def _taken(kind: Kind, name: str, is_going: bool, generated: bool) -> StatusError:
    error = already_exists_error(kind.group, kind.plural, name)
    if is_going:
        error.message = f"object is being deleted: {error.message}"
    if generated:
        error.message += ", the server was not able to generate a unique name for the object"
        error.details["retryAfterSeconds"] = 1
    return error


async def _is_going(call: Call, metadata: Obj) -> bool:
    record = await call.objects.record(call.resource, metadata.get("namespace", ""), metadata["name"])
    return record is not None and bool(decode(record)["metadata"].get("deletionTimestamp"))


def _check_no_version(call: Call, obj: Obj, version: str) -> None:
    """A new object has no version; 1.36 asks its store, after everything else, and a dry run does not get there."""
    if call.dry_run and version:
        obj["metadata"]["resourceVersion"] = version
    elif version.isdigit() and int(version):
        raise bad_request_error("resourceVersion should not be set on objects to be created")


async def _changed_new(call: Call, obj: Obj) -> Obj:
    """A new object, perhaps without a name yet, as admission leaves it."""
    await call.admission.admit_create(call, obj)
    if call.chain is not None:
        obj = await call.chain.change_new(call, obj, partial(call.admission.admit_create, call))
        place_in_namespace(call, obj["metadata"])
        drop_empty(obj["metadata"])
    await call.admission.check_grant(call, obj, None)
    return obj


async def _judged_new(call: Call, obj: Obj, named: str) -> Obj:
    """A new object, complete and valid; `named`: as the client named it."""
    kind, objects = call.resource.kind, call.objects
    complete = strategy_for(kind.group, kind.plural).complete_create
    if complete is not None and obj["metadata"].get("name"):
        await complete(call, obj)
    obj = prepare_for_create(obj, kind, objects.gates, call.now)
    errors = call.taken_findings() + validate_create(obj, kind, objects.gates, objects.check_selector)
    errors = with_rule_errors(errors, kind, obj, None, call.request.warnings)
    if errors:
        raise call.invalid(obj["metadata"].get("name") or "", errors)
    call.request.warnings += warnings_on_create(obj, kind)  # also of what admission refuses
    await call.admission.validate_create(call, obj)
    if call.chain is not None:
        await call.chain.judge_new(call, obj, named)
    return labelled_job(obj) if (kind.group, kind.plural) == ("batch", "jobs") else obj


async def _insert(call: Call, obj: Obj) -> Outcome | None:
    resource, metadata = call.resource, obj["metadata"]
    key = resource.key(metadata.get("namespace", ""), metadata["name"])
    if call.dry_run:
        await call.admission.check_quota(call, obj, None)
        return None if await call.objects.store.get(key) else Outcome(None, obj, True)
    value, place = encode(obj)
    call.following = await written_with(call, None, obj)
    try:
        put = Put(key, value, 0, place, note=partial(noted, obj, len(value), None))
        event, *_ = await call.admission.write_with_quota(call, put, obj, None)
    except CompareFailed as error:
        if error.key != key:
            raise
        return None
    if event.new is not None and is_completed_by_reading(obj, resource.kind):
        event.new.stale = True
    return Outcome(event.new, None, True)


# --- change


async def change(
    call: Call, make: Change, *, prepare: Prepare | None = None, applied: bool = False, retry: bool = True
) -> Outcome:
    """Replace an object by what `make` returns for it; 404 if it does not exist.

    `prepare` restores, completes and judges what was made (for subresources with rules of their own); `applied`:
    managedFields are already as they should be; without `retry` a writer that named its version gets the conflict.
    """
    resource, objects = call.resource, call.objects
    key = resource.key(call.namespace, call.name)
    for _ in range(CHANGE_ATTEMPTS):
        call.together.clear()
        record = await objects.store.get(key)
        if record is None:
            raise call.not_found()
        live = await read_record(record, resource)
        wanted = await make(live)
        check_identity(call, wanted)
        if len(wanted["metadata"].get("ownerReferences") or ()) > 1:
            wanted = own(wanted)
            drop_repeated_owners(call, wanted["metadata"])
        check_preconditions(call, wanted, live)
        call.given = wanted["metadata"]
        pinned = bool(named_version(wanted["metadata"]))
        owned = applied
        if call.chain is not None:
            track = None if applied else partial(_tracked, call, live)
            changed = await call.chain.change_update(call, wanted, live, track, _built_in(call, live))
            if changed is not None:
                check_changed(call, changed.get("metadata") or {}, live)
                wanted, owned = changed, True
        new, written = await _as_written(call, wanted, live, prepare, owned)
        if call.chain is not None:
            await call.chain.judge_update(call, new, live)
        if _unchanged(new, live) and not record.stale and is_whole(record, resource):
            return Outcome(record, None)
        outcome = await _replace(call, record, await stored_form(new, resource, written))
        if outcome is not None:
            return outcome
        if pinned and not retry:
            break
    raise conflict_error(resource.kind.group, resource.kind.plural, call.name)


async def _as_written(call: Call, wanted: Obj, live: Obj, prepare: Prepare | None, owned: bool) -> tuple[Obj, Obj]:
    """The object as it is to be stored, and what the writer and the kind's strategy made of it."""
    if prepare is None and not owned and not call.subresource:
        # What the kind's strategy and admission make of it is nobody's, as in a new object.
        complete = _completed(call, wanted, live)
        tracked = _tracked(call, live, complete)["metadata"].get("managedFields")
        written = json_form(await _prepared(call, complete, live), call.resource.kind, live)
        return {**written, "metadata": with_member(written["metadata"], "managedFields", tracked)}, written
    written = json_form(await (prepare or prepare_change)(call, wanted, live), call.resource.kind, live)
    return (written if owned else _owned(call, live, written, written)), written


def _built_in(call: Call, live: Obj) -> Callable[[Obj], Awaitable[None]] | None:
    """The server's own plugins for an update of the main resource: webhooks see what these make of it."""
    if call.subresource:
        return None

    async def admit(obj: Obj) -> None:
        await call.admission.admit_update(call, obj, live)

    return admit


def differs_in_owners_alone(wanted: Obj, live: Obj) -> bool:
    """Whether two objects are the same but for managedFields."""
    written, found = (with_member(obj["metadata"], "managedFields", None) for obj in (wanted, live))
    return {**wanted, "metadata": written} == {**live, "metadata": found}


def managed_write(call: Call) -> ManagedWrite:
    """A call as managedFields record it."""
    resource, part = call.resource, call.subresource
    kind = resource.kind
    # By way of its Scale an object is written at no time, as in 1.36.
    now = "" if part == "scale" else call.now
    return ManagedWrite(call.manager, kind.api_version, resource.message_type, part, now, None, also_reset(kind, part))


def _tracked(call: Call, live: Obj, new: Obj) -> Obj:
    """With the owners of fields written down, of those that are written."""
    return _owned(call, live, new, json_form(new, call.resource.kind, live, empties="given"))


def _owned(call: Call, live: Obj | None, new: Obj, written: Obj) -> Obj:
    """With the owners of fields written down, of the object as it is `written`."""
    tracked = track_update(live, written, managed_write(call))
    return tracked if written is new else {**new, "metadata": tracked["metadata"]}


def _complete(call: Call, wanted: Obj, live: Obj, now: str = "") -> Obj:
    """The wanted object with defaults, as it is encoded. A pod that was patched elsewhere than in its spec is so."""
    kind = call.resource.kind
    if call.stays or (kind.group_resource == "pods" and stays_complete(wanted, live, kind)):
        return json_form(wanted, kind, live, empties="kept")
    return json_form(apply_defaults(wanted, kind, call.objects.gates, now), kind, live, empties="kept")


async def prepare_change(call: Call, wanted: Obj, live: Obj) -> Obj:
    """The wanted object with the parts that this (sub)resource does not write restored, completed and judged."""
    return await _prepared(call, _completed(call, wanted, live), live)


def _completed(call: Call, wanted: Obj, live: Obj) -> Obj:
    kind = call.resource.kind
    wanted = {**wanted, "apiVersion": kind.api_version, "kind": kind.kind}
    wanted["metadata"] = keep_server_metadata(call, wanted, live)
    return _complete(call, wanted, live, "" if call.subresource == "status" else call.now)


async def _prepared(call: Call, complete: Obj, live: Obj) -> Obj:
    kind, objects = call.resource.kind, call.objects
    if call.subresource == "status":
        new = prepare_for_status_update(complete, live, kind, objects.gates, call.now)
        await call.admission.admit_status(call, new, live, complete)
        errors = call.taken_findings() + validate_status_update(new, live, kind, objects.gates)
        if kind.custom is not None:
            errors = with_rule_errors(errors, kind, new, live, call.request.warnings)
    else:
        new = own(complete)
        await call.admission.check_grant(call, new, live)
        hook = strategy_for(kind.group, kind.plural).complete_update
        if hook is not None:
            await hook(call, new, live)
        new = own(prepare_for_update(new, live, kind, objects.gates, call.now))
        await call.admission.admit_update(call, new, live)
        if generation := next_generation(new, live, kind):
            new["metadata"]["generation"] = generation
        errors = validate_update(new, live, kind, objects.gates, objects.check_selector)
        errors = with_rule_errors(errors, kind, new, live, call.request.warnings)
    if errors:
        raise call.invalid(new["metadata"]["name"], errors)
    if call.subresource in ("", "scale"):
        call.request.warnings += warnings_on_update(new, live, kind)
    if not call.subresource:
        await call.admission.validate_update(call, new, live)
    return new


def _unchanged(new: Obj, live: Obj) -> bool:
    """Equal but for when whose fields were set last, and for the difference of no owners and an empty list of them."""
    if new == live:
        return same_json(new, live)
    left, right = new["metadata"], live["metadata"]
    return (
        {**left, "managedFields": None} == {**right, "managedFields": None}
        and {**new, "metadata": None} == {**live, "metadata": None}
        and _timeless(left.get("managedFields")) == _timeless(right.get("managedFields"))
    )


def _timeless(entries: Sequence[Obj] | None) -> list[bytes]:
    shown = [{name: value for name, value in entry.items() if name != "time"} for entry in entries or ()]
    return sorted(orjson.dumps(entry, option=orjson.OPT_SORT_KEYS) for entry in shown)


async def _replace(call: Call, record: Record, obj: Obj) -> Outcome | None:
    """Write over a record; None when another writer was faster."""
    if call.dry_run:
        await call.admission.check_quota(call, obj, record)
        return Outcome(None, obj)
    if is_finished(obj):
        try:
            gone = Delete(record.key, record.revision)
            await call.objects.store.transact(gone, *await written_with(call, record, None))
        except CompareFailed:
            return None
        replaced(record)
        return Outcome(None, obj)
    value, place = encode(obj)
    call.following = await written_with(call, record, obj)
    try:
        put = Put(record.key, value, record.revision, place, note=partial(noted, obj, len(value), kept(record)))
        event, *_ = await call.admission.write_with_quota(call, put, obj, record)
    except CompareFailed:
        return None
    replaced(record)
    return Outcome(event.new, None)


def is_finished(obj: Obj) -> bool:
    """Whether an object that is being deleted has nothing left to wait for."""
    metadata = obj["metadata"]
    if not metadata.get("deletionTimestamp") or metadata.get("finalizers"):
        return False
    if obj["kind"] == "Namespace" and obj["apiVersion"] == "v1" and (obj.get("spec") or {}).get("finalizers"):
        return False
    return not metadata.get("deletionGracePeriodSeconds")
