"""The metadata of objects that are written: what the server fills in, what it keeps, and what a writer must get right.

Source: k8s.io/apiserver `registry/rest`, as behaviour.
"""

from __future__ import annotations

import secrets

from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, bad_request_error, conflict_error, invalid, invalid_error, required
from haru.kube.meta import Obj
from haru.kube.names import generate_name, name_suffix
from haru.kube.strategy import allows_unconditional_update, begins_generation

SUFFIX_CHOICES = 27**5
_IMMUTABLE = "field is immutable"


def own(obj: Obj) -> Obj:
    """A copy whose top level, metadata and spec may be changed."""
    copied = dict(obj)
    copied["metadata"] = dict(obj.get("metadata") or {})
    if isinstance(obj.get("spec"), dict):
        copied["spec"] = dict(obj["spec"])
    return copied


def own_metadata(obj: Obj) -> Obj:
    """The object's metadata, made if it has none."""
    metadata: Obj = obj.setdefault("metadata", {})
    return metadata


def place_in_namespace(call: Call, metadata: Obj) -> None:
    """The namespace of the path is the object's; 400 when the body says another. One of the cluster has none."""
    _check_namespace(call, metadata)
    if call.resource.kind.namespaced:
        metadata["namespace"] = call.namespace


def _check_namespace(call: Call, metadata: Obj) -> None:
    if not call.resource.kind.namespaced:
        metadata.pop("namespace", None)
    elif (metadata.get("namespace") or call.namespace) != call.namespace:
        raise bad_request_error("the namespace of the provided object does not match the namespace sent on the request")


def name_new_object(call: Call, metadata: Obj) -> None:
    """Fill in what the server owns."""
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "resourceVersion"):
        metadata.pop(name, None)
    drop_empty(metadata)
    metadata["uid"] = call.objects.new_uid()
    metadata["creationTimestamp"] = call.now
    if begins_generation(call.resource.kind):
        metadata["generation"] = 1


def may_make_up_name(call: Call, metadata: Obj) -> bool:
    """Whether a new object without a name gets one: a LimitRange always does, as in 1.36."""
    return bool(metadata.get("generateName")) or call.resource.kind.group_resource == "limitranges"


def made_up_name(call: Call, metadata: Obj) -> str:
    """A name on the base that is given, or a uid."""
    base = metadata.get("generateName")
    return generate_name(base, name_suffix(secrets.randbelow(SUFFIX_CHOICES))) if base else call.objects.new_uid()


def drop_repeated_owners(call: Call, metadata: Obj) -> None:
    """An owner that is named twice counts once; the writer is warned."""
    owners = metadata.get("ownerReferences") or ()
    if len(owners) < 2:
        return
    kept = [owner for place, owner in enumerate(owners) if owner not in owners[:place]]
    if len(kept) < len(owners):
        metadata["ownerReferences"] = kept
        uids = ", ".join(dict.fromkeys(str(owner.get("uid")) for owner in owners if owners.count(owner) > 1))
        when = " after mutating admission happens" if call.request.method == "PATCH" else ""
        call.request.warnings.append(
            f".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, "
            "and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
            f"{uids}"
        )


def check_preconditions(call: Call, wanted: Obj, live: Obj) -> None:
    """A uid or resourceVersion that the writer gives must be the live object's; most kinds are written without, too.

    A Scale is written without, whatever it is of.
    """
    kind = call.resource.kind
    given, found = wanted.get("metadata") or {}, live["metadata"]
    is_other, is_patched = bool(given.get("uid")) and given["uid"] != found["uid"], call.request.method == "PATCH"
    if is_other and not is_patched:
        raise other_uid(call, given["uid"], found["uid"])
    version = named_version(given)
    if not version:
        if not allows_unconditional_update(kind) and call.subresource != "scale":
            error = invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid_error(kind.group, kind.plural, call.name, [error])
    elif version != found["resourceVersion"]:
        if not version.isdigit():
            error = invalid("metadata.resourceVersion", version, "must be an unsigned integer")
            raise call.invalid(call.name, [error])
        raise conflict_error(kind.group, kind.plural, call.name)
    if is_other:  # what is patched is the object itself
        raise call.invalid(call.name, [invalid("metadata.uid", given["uid"], _IMMUTABLE)])


