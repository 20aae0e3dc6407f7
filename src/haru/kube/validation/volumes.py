"""Volumes of a pod: one source each, with its required fields (core/v1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import each_message, indexed, items, one_of, part, required_label, unique
from haru.kube.validation.resources import quantity

_SUBSCRIPTABLE = ("metadata.annotations", "metadata.labels")
_HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
# Texts that sources of a type must have.
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "secret": ("secretName",),
    "configMap": ("name",),
    "persistentVolumeClaim": ("claimName",),
    "hostPath": ("path",),
    "nfs": ("server", "path"),
    "csi": ("driver",),
    "awsElasticBlockStore": ("volumeID",),
    "gcePersistentDisk": ("pdName",),
    "azureFile": ("secretName", "shareName"),
    "azureDisk": ("diskName", "diskURI"),
    "flexVolume": ("driver",),
    "glusterfs": ("endpoints", "path"),
    "rbd": ("image",),
    "iscsi": ("targetPortal", "iqn"),
}


def field_reference(field: str, reference: Obj, fields: Collection[str]) -> list[FieldError]:
    """A downward API reference to a field of the pod."""
    path = reference.get("fieldPath") or ""
    for member in ("apiVersion", "fieldPath"):
        if not reference.get(member):
            return [required(f"{field}.{member}")]
    base, bracket, rest = path.partition("['")
    if bracket and rest.endswith("']") and base in _SUBSCRIPTABLE:
        key = rest[:-2].lower() if base == "metadata.annotations" else rest[:-2]
        return each_message(field, key, names.is_qualified_name(key))
    return [] if path in fields else [not_supported(f"{field}.fieldPath", path, sorted(fields))]


def validate_volumes(field: str, volumes: Sequence[Obj]) -> list[FieldError]:
    """Names that differ, and one source each."""
    found: list[FieldError] = []
    for index, volume in enumerate(volumes):
        place = f"{field}[{index}]"
        found += required_label(f"{place}.name", volume.get("name") or "")
        found += _source(place, volume)
    return found + unique(field, [v for v in volumes if v.get("name")], lambda v: v["name"], ".name")


def _source(field: str, volume: Obj) -> list[FieldError]:
    kinds = [name for name, value in volume.items() if name != "name" and value is not None]
    if not kinds:
        return [required(field, "must specify a volume type")]
    extra = [forbidden(f"{field}.{name}", "may not specify more than 1 volume type") for name in kinds[1:]]
    kind = kinds[0]
    source, place = volume[kind], f"{field}.{kind}"
    found = [required(f"{place}.{name}") for name in _REQUIRED.get(kind, ()) if not source.get(name)]
    check = _CHECKS.get(kind)
    return found + (check(place, source) if check is not None else []) + extra


def _empty_dir(field: str, source: Obj) -> list[FieldError]:
    limit = source.get("sizeLimit")
    return [] if limit is None else quantity(f"{field}.sizeLimit", "memory", limit)[1]


def _files(field: str, source: Obj) -> list[FieldError]:
    found = _mode(f"{field}.defaultMode", source.get("defaultMode"))
    found += indexed(f"{field}.items", items(source, "items"), _key_to_path)
    return found


def _mode(field: str, mode: int | None) -> list[FieldError]:
    if mode is None or 0 <= mode <= 0o777:
        return []
    return [invalid(field, mode, "must be a number between 0 and 0777 (octal), both inclusive")]


def _key_to_path(field: str, item: Obj) -> list[FieldError]:
    found = [] if item.get("key") else [required(f"{field}.key")]
    return found + _relative(f"{field}.path", item.get("path") or "") + _mode(f"{field}.mode", item.get("mode"))


def _relative(field: str, path: str) -> list[FieldError]:
    if not path:
        return [required(field)]
    found = [invalid(field, path, "must be a relative path")] if path.startswith("/") else []
    if ".." in path.split("/"):
        found.append(invalid(field, path, "must not contain '..'"))
    elif path.startswith(".."):
        found.append(invalid(field, path, "must not start with '..'"))
    return found


def _downward(field: str, source: Obj) -> list[FieldError]:
    found = _mode(f"{field}.defaultMode", source.get("defaultMode"))
    found += indexed(f"{field}.items", items(source, "items"), _downward_file)
    return found


def _downward_file(field: str, item: Obj) -> list[FieldError]:
    found = _relative(f"{field}.path", item.get("path") or "")
    reference, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if reference is not None and resource is not None:
        found.append(invalid(field, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously"))
    elif reference is not None:
        found += field_reference(f"{field}.fieldRef", reference, _VOLUME_FIELDS)
    elif resource is not None:
        found += [
            required(f"{field}.resourceFieldRef.{name}")
            for name in ("containerName", "resource")
            if not resource.get(name)
        ]
    else:
        found.append(required(f"{field}.fieldRef", "one of fieldRef and resourceFieldRef is required"))
    return found + _mode(f"{field}.mode", item.get("mode"))


def _projected(field: str, source: Obj) -> list[FieldError]:
    found = _mode(f"{field}.defaultMode", source.get("defaultMode"))
    for index, projection in enumerate(items(source, "sources")):
        place = f"{field}.sources[{index}]"
        kinds = [name for name, value in projection.items() if value is not None]
        found += [
            forbidden(f"{place}.{name}", "may not specify more than 1 volume type per source") for name in kinds[1:]
        ]
        for kind in kinds[:1]:
            found += _projection(f"{place}.{kind}", kind, projection[kind])
    return found


def _projection(field: str, kind: str, projection: Obj) -> list[FieldError]:
    if kind in ("secret", "configMap"):
        found = [] if projection.get("name") else [required(f"{field}.name")]
        return found + _files(field, projection)
    if kind == "downwardAPI":
        return _downward(field, projection)
    if kind == "serviceAccountToken":
        seconds = projection.get("expirationSeconds")
        found = []
        if seconds is not None and seconds < 600:
            found.append(
                invalid(f"{field}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
            )
        if seconds is not None and seconds > 1 << 32:
            found.append(
                invalid(f"{field}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
            )
        return found + _relative(f"{field}.path", projection.get("path") or "")
    return []


def _host_path(field: str, source: Obj) -> list[FieldError]:
    found = (
        []
        if source.get("type", "") in _HOST_PATH_TYPES
        else [not_supported(f"{field}.type", source["type"], sorted(_HOST_PATH_TYPES))]
    )
    if ".." in (source.get("path") or "").split("/"):
        found.append(invalid(f"{field}.path", source["path"], "must not contain '..'"))
    return found


def _ephemeral(field: str, source: Obj) -> list[FieldError]:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{field}.volumeClaimTemplate")]
    return validate_volume_claim_spec(f"{field}.volumeClaimTemplate.spec", part(template, "spec"))


def _image(field: str, source: Obj) -> list[FieldError]:
    found = [] if source.get("reference") else [required(f"{field}.reference")]
    return found + one_of(f"{field}.pullPolicy", source.get("pullPolicy"), ("Always", "IfNotPresent", "Never"))


def validate_volume_claim_spec(field: str, spec: Obj) -> list[FieldError]:
    """A PersistentVolumeClaim's spec: access modes and a size; devices are not claimed here."""
    modes = items(spec, "accessModes")
    found = [] if modes else [required(f"{field}.accessModes", "at least 1 access mode is required")]
    allowed = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
    for mode in modes:
        found += one_of(f"{field}.accessModes", mode, allowed)
    storage = part(part(spec, "resources"), "requests").get("storage")
    place = f"{field}.resources[storage]"
    if storage is None:
        return [*found, required(place)]
    amount, problem = quantity(place, "storage", storage)
    if amount is not None and not problem and not amount:
        problem = [invalid(place, str(amount), "must be greater than zero")]
    return (
        found + problem + one_of(f"{field}.volumeMode", spec.get("volumeMode"), ("Block", "Filesystem"), optional=True)
    )


_CHECKS: Mapping[str, Callable[[str, Obj], list[FieldError]]] = {
    "emptyDir": _empty_dir,
    "secret": _files,
    "configMap": _files,
    "downwardAPI": _downward,
    "projected": _projected,
    "hostPath": _host_path,
    "ephemeral": _ephemeral,
    "image": _image,
}
