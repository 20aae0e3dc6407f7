"""The remaining kinds of core/v1: namespaces, nodes, config maps, secrets, services, volume claims."""

from __future__ import annotations

import base64
import json

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, required, too_long
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    each_message,
    immutable,
    indexed,
    items,
    part,
    same,
)
from haru.kube.validation.metadata import STANDARD_FINALIZERS

MAX_DATA_BYTES = 1024 * 1024
# Keys that secrets of a type must have.
_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


# --- namespaces ----------------------------------------------------------------------------------------------------


def validate_namespace(namespace: Obj) -> list[FieldError]:
    """A Namespace: its finalizers are names."""
    given = items(part(namespace, "spec"), "finalizers")
    return [error for finalizer in given for error in _finalizer("spec.finalizers", finalizer)]


def validate_finalized_namespace(namespace: Obj) -> list[FieldError]:
    """The same where it is finalized, each told by its place."""
    return indexed("spec.finalizers", items(part(namespace, "spec"), "finalizers"), _finalizer)


def _finalizer(place: str, finalizer: str) -> list[FieldError]:
    found = each_message(place, finalizer, names.is_qualified_name(finalizer))
    if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
        found.append(invalid(place, finalizer, "name is neither a standard finalizer name nor is it fully qualified"))
    return found


def validate_namespace_status(new: Obj, old: Obj) -> list[FieldError]:
    """The phase of a Namespace says whether it is being deleted."""
    phase, is_going = part(new, "status").get("phase") or "", bool(part(new, "metadata").get("deletionTimestamp"))
    wanted, condition = ("Terminating", "is not empty") if is_going else ("Active", "is empty")
    if phase == wanted:
        return []
    return [invalid("status.Phase", phase, f"may only be '{wanted}' if `deletionTimestamp` {condition}")]


# --- config maps, secrets ------------------------------------------------------------------------------------------


def validate_config_map(config_map: Obj) -> list[FieldError]:
    """A ConfigMap: keys, and 1 MiB in all."""
    data, binary = part(config_map, "data"), part(config_map, "binaryData")
    found: list[FieldError] = []
    size = 0
    for key, text in data.items():
        found += each_message(f"data[{key}]", key, names.is_config_map_key(key))
        if key in binary:
            found.append(invalid(f"data[{key}]", key, "duplicate of key present in binaryData"))
        size += len(text.encode())
    for key, text in binary.items():
        found += each_message(f"binaryData[{key}]", key, names.is_config_map_key(key))
        size += _decoded_size(text)
    return [*found, too_long("[]", MAX_DATA_BYTES)] if size > MAX_DATA_BYTES else found


def _decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def validate_secret(secret: Obj) -> list[FieldError]:
    """A Secret: keys, 1 MiB in all, and what its type asks for."""
    data = part(secret, "data")
    found: list[FieldError] = []
    size = 0
    for key, text in data.items():
        found += each_message(f"data[{key}]", key, names.is_config_map_key(key))
        size += _decoded_size(text)
    if size > MAX_DATA_BYTES:
        found.append(too_long("data", MAX_DATA_BYTES))
    kind = secret.get("type") or ""
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data or (key == "ssh-privatekey" and not data[key]):
            found.append(required(f"data[{key}]"))
    if kind == "kubernetes.io/dockerconfigjson" and ".dockerconfigjson" in data:
        found += _is_json("data[.dockerconfigjson]", data[".dockerconfigjson"])
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        found += [required("data[username]"), required("data[password]")]
    if kind == "kubernetes.io/service-account-token":
        annotation = "kubernetes.io/service-account.name"
        if not part(part(secret, "metadata"), "annotations").get(annotation):
            found.append(required(f"metadata.annotations[{annotation}]"))
    return found


def _is_json(field: str, text: str) -> list[FieldError]:
    try:
        json.loads(base64.b64decode(text))
    except ValueError as problem:
        return [invalid(field, "<secret contents redacted>", str(problem))]
    return []


def validate_config_update(new: Obj, old: Obj) -> list[FieldError]:
    """Refuse changes of immutable ConfigMaps and Secrets, and of a Secret's type."""
    found: list[FieldError] = []
    if old.get("immutable"):
        if not new.get("immutable"):
            found.append(forbidden("immutable", "field is immutable when `immutable` is set"))
        for name in ("data", "binaryData"):
            if not same(new.get(name), old.get(name)):
                found.append(forbidden(name, "field is immutable when `immutable` is set"))
    if new.get("kind") == "Secret":
        found += immutable("type", new.get("type"), old.get("type"))
    return found


# --- volume claims ----------------------------------------------------------------------------------------------------