def check_changed(call: Call, metadata: Obj, live: Obj) -> None:
    """What a policy or a webhook made of an update must still be the live object, in the version that it has.

    Another name is left for validation to refuse.
    """
    found, name = live["metadata"], metadata.get("name") or ""
    if (version := named_version(metadata)) and version != found["resourceVersion"]:
        raise conflict_error(call.resource.kind.group, call.resource.kind.plural, call.name)
    errors = []
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
        errors.append(invalid("metadata.name", name, _IMMUTABLE))
    if (uid := metadata.get("uid")) and uid != found["uid"]:
        errors.append(invalid("metadata.uid", uid, _IMMUTABLE))
    if errors:
        raise call.invalid(name, errors)


def other_uid(call: Call, given: str, found: str = "") -> StatusError:
    """409 for an object that is not the one that its writer means, in the words of 1.36's store."""
    kind, key = call.resource.kind, call.resource.registry_key(call.namespace, call.name)
    why = f"Precondition failed: UID in precondition: {given}, UID in object meta: {found}"
    why = f"StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: {why}"
    return conflict_error(kind.group, kind.plural, call.name, why)


def named_version(metadata: Obj) -> str:
    """The resourceVersion that a writer names; empty for none, and for 0, which is none."""
    version = str(metadata.get("resourceVersion") or "")
    return "" if version.isdigit() and not int(version) else version


def drop_empty(metadata: Obj) -> None:
    """Empty maps, lists and names say nothing in metadata, and are not encoded by anybody."""
    for name in ("name", "generateName", "labels", "annotations", "finalizers", "ownerReferences"):
        if name in metadata and not metadata[name]:
            del metadata[name]


_KEPT = ("uid", "creationTimestamp", "generation", "selfLink")


def check_identity(call: Call, wanted: Obj) -> None:
    """A body must say who it is, and mean the object of the URL, whether that exists or not."""
    metadata = wanted.get("metadata") or {}
    # The namespace first, as 1.36 does.
    _check_namespace(call, metadata)
    if (metadata.get("name") or call.name) != call.name:
        raise bad_request_error(
            f"the name of the object ({metadata['name']}) does not match the name on the URL ({call.name})"
        )
    if not metadata.get("name"):
        raise bad_request_error(
            f"the name of the object ({call.name} based on URL) was undeterminable: name must be provided"
        )


def keep_server_metadata(call: Call, wanted: Obj, live: Obj) -> Obj:
    """The wanted metadata with what only the server sets as it was; also where a policy took it away.

    Another name, which a policy gave, is left for validation to refuse.
    """
    metadata = dict(wanted.get("metadata") or {})
    _check_namespace(call, metadata)
    found = live["metadata"]
    metadata["name"] = metadata.get("name") or call.name
    drop_repeated_owners(call, metadata)
    if call.resource.kind.namespaced:
        metadata["namespace"] = call.namespace
    metadata["resourceVersion"] = found["resourceVersion"]
    for name in _KEPT:
        if name in found:
            metadata[name] = found[name]
        else:
            metadata.pop(name, None)
    # What a client says of a deletion is left for validation to refuse, where it does not repeat what is so.
    if "deletionTimestamp" in found:
        metadata["deletionTimestamp"] = found["deletionTimestamp"]
    if "deletionGracePeriodSeconds" in found and metadata.get("deletionGracePeriodSeconds") is None:
        metadata["deletionGracePeriodSeconds"] = found["deletionGracePeriodSeconds"]
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
        if metadata.get(name) is None:
            metadata.pop(name, None)
    drop_empty(metadata)
    if metadata.get("managedFields") == []:
        metadata["managedFields"] = [{}]  # it says the same, and is left where empty lists are left out
    return metadata
