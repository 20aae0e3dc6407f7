"""Volumes made of files: secrets, config maps, the downward API, and several of them projected into one (core/v1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity
from haru.kube.validation.common import each_message, indexed, items, local_file, part
from haru.kube.validation.metadata import validate_annotations
from haru.kube.validation.selectors import validate_label_selector
from haru.kube.validation.signers import is_kubernetes_signer, signer_name, trust_bundle_name

VOLUME_FIELDS: Final = (
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
)
_POD_FIELDS: Final = (
    *VOLUME_FIELDS,
    *("spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "spec.schedulerName"),
    *("status.phase", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"),
)
"""What can be read of a pod by any part of it; `spec.host` is an old name of `spec.nodeName`."""
_SUBSCRIPTABLE: Final = ("metadata.annotations", "metadata.labels")
_RESOURCES: Final = tuple(
    f"{side}.{name}" for side in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory")
)
_HUGE_PAGES: Final = ("limits.hugepages-", "requests.hugepages-")
_SIZES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_KEY_TYPES: Final = ("ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519", "RSA3072", "RSA4096")
_CERTIFICATE_PATHS: Final = ("credentialBundlePath", "keyPath", "certificateChainPath")
_DAY: Final = 24 * 60 * 60


def field_reference(field: str, reference: Obj, fields: Collection[str]) -> list[FieldError]:
    """A downward API reference to a field of the pod."""
    version, path = reference.get("apiVersion") or "", reference.get("fieldPath") or ""
    for member, value in (("apiVersion", version), ("fieldPath", path)):
        if not value:
            return [required(f"{field}.{member}")]
    base, bracket, rest = path.partition("['")
    subscripted = bool(base and bracket and rest.endswith("']"))
    why = ""
    if version != "v1":
        why = f"unsupported pod version: {version}"
    elif subscripted and base not in _SUBSCRIPTABLE:
        why = f"field label does not support subscript: {path}"
    elif not subscripted and path not in (*_POD_FIELDS, "spec.host"):
        why = f"field label not supported: {path}"
    if why:
        return [invalid(f"{field}.fieldPath", path, f"error converting fieldPath: {why}")]
    if subscripted:
        key = rest[:-2].lower() if base == "metadata.annotations" else rest[:-2]
        return each_message(field, key, names.is_qualified_name(key))
    path = "spec.nodeName" if path == "spec.host" else path
    return [] if path in fields else [not_supported(f"{field}.fieldPath", path, sorted(fields))]


def resource_reference(field: str, reference: Obj, *, of_a_volume: bool) -> list[FieldError]:
    """A downward API reference to a container's requests or limits."""
    resource = reference.get("resource") or ""
    found: list[FieldError] = []
    if of_a_volume and not reference.get("containerName"):
        found.append(required(f"{field}.containerName"))
    elif not resource:
        found.append(required(f"{field}.resource"))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        found.append(not_supported(f"{field}.resource", resource, _RESOURCES))
    return found + _divisor(f"{field}.divisor", resource, reference.get("divisor"))


def _divisor(field: str, resource: str, divisor: Any) -> list[FieldError]:
    amount = parse_quantity(divisor) if divisor is not None else None
    if not amount:
        return []
    if resource.endswith(".cpu"):
        supported: Collection[str] = ("1m", "1")
    elif resource in _RESOURCES or resource.startswith(_HUGE_PAGES):
        supported = _SIZES
    else:
        return []
    if str(amount) in supported:
        return []
    of = resource.partition(".")[2]
    of = "hugepages" if of.startswith("hugepages") else "local ephemeral storage" if of.startswith("eph") else of
    told = (" and " if of == "cpu" else ", ").join(supported)
    return [invalid(field, resource, f"only divisor's values {told} are supported with the {of} resource")]


def file_mode(field: str, mode: int | None) -> list[FieldError]:
    """The permissions of a file, where given."""
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [invalid(field, mode, "must be a number between 0 and 0777 (octal), both inclusive")]


def keys_to_files(field: str, source: Obj) -> list[FieldError]:
    """The files of a secret or config map, and their permissions."""
    return file_mode(f"{field}.defaultMode", source.get("defaultMode")) + _keys(field, source)


def _keys(field: str, source: Obj) -> list[FieldError]:
    return indexed(f"{field}.items", items(source, "items"), _key_to_path)


def _key_to_path(field: str, item: Obj) -> list[FieldError]:
    found = [required(f"{field}.{name}") for name in ("key", "path") if not item.get(name)]
    return found + local_file(f"{field}.path", item.get("path") or "") + file_mode(f"{field}.mode", item.get("mode"))


def downward_files(field: str, source: Obj) -> list[FieldError]:
    """The files of the downward API; the errors of all of them are told at the volume."""
    found = file_mode(f"{field}.defaultMode", source.get("defaultMode"))
    return found + [error for item in items(source, "items") for error in _downward_file(field, item)]


def _downward_file(field: str, item: Obj) -> list[FieldError]:
    path = item.get("path") or ""
    found = ([] if path else [required(f"{field}.path")]) + local_file(f"{field}.path", path)
    reference, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if reference is not None:
        found += field_reference(f"{field}.fieldRef", reference, VOLUME_FIELDS)
        if resource is not None:
            why = "fieldRef and resourceFieldRef can not be specified simultaneously"
            found.append(invalid(field, "resource", why))
    elif resource is not None:
        found += resource_reference(f"{field}.resourceFieldRef", resource, of_a_volume=True)
    else:
        found.append(required(field, "one of fieldRef and resourceFieldRef is required"))
    return found + file_mode(f"{field}.mode", item.get("mode"))


