"""PersistentVolumes (core/v1): what they are, and what of it may change."""

from __future__ import annotations

from dataclasses import replace
from posixpath import normpath

from haru.kube.equality import same_members
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.validation.common import (
    driver_name,
    immutable,
    items,
    label_name,
    part,
    required_label,
    required_subdomain,
    subdomain,
)
from haru.kube.validation.selectors import validate_node_selector
from haru.kube.validation.volume_claim_specs import ACCESS_MODES, VOLUME_MODES
from haru.kube.validation.volume_plugins import OF_WHICH_FORM, missing, secret_name, validate_plugin_source

_RECLAIM_POLICIES = ("Delete", "Recycle", "Retain")
_SPEC = "core.v1.PersistentVolumeSpec"
SOURCES = (
    *(
        "hostPath",
        "gcePersistentDisk",
        "awsElasticBlockStore",
        "glusterfs",
        "flocker",
        "nfs",
        "rbd",
        "quobyte",
        "cephfs",
    ),
    *("iscsi", "cinder", "fc", "flexVolume", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume"),
    *("azureDisk", "scaleIO", "local", "storageos", "csi"),
)
"""Members of a volume's spec that say where it is, in the order in which 1.36 looks at them."""
_PLACES = {"gcePersistentDisk": "persistentDisk"}
_PLACES_OF_SECOND_SOURCES = {"cephfs": "cephFS"}
_CSI_SECRETS = (
    *("controllerPublishSecretRef", "controllerExpandSecretRef", "nodePublishSecretRef", "nodeExpandSecretRef"),
)
_MAX_INITIATOR = 64
_NOT_INLINE = "may not be specified in the context of inline volumes"


def validate_persistent_volume(volume: Obj) -> list[FieldError]:
    """A PersistentVolume."""
    spec, field = part(volume, "spec"), "spec"
    found = _modes(spec) + _capacity(part(spec, "capacity"))
    policy, affinity = spec.get("persistentVolumeReclaimPolicy"), spec.get("nodeAffinity")
    place = f"{field}.persistentVolumeReclaimPolicy"
    if policy and policy not in _RECLAIM_POLICIES:
        found.append(not_supported(place, policy, _RECLAIM_POLICIES))
    if affinity is not None:
        wanted, place_of = affinity.get("required"), f"{field}.nodeAffinity.required"
        why = "must specify required node constraints"
        found += validate_node_selector(place_of, wanted) if wanted is not None else [required(place_of, why)]
    found += _sources(field, spec, part(volume, "metadata").get("name") or "")
    path = part(spec, "hostPath").get("path")
    if path and normpath(path) == "/" and policy == "Recycle":
        found.append(forbidden(place, "may not be 'recycle' for a hostPath mount of '/'"))
    if spec.get("storageClassName"):
        found += subdomain(f"{field}.storageClassName", spec["storageClassName"])
    mode = spec.get("volumeMode")
    if mode is not None and mode not in VOLUME_MODES:
        found.append(not_supported(f"{field}.volumeMode", mode, VOLUME_MODES))
    return found + _attributes_class(spec)


def validate_inline_volume(field: str, spec: Obj) -> list[FieldError]:
    """The volume of an attachment that no PersistentVolume stands for: one of a CSI driver."""
    found = [
        forbidden(f"{field}.{name}", _NOT_INLINE)
        for name in ("claimRef", "capacity", "nodeAffinity", "storageClassName")
        if spec.get(name)
    ]
    if spec.get("csi") is None:
        found.append(required(f"{field}.csi", "has to be specified in the context of inline volumes"))
    for name, only in (("persistentVolumeReclaimPolicy", "Retain"), ("volumeMode", "Filesystem")):
        if spec.get(name) and spec[name] != only:
            why = f"may only be {only} in the context of inline volumes"
            if name == "volumeMode":
                why = f"may not specify volumeMode other than {only} in the context of inline volumes"
            found.append(forbidden(f"{field}.{name}", why))
    return found + [error for error in _modes(spec, field) if error not in found] + _sources(field, spec, "")


def _modes(spec: Obj, field: str = "spec") -> list[FieldError]:
    modes, place = items(spec, "accessModes"), f"{field}.accessModes"
    found = [] if modes else [required(place)]
    found += [not_supported(place, mode, ACCESS_MODES) for mode in modes if mode not in ACCESS_MODES]
    if "ReadWriteOncePod" in modes and set(modes) & set(ACCESS_MODES) - {"ReadWriteOncePod"}:
        found.append(forbidden(place, "may not use ReadWriteOncePod with other access modes"))
    return found


def _capacity(capacity: Obj) -> list[FieldError]:
    found = [] if capacity else [required("spec.capacity")]
    if capacity.keys() != {"storage"}:
        found.append(not_supported("spec.capacity", capacity, ("storage",)))
    for name, value in capacity.items():
        place = f"spec.capacity[{name}]"
        amount = parse_quantity(value)
        if amount.value() < 0:
            found.append(invalid(place, amount.value(), "must be a valid resource quantity"))
        if amount <= Quantity(0):
            found.append(invalid(place, str(amount), "must be greater than zero"))
    return found


def _sources(field: str, spec: Obj, name: str) -> list[FieldError]:
    kinds = [kind for kind in SOURCES if spec.get(kind) is not None]
    if not kinds:
        return [required(field, "must specify a volume type")]
    found: list[FieldError] = []
    for index, kind in enumerate(kinds):
        if index and kind != "flexVolume":
            place = f"{field}.{_PLACES_OF_SECOND_SOURCES.get(kind, kind)}"
            found.append(forbidden(place, "may not specify more than 1 volume type"))
            continue
        found += _source(f"{field}.{_PLACES.get(kind, kind)}", kind, spec[kind], name)
        if kind == "local" and spec.get("nodeAffinity") is None:
            found.append(required(f"{field}.nodeAffinity", "Local volume requires node affinity"))
    return found


def _source(field: str, kind: str, source: Obj, name: str) -> list[FieldError]:
    """What a plugin reads; secrets of volumes are in namespaces."""
    if kind == "csi":
        return _csi(field, source)
    if kind == "glusterfs":
        space, place = source.get("endpointsNamespace"), f"{field}.endpointsNamespace"
        found = missing(field, kind, source)
        if space == "":
            why = "if the endpointnamespace is set, it must be a valid namespace name"
            return [*found, invalid(place, space, why)]
        return found + (label_name(place, space) if space is not None else [])
    if kind == "azureFile":
        found = missing(field, kind, source)
        return found + ([required(f"{field}.secretNamespace")] if source.get("secretNamespace") == "" else [])
    found = validate_plugin_source(field, kind, source)
    if kind == "iscsi":  # of which 1.36 says less here than of a pod's
        found = [replace(one, detail=one.detail.removesuffix(OF_WHICH_FORM)) for one in found]
        found += secret_name(field, source)
    reference = source.get("secretRef")
    if kind in ("cinder", "storageos") and reference is not None and not reference.get("namespace"):
        found.append(required(f"{field}.secretRef.namespace"))
    portal = source.get("targetPortal") or ""
    if kind == "iscsi" and source.get("initiatorName") is not None and len(f"{name}:{portal}") > _MAX_INITIATOR:
        why = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "
            "specified."
        )
        found.append(invalid(f"{field}.targetportal", portal, why))
    return found


