"""The remaining kinds of core/v1: namespaces, nodes, config maps, secrets, services, volume claims."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, required, too_long
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    each_message,
    immutable,
    in_range,
    items,
    one_of,
    part,
    port,
    same,
)
from haru.kube.validation.containers import PROTOCOLS
from haru.kube.validation.metadata import STANDARD_FINALIZERS, validate_labels
from haru.kube.validation.volume_claim_specs import validate_volume_claim_spec

MAX_DATA_BYTES = 1024 * 1024
_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
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
    found: list[FieldError] = []
    for index, finalizer in enumerate(items(part(namespace, "spec"), "finalizers")):
        place = f"spec.finalizers[{index}]"
        found += each_message(place, finalizer, names.is_qualified_name(finalizer))
        if "/" not in finalizer and finalizer not in STANDARD_FINALIZERS:
            found.append(
                invalid(place, finalizer, "name is neither a standard finalizer name nor is it fully qualified")
            )
    return found


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
        if key not in data:
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


# --- services ------------------------------------------------------------------------------------------------------


def validate_service(service: Obj) -> list[FieldError]:
    """A Service's ports, selector and type."""
    spec = part(service, "spec")
    kind = spec.get("type")
    found = one_of("spec.type", kind, _SERVICE_TYPES)
    ports = items(spec, "ports")
    headless = spec.get("clusterIP") == "None"
    if not ports and not headless and kind != "ExternalName":
        found.append(required("spec.ports"))
    if kind == "ExternalName":
        name = (spec.get("externalName") or "").rstrip(".")
        messages = names.is_dns1123_subdomain(name)
        found += each_message("spec.externalName", name, messages) if name else [required("spec.externalName")]
    elif kind == "LoadBalancer" and headless:
        found.append(invalid("spec.clusterIPs[0]", "None", "may not be set to 'None' for LoadBalancer services"))
    found += _service_ports(ports)
    found += validate_labels(part(spec, "selector"), "spec.selector")
    found += one_of("spec.sessionAffinity", spec.get("sessionAffinity"), ("ClientIP", "None"))
    policies = ("Cluster", "Local")
    found += one_of("spec.externalTrafficPolicy", spec.get("externalTrafficPolicy"), policies, optional=True)
    return found + one_of("spec.internalTrafficPolicy", spec.get("internalTrafficPolicy"), policies, optional=True)


def _service_ports(ports: Sequence[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    seen_names: set[str] = set()
    seen_ports: set[tuple[str, int]] = set()
    for index, entry in enumerate(ports):
        place = f"spec.ports[{index}]"
        name, number, protocol = entry.get("name") or "", entry.get("port") or 0, entry.get("protocol") or ""
        if name:
            found += each_message(f"{place}.name", name, names.is_dns1123_label(name))
            if name in seen_names:
                found.append(duplicate(f"{place}.name", name))
            seen_names.add(name)
        elif len(ports) > 1:
            found.append(required(f"{place}.name"))
        found += in_range(f"{place}.port", number, 1, 65535)
        found += one_of(f"{place}.protocol", protocol, PROTOCOLS)
        found += port(f"{place}.targetPort", entry.get("targetPort", number))
        if (protocol, number) in seen_ports:
            found.append(duplicate(place, {"protocol": protocol, "port": number}))
        seen_ports.add((protocol, number))
    return found


def validate_service_update(new: Obj, old: Obj) -> list[FieldError]:
    """A cluster IP that was given stays, unless the service turns into an external name."""
    spec, before = part(new, "spec"), part(old, "spec")
    found = validate_service(new)
    if before.get("type") != "ExternalName" and spec.get("type") != "ExternalName" and before.get("clusterIP"):
        address = spec.get("clusterIP") or ""
        if address != before["clusterIP"]:
            why = "may not change once set"
            found.append(invalid("spec.clusterIPs[0]", [address] if address else None, why))
    return found


# --- volume claims ----------------------------------------------------------------------------------------------------


def validate_volume_claim(claim: Obj) -> list[FieldError]:
    """A PersistentVolumeClaim."""
    return validate_volume_claim_spec("spec", part(claim, "spec"))


def validate_volume_claim_update(new: Obj, old: Obj) -> list[FieldError]:
    """A claim's spec stays, but for the volume that it is bound to, its size and its attributes class."""
    spec, before = part(new, "spec"), part(old, "spec")
    free = {"resources", "volumeAttributesClassName"}
    if not before.get("volumeName"):
        free.add("volumeName")
    if before.get("storageClassName") is None:
        free.add("storageClassName")
    fixed = (spec.keys() | before.keys()) - free
    if all(same(spec.get(name), before.get(name)) for name in fixed):
        return []
    why = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden("spec", why)]
