"""Sources of volumes that only their own plugin reads: what each must say, in pods and in PersistentVolumes (core/v1).

A table says which texts a source needs; functions say the rest. Paths of errors are those of 1.36, which are not always
the names of the members.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import driver_name, items, label_name, local_path, part, subdomain, without_backsteps

Check = Callable[[str, Obj], list[FieldError]]

REQUIRED: Mapping[str, tuple[str, ...]] = {
    "hostPath": ("path",),
    "gitRepo": ("repository",),
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "nfs": ("server", "path"),
    "iscsi": ("targetPortal", "iqn"),
    "glusterfs": ("endpoints", "path"),
    "rbd": ("monitors", "image"),
    "cinder": ("volumeID",),
    "cephfs": ("monitors",),
    "flexVolume": ("driver",),
    "azureFile": ("secretName", "shareName"),
    "azureDisk": ("diskName", "diskURI"),
    "vsphereVolume": ("volumePath",),
    "photonPersistentDisk": ("pdID",),
    "portworxVolume": ("volumeID",),
    "scaleIO": ("gateway", "system", "volumeName"),
    "quobyte": ("volume",),
    "storageos": ("volumeName",),
    "local": ("path",),
}
"""Members that sources of a type must have."""
HOST_PATH_TYPES = ("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket")
_QUALIFIERS = {
    "iqn": re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9.-]+:[^,;*&$|\s]+$"),
    "eui": re.compile(r"^eui.[A-Za-z0-9]{16}$"),
    "naa": re.compile(r"^naa.[A-Za-z0-9]{32}$"),
}
OF_WHICH_FORM = " starting with iqn, eui, or naa"
_RESERVED = (".kubernetes.io", ".k8s.io")
_REGISTRY = "must be a host:port pair or multiple pairs separated by commas"
_DISK_URI = {
    True: (
        "/subscriptions/",
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
    ),
    False: ("https://", "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"),
}


def missing(field: str, kind: str, source: Obj) -> list[FieldError]:
    """The members that a source of this type lacks."""
    return [required(f"{field}.{name}") for name in REQUIRED.get(kind, ()) if not source.get(name)]


def validate_plugin_source(field: str, kind: str, source: Obj) -> list[FieldError]:
    """Validate a source that a plugin reads."""
    check = _CHECKS.get(kind)
    return missing(field, kind, source) + (check(field, source) if check is not None else [])


def _host_path(field: str, source: Obj) -> list[FieldError]:
    path, kind = source.get("path") or "", source.get("type")
    if not path:
        return []
    found = without_backsteps(f"{field}.path", path)
    if kind is not None and kind not in HOST_PATH_TYPES:
        found.append(not_supported(f"{field}.type", kind, HOST_PATH_TYPES))
    return found


def _git(field: str, source: Obj) -> list[FieldError]:
    return local_path(f"{field}.directory", source.get("directory") or "")


def _partition(field: str, source: Obj) -> list[FieldError]:
    number = source.get("partition") or 0
    if 0 <= number <= 255:
        return []
    return [invalid(f"{field}.partition", number, "must be between 1 and 255, inclusive")]


def _nfs(field: str, source: Obj) -> list[FieldError]:
    path = source.get("path") or ""
    return [] if path.startswith("/") else [invalid(f"{field}.path", path, "must be an absolute path")]


def _lun(field: str, number: int) -> list[FieldError]:
    return [] if 0 <= number <= 255 else [invalid(field, number, "must be between 0 and 255, inclusive")]


def _initiator(field: str, name: str) -> list[FieldError]:
    pattern = _QUALIFIERS.get(name[:3])
    if pattern is None:
        return [invalid(field, name, f"must be valid format{OF_WHICH_FORM}")]
    return [] if pattern.search(name) else [invalid(field, name, "must be valid format")]


def _iscsi(field: str, source: Obj) -> list[FieldError]:
    found = _initiator(f"{field}.iqn", source["iqn"]) if source.get("iqn") else []
    found += _lun(f"{field}.lun", source.get("lun") or 0)
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        found.append(required(f"{field}.secretRef"))
    name = source.get("initiatorName")
    return found + (_initiator(f"{field}.initiatorname", name) if name is not None else [])


def _flocker(field: str, source: Obj) -> list[FieldError]:
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    found: list[FieldError] = []
    if not name and not uuid:
        found.append(required(field, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        found.append(invalid(field, "resource", "datasetName and datasetUUID can not be specified simultaneously"))
    if "/" in name:
        found.append(invalid(f"{field}.datasetName", name, "must not contain '/'"))
    return found


def secret_name(field: str, source: Obj) -> list[FieldError]:
    """A reference to a Secret in the namespace of the pod, where there is one."""
    reference = source.get("secretRef")
    return [] if reference is None or reference.get("name") else [required(f"{field}.secretRef.name")]


def _quobyte(field: str, source: Obj) -> list[FieldError]:
    registry = source.get("registry") or ""
    if not registry:
        return [required(f"{field}.registry", _REGISTRY)]
    if len((source.get("tenant") or "").encode()) >= 65:
        return [required(f"{field}.tenant", "must be a UUID and may not exceed a length of 64 characters")]
    wrong = [pair for pair in registry.split(",") if not _is_host_and_port(pair)]
    return [invalid(f"{field}.registry", registry, _REGISTRY) for _ in wrong]


def _is_host_and_port(text: str) -> bool:
    if text.startswith("["):
        return re.fullmatch(r"\[[^\[\]]*\]:[^:\[\]]*", text) is not None
    return re.fullmatch(r"[^:\[\]]*:[^:\[\]]*", text) is not None


def _fibre_channel(field: str, source: Obj) -> list[FieldError]:
    names, identifiers, lun = items(source, "targetWWNs"), items(source, "wwids"), source.get("lun")
    found: list[FieldError] = []
    if not names and not identifiers:
        found.append(required(f"{field}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if names and identifiers:
        why = "targetWWNs and wwids can not be specified simultaneously"
        found.append(invalid(f"{field}.targetWWNs", names, why))
    if names and lun is None:
        found.append(required(f"{field}.lun", "lun is required if targetWWNs is specified"))
    return found + (_lun(f"{field}.lun", lun) if names and lun is not None else [])


def _flex(field: str, source: Obj) -> list[FieldError]:
    why = "kubernetes.io and k8s.io namespaces are reserved"
    return [
        invalid(f"{field}.options[{key}]", key, why)
        for key in part(source, "options")
        if f".{key.partition('/')[0].lower()}".endswith(_RESERVED)
    ]


def _azure_disk(field: str, source: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for name, supported in (
        ("cachingMode", ("None", "ReadOnly", "ReadWrite")),
        ("kind", ("Dedicated", "Managed", "Shared")),
    ):
        value = source.get(name)
        if value is not None and value not in supported:
            found.append(not_supported(f"{field}.{name}", value, supported))
    uri, kind = source.get("diskURI") or "", source.get("kind")
    start, example = _DISK_URI[kind == "Managed"]
    if kind is not None and not uri.startswith(start):
        found.append(not_supported(f"{field}.diskURI", uri, (example,)))
    return found


def _storage_os(field: str, source: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("volumeName", "volumeNamespace"):
        found += label_name(f"{field}.{name}", source[name]) if source.get(name) else []
    return found + secret_name(field, source)


def _csi(field: str, source: Obj) -> list[FieldError]:
    found = driver_name(f"{field}.driver", source.get("driver") or "")
    reference = source.get("nodePublishSecretRef")
    if reference is None:
        return found
    name = reference.get("name") or ""
    return found + (subdomain(f"{field}.name", name) if name else [required(f"{field}.nodePublishSecretRef.name")])


def _local(field: str, source: Obj) -> list[FieldError]:
    return without_backsteps(f"{field}.path", source.get("path") or "")


def _empty_dir(field: str, source: Obj) -> list[FieldError]:
    limit = str(source.get("sizeLimit") or "")
    if limit.startswith("-") and limit.strip("-0.numkKMGTPEi"):
        return [forbidden(f"{field}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


_CHECKS: Mapping[str, Check] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "gitRepo": _git,
    "gcePersistentDisk": _partition,
    "awsElasticBlockStore": _partition,
    "nfs": _nfs,
    "iscsi": _iscsi,
    "flocker": _flocker,
    "cinder": secret_name,
    "quobyte": _quobyte,
    "fc": _fibre_channel,
    "flexVolume": _flex,
    "azureDisk": _azure_disk,
    "storageos": _storage_os,
    "csi": _csi,
    "local": _local,
}