def _csi(field: str, source: Obj) -> list[FieldError]:
    found = driver_name(f"{field}.driver", source.get("driver") or "")
    found += [] if source.get("volumeHandle") else [required(f"{field}.volumeHandle")]
    for name in _CSI_SECRETS:
        reference = source.get(name)
        if reference is not None:
            found += required_subdomain(f"{field}.{name}.name", reference.get("name") or "")
            found += required_label(f"{field}.{name}.namespace", reference.get("namespace") or "")
    return found


def _attributes_class(spec: Obj) -> list[FieldError]:
    name, place = spec.get("volumeAttributesClassName"), "spec.volumeAttributesClassName"
    if name is None:
        return []
    found = subdomain(place, name) if name else [required(place, "an empty string is disallowed")]
    if spec.get("csi") is None:
        found.append(required("spec.csi", "has to be specified when using volumeAttributesClassName"))
    return found


def validate_persistent_volume_update(new: Obj, old: Obj) -> list[FieldError]:
    """A volume stays where it is; a secret for its growth may be added."""
    spec, before = part(new, "spec"), part(old, "spec")
    found = validate_persistent_volume(new)
    ours, secret = spec, "controllerExpandSecretRef"
    if before.get("csi") is not None and before["csi"].get(secret) is None and spec.get("csi") is not None:
        ours = {**spec, "csi": {name: value for name, value in spec["csi"].items() if name != secret}}
    if not all(same_members(ours, before, kind, _SPEC) for kind in SOURCES):
        why = "spec.persistentvolumesource is immutable after creation"
        found.append(forbidden("spec.persistentvolumesource", why))
    found += immutable("volumeMode", spec.get("volumeMode"), before.get("volumeMode"))
    if before.get("nodeAffinity") is not None and not same_members(spec, before, "nodeAffinity", _SPEC):
        why = "field is immutable, except for updating from beta label to GA"
        found.append(invalid("nodeAffinity", spec.get("nodeAffinity"), why))
    name = "volumeAttributesClassName"
    if before.get(name) is not None and spec.get(name) is None:
        found.append(forbidden(f"spec.{name}", "update from non-nil value to nil is forbidden"))
    return found