# --- projected volumes


class _Paths:
    """Paths of files that a projected volume has; none may come twice."""

    def __init__(self, field: str) -> None:
        self._field = field
        self._taken: set[str] = set()

    def add(self, path: str, told: str | None = None) -> list[FieldError]:
        """Tell of a path that is taken: the path itself, or `told`."""
        if path in self._taken:
            return [invalid(self._field, path if told is None else told, "conflicting duplicate paths")]
        self._taken.add(path)
        return []


_Projection = Callable[[str, Obj, _Paths], list[FieldError]]


def projected_files(field: str, source: Obj) -> list[FieldError]:
    """Several sources of files in one volume."""
    paths = _Paths(field)
    found = file_mode(f"{field}.defaultMode", source.get("defaultMode"))
    for index, projection in enumerate(items(source, "sources")):
        place = f"{field}.sources[{index}]"
        present = [name for name in _PROJECTIONS if projection.get(name) is not None]
        for name in present:
            found += _PROJECTIONS[name](f"{place}.{name}", projection[name], paths)
        token = projection.get("serviceAccountToken")
        if token is not None:  # where its path is wrong is told at the volume
            found += local_file(f"{field}.path", token["path"]) if token.get("path") else [required(f"{field}.path")]
        if len(present) > 1:
            found.append(forbidden(place, "may not specify more than 1 volume type per source"))
    return found


def _named(field: str, source: Obj, paths: _Paths) -> list[FieldError]:
    name = source.get("name") or ""
    found = ([] if name else [required(f"{field}.name")]) + _keys(field, source)
    for item in items(source, "items"):
        found += paths.add(item["path"], name) if item.get("path") else []
    return found


def _downward(field: str, source: Obj, paths: _Paths) -> list[FieldError]:
    found: list[FieldError] = []
    for item in items(source, "items"):
        found += _downward_file(field, item)
        found += paths.add(item["path"]) if item.get("path") else []
    return found


def _token(field: str, source: Obj, paths: _Paths) -> list[FieldError]:
    seconds = source.get("expirationSeconds") or 0
    place = f"{field}.expirationSeconds"
    if seconds < 10 * 60:
        return [invalid(place, seconds, "may not specify a duration less than 10 minutes")]
    if seconds > 1 << 32:
        return [invalid(place, seconds, "may not specify a duration larger than 2^32 seconds")]
    return []


def _trust_bundle(field: str, source: Obj, paths: _Paths) -> list[FieldError]:
    name, signer, path = source.get("name"), source.get("signerName"), source.get("path") or ""
    found: list[FieldError] = []
    if name is not None and signer is not None:
        found.append(invalid(field, source, "only one of name and signerName may be used"))
    elif name is not None:
        found += [] if name else [required(f"{field}.name", "must be a valid object name")]
        found += trust_bundle_name(f"{field}.name", name)
        if source.get("labelSelector") is not None:
            why = "labelSelector must be unset if name is specified"
            found.append(invalid(f"{field}.labelSelector", source["labelSelector"], why))
    elif signer is not None:
        found += signer_name(f"{field}.signerName", signer)
        found += validate_label_selector(f"{field}.labelSelector", source.get("labelSelector"))
    else:
        found.append(required(field, "either name or signerName must be specified"))
    found += [] if path else [required(f"{field}.path")]
    return found + local_file(f"{field}.path", path) + paths.add(path)


def _certificate(field: str, source: Obj, paths: _Paths) -> list[FieldError]:
    signer = source.get("signerName") or ""
    found = signer_name(f"{field}.signerName", signer)
    annotations = part(source, "userAnnotations")
    if annotations:
        found += validate_annotations(annotations, f"{field}.userAnnotations")
        why = 'must be a domain-prefixed key (such as "acme.io/foo")'
        found += [invalid(f"{field}.userAnnotations", key, why) for key in annotations if "/" not in key]
    if source.get("keyType") not in _KEY_TYPES:
        found.append(not_supported(f"{field}.keyType", source.get("keyType") or "", _KEY_TYPES))
    found += _lifetime(f"{field}.maxExpirationSeconds", source.get("maxExpirationSeconds"), signer)
    given = [name for name in _CERTIFICATE_PATHS if source.get(name)]
    for name in given:
        found += local_file(f"{field}.{name}", source[name]) + paths.add(source[name])
    if not given:
        found.append(required(field, f"specify at least one of {', '.join(_CERTIFICATE_PATHS)}"))
    return found


def _lifetime(field: str, seconds: int | None, signer: str) -> list[FieldError]:
    most = _DAY if is_kubernetes_signer(signer) else 91 * _DAY
    if seconds is None or 3600 <= seconds <= most:
        return []
    return [invalid(field, seconds, f"if provided, maxExpirationSeconds must be >= 3600 and <= {most}")]


_PROJECTIONS: Mapping[str, _Projection] = {
    "secret": _named,
    "configMap": _named,
    "downwardAPI": _downward,
    "serviceAccountToken": _token,
    "clusterTrustBundle": _trust_bundle,
    "podCertificate": _certificate,
}
