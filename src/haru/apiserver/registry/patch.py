"""PATCH: four ways to say what should change, over one way to change it.

Sources: RFC 6902, RFC 7386, strategic merge patch, server-side apply (KEP 555).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import orjson

from haru.apiserver.registry.object_metadata import check_identity
from haru.apiserver.registry.write import (
    Outcome,
    Prepare,
    change,
    create_absent,
    differs_in_owners_alone,
    managed_write,
)
from haru.apiserver.request import bodies
from haru.apiserver.request.call import Call, read_write_options
from haru.apiserver.request.http import Request
from haru.kube.decoding import strict_decode
from haru.kube.errors import (
    StatusError,
    bad_request_error,
    conflict_error,
    forbidden,
    invalid,
    invalid_error,
    required,
    too_large_error,
    unsupported_media_type_error,
)
from haru.kube.go_values import go_value
from haru.kube.json_form import served
from haru.kube.kinds import Kind, by_kind
from haru.kube.meta import Obj
from haru.kube.patch.apply import check_unmanaged, server_side_apply
from haru.kube.patch.declared import declared_of
from haru.kube.patch.json_patch import apply_json_patch
from haru.kube.patch.merge_patch import apply_merge_patch
from haru.kube.patch.strategic import apply_strategic_merge_patch, with_whole_numbers
from haru.kube.patch.type_errors import joined, type_errors
from haru.kube.repeated_names import unknown_field
from haru.kube.schema import MessageType
from haru.kube.validation.custom_resources import validate_custom, validate_custom_status

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TYPES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)
OPERATIONS_LIMIT = 10_000
_MEMBERS = ("op", "path", "from", "value")
_WHOLE_WITH_POINT = re.compile(rb"[0-9]\.0+\s*[,}\]]").search


async def patch(call: Call, prepare: Prepare | None = None) -> Outcome:
    """Carry a patch out; `prepare` as for `change`."""
    content_type = check_patch(call)
    data = await call.request.body()
    kind = call.resource.kind
    if content_type == APPLY_PATCH:
        if call.subresource and await call.objects.record(call.resource, call.namespace, call.name) is None:
            raise call.not_found()  # before anything is said of the configuration
        return await apply(call, configuration(call, kind, data), prepare)
    patched, repeated = patcher(call.request, call.resource.message_type, content_type, data)
    shown = go_value(bodies.parse_json(data)) if content_type == STRATEGIC_PATCH else ""

    async def make(live: Obj) -> Obj:
        return decoded(call, kind, patched(live), repeated, live, shown=shown)

    return await change(call, make, prepare=prepare)


def kind_of_patch(call: Call) -> str:
    """The media type of a patch; 415 for one that is not taken, before all that the other headers say."""
    content_type = bodies.media_type(call.request)
    accepted = [t for t in TYPES if t != STRATEGIC_PATCH or call.resource.kind.custom is None]
    if content_type not in accepted:
        call.request.warnings.clear()  # of no handler's, as it were
        raise unsupported_media_type_error(
            "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
        )
    return content_type


def check_patch(call: Call) -> str:
    """Read the options of a patch, and return its kind; 415 for none, 422 for options that do not go with it."""
    content_type = kind_of_patch(call)
    errors = []
    if content_type == APPLY_PATCH:
        if not call.request.param("fieldManager"):
            errors.append(required("fieldManager", "is required for apply patch"))
    elif "force" in call.request.query:
        errors.append(forbidden("force", "may not be specified for non-apply patch"))
    read_write_options(call, errors)
    return content_type


def patcher(
    request: Request, message: MessageType, content_type: str, data: bytes
) -> tuple[Callable[[Obj], Obj], list[str]]:
    """The function from the live object to the patched one, and the names that occur twice in the patch."""
    value = bodies.parse_json(data)
    repeated = bodies.repeated_in(request, data, value)
    if content_type == JSON_PATCH:
        if not isinstance(value, list):
            raise bad_request_error("error decoding patch: the body must be a list of operations")
        if len(value) > OPERATIONS_LIMIT:
            raise too_large_error(
                f"The allowed maximum operations in a JSON patch is {OPERATIONS_LIMIT}, got {len(value)}"
            )
        told = [f"json patch {problem}" for problem in [*repeated, *_unknown_members(value)]]
        return lambda live: apply_json_patch(live, value, replace_adds=True), told
    if not isinstance(value, dict):
        raise bad_request_error("error decoding patch: the body must be an object")
    if content_type == MERGE_PATCH:
        return lambda live: apply_merge_patch(live, value), repeated
    # Its result is no text: it does not say of what kind it is, and how a number was written is forgotten.
    if _WHOLE_WITH_POINT(data):
        value = with_whole_numbers(value)
    return lambda live: apply_strategic_merge_patch(live, value, message) | _type_of(live), repeated


def _unknown_members(operations: list[Any]) -> list[str]:
    """Members of the operations of a JSON patch that no operation has."""
    return [
        unknown_field(f"[{index}].{name}")
        for index, operation in enumerate(operations)
        for name in (operation if isinstance(operation, dict) else ())
        if name not in _MEMBERS
    ]


def _type_of(obj: Obj) -> Obj:
    return {member: obj[member] for member in ("apiVersion", "kind")}


def decoded(call: Call, kind: Kind, obj: Obj, repeated: list[str], live: Obj | None = None, *, shown: str = "") -> Obj:
    """A patched object with known fields only, or the refusal that strictness asks for; `live`: before the patch.

    `shown`: what a refusal shows, if it is not the patched object.
    """
    if not isinstance(obj, dict):
        raise StatusError(422, "Invalid", "the patched object is none")
    if obj.get("metadata") is None:
        obj = {**obj, "metadata": {}}
    version, named = obj.get("apiVersion"), obj.get("kind") or kind.kind
    wish = bodies.strictness(call.request)
    known = repeated if wish != "Ignore" else []
    if version == kind.api_version and named == kind.kind:
        return _readable({**obj, "kind": kind.kind}, kind, wish, known, call, live, shown=shown)
    if version in (None, "") and kind.custom is None and named == kind.kind:
        return {"apiVersion": kind.api_version, "kind": named, "metadata": {}}  # 1.36 reads none of its members
    # A patch may write an object in another version: it is read in that one.
    other = by_kind(version, kind.kind) if isinstance(version, str) and kind.custom is None else None
    if kind.custom is not None and isinstance(obj["metadata"], dict) and obj.get("kind"):
        raise bodies.wrong_custom_type(obj, kind)
    if other is None or named != kind.kind:
        raise _unreadable(obj, f'no kind "{named}" is registered for version "{version}"')
    return served(_readable({**obj, "kind": kind.kind}, other, wish, known, call), kind)


def _unreadable(obj: Obj, why: str, shown: str = "") -> StatusError:
    return invalid_error("", "", "", [invalid("patch", shown or orjson.dumps(obj).decode(), why)])


def _readable(
    obj: Obj, kind: Kind, wish: str, repeated: list[str], call: Call, live: Obj | None = None, *, shown: str = ""
) -> Obj:
    """A patched object with known fields only; 422, whatever it is that cannot be read: the patch made it so."""
    try:
        return bodies.decode_checked(obj, kind, wish, repeated, call.request, live)
    except StatusError as error:
        raise _unreadable(obj, error.message.partition(": ")[2], shown) from None


async def apply(call: Call, applied: Obj, prepare: Prepare | None = None) -> Outcome:
    """Server-side apply: the configuration over the live object, or a new object."""
    kind = call.resource.kind
    force = call.request.flag("force")
    unset = {name: value for name, value in applied.items() if "f:" + name in managed_write(call).ignored.members}

    def merged(live: Obj | None) -> Obj:
        obj = server_side_apply(live, applied, managed_write(call), force=force)
        obj = strict_decode(obj, kind, live)[0]
        if unset and kind.custom is None:
            strict_decode({**_type_of(applied), **unset}, kind)  # what this cannot set has to be readable, too
        _refuse_nulls(call, obj, live)
        return obj

    async def make(live: Obj) -> Obj:
        made = merged(live)
        # A status that this does not write is a change, too, until it is put back.
        call.stays = kind.custom is not None and differs_in_owners_alone({**made, **unset}, live)
        return made

    for _ in range(3):
        if not call.subresource and await call.objects.record(call.resource, call.namespace, call.name) is None:
            try:
                return await create_absent(call, _absent(call, merged(None)), applied=True)
            except StatusError as error:
                if error.reason != "AlreadyExists":
                    raise
                continue
        try:
            return await change(call, make, prepare=prepare, applied=True)
        except StatusError as error:
            if call.subresource or error.code != 404 or error.details.get("kind") != kind.plural:
                raise
    raise conflict_error(kind.group, kind.plural, call.name)


def _refuse_nulls(call: Call, obj: Obj, live: Obj | None) -> None:
    """422 for an applied null that a custom resource cannot have: elsewhere such a null is left out, as in 1.36."""
    custom = call.resource.kind.custom
    if live is None and custom is not None and custom.has_status:
        obj = {name: value for name, value in obj.items() if name != "status"}  # which a create does not set
    if custom is None or (kept := custom.with_stray_nulls(obj)) is None:
        return
    status_alone = call.subresource == "status" and live is not None
    errors = validate_custom_status(kept, live or {}, custom) if status_alone else validate_custom(kept, custom, live)
    if errors:
        raise call.invalid(call.name, errors)


def _absent(call: Call, obj: Obj) -> Obj:
    """The object that an apply creates. It may name a version, as 1.36 does not look at that, but no certain object."""
    metadata = obj.get("metadata") or {}
    if uid := metadata.get("uid"):
        why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
        raise conflict_error(call.resource.kind.group, call.resource.kind.plural, call.name, why)
    check_identity(call, obj)
    metadata.pop("resourceVersion", None)
    return obj


def configuration(call: Call, kind: Kind, data: bytes) -> Obj:
    """The applied configuration as it was sent: an object of the kind, of whatever name.

    Nulls and texts that are no quantities stay in it: they conflict with what others hold before anybody reads them.
    """
    wish = bodies.strictness(call.request)
    value, repeated = _json_or_yaml(data, wish)
    _check_type(value, kind)
    check_unmanaged(value)
    if errors := sorted(type_errors(value, declared_of(kind))):
        raise _untyped(kind, value.get("metadata"), errors)
    if repeated and wish == "Strict":
        raise bad_request_error(f"error strict decoding YAML: error converting YAML to JSON: {repeated[0]}")
    if wish == "Warn":
        bodies.warn(call.request, repeated)
    return value


def _check_type(value: Obj, kind: Kind) -> None:
    """A configuration must say what it is; what is no text says nothing."""
    version, name = (given if isinstance(given := value.get(key), str) else "" for key in ("apiVersion", "kind"))
    if (version, name) == (kind.api_version, kind.kind):
        return
    if version.count("/") > 1:
        version = name = ""
    raise bad_request_error(f"invalid object type: {version if '/' in version else f'/{version}'}, Kind={name}")


def _untyped(kind: Kind, metadata: Any, errors: list[str]) -> StatusError:
    """500, as in 1.36: what is not as declared cannot be merged, whatever strictness the client asks for."""
    names = metadata if isinstance(metadata, dict) else {}
    where = "/".join(text if isinstance(text := names.get(part), str) else "" for part in ("namespace", "name"))
    what = f"{where}; {kind.group_version_kind}"
    return StatusError(500, "", f"failed to create typed patch object ({what}): {joined(errors)}")


def _json_or_yaml(data: bytes, wish: str) -> tuple[Obj, list[str]]:
    """The body and the names that occur twice in it. Most clients send JSON, which is faster to read."""
    if data.lstrip().startswith(b"{"):
        try:
            value = bodies.parse_json(data)
        except StatusError:
            return bodies.read_yaml(data)  # a flow mapping
        if wish == "Ignore" or not (repeated := bodies.repeated_fields(data, value)):
            return value, []
        try:
            return value, bodies.read_yaml(data, as_yaml=True)[1]
        except StatusError:
            return value, repeated  # escapes that only JSON has
    return bodies.read_yaml(data)
