"""Volumes of a pod: names, and one source each (core/v1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, required
from haru.kube.meta import Obj
from haru.kube.validation.common import required_label
from haru.kube.validation.containers import pull_policy
from haru.kube.validation.volume_claim_specs import validate_volume_claim_template
from haru.kube.validation.volume_files import downward_files, keys_to_files, projected_files
from haru.kube.validation.volume_plugins import validate_plugin_source

_SOURCES = (
    *("emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs", "iscsi"),
    *("glusterfs", "flocker", "persistentVolumeClaim", "rbd", "cinder", "cephfs", "quobyte", "downwardAPI", "fc"),
    *("flexVolume", "configMap", "azureFile", "vsphereVolume", "photonPersistentDisk", "portworxVolume", "azureDisk"),
    *("storageos", "projected", "scaleIO", "csi", "ephemeral", "image"),
)
"""In this order the first one is the volume's source, and the others are too many."""
# Where 1.36 tells errors under a name that the member does not have.
_PLACES = {"gcePersistentDisk": "persistentDisk"}
_PLACES_OF_SECOND_SOURCES = {"cephfs": "cephFS", "downwardAPI": "downwarAPI"}
_MAX_INITIATOR = 64


def validate_volumes(
    field: str, volumes: Sequence[Obj], pod_name: str, *, is_pod: bool
) -> tuple[Mapping[str, Obj], list[FieldError]]:
    """The volumes that are right, by name, and what is wrong about the others; a template's pods have no name yet."""
    created = {f"{pod_name}-{v.get('name') or ''}" for v in volumes if pod_name and v.get("ephemeral") is not None}
    found: list[FieldError] = []
    right: dict[str, Obj] = {}
    for index, volume in enumerate(volumes):
        place, name = f"{field}[{index}]", volume.get("name") or ""
        errors = _source(place, volume, pod_name, is_pod=is_pod)
        errors += required_label(f"{place}.name", name)
        if name in right:
            errors.append(duplicate(f"{place}.name", name))
        if not errors:
            right[name] = volume
        found += errors
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName") or ""
        if claim in created:
            why = "must not reference a PVC that gets created for an ephemeral volume"
            found.append(invalid(f"{place}.persistentVolumeClaim.claimName", claim, why))
    return right, found


def _source(field: str, volume: Obj, pod_name: str, *, is_pod: bool) -> list[FieldError]:
    kinds = [name for name in _SOURCES if volume.get(name) is not None]
    if not kinds:
        return [required(field, "must specify a volume type")]
    kind = kinds[0]
    source, place = volume[kind], f"{field}.{_PLACES.get(kind, kind)}"
    check = _CHECKS.get(kind)
    found = check(place, source) if check is not None else validate_plugin_source(place, kind, source)
    if kind == "image" and is_pod and not source.get("reference"):
        found.append(required(f"{place}.reference"))
    if kind == "ephemeral" and pod_name and volume.get("name"):
        found += _claim_name(f"{field}.name", pod_name, volume["name"])
    found += [
        forbidden(f"{field}.{_PLACES_OF_SECOND_SOURCES.get(other, other)}", "may not specify more than 1 volume type")
        for other in kinds[1:]
    ]
    return found + _initiator(field, volume)


def _claim_name(field: str, pod_name: str, name: str) -> list[FieldError]:
    claim = f"{pod_name}-{name}"
    return [invalid(field, name, f'PVC name "{claim}": {why}') for why in names.is_dns1123_subdomain(claim)]


def _initiator(field: str, volume: Obj) -> list[FieldError]:
    source, name = volume.get("iscsi") or {}, volume.get("name") or ""
    if source.get("initiatorName") is None or len(f"{name}:{source.get('targetPortal') or ''}") <= _MAX_INITIATOR:
        return []
    why = (
        "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is "
        "specified."
    )
    return [invalid(f"{field}.name", name, why)]


def _secret(field: str, source: Obj) -> list[FieldError]:
    return ([] if source.get("secretName") else [required(f"{field}.secretName")]) + keys_to_files(field, source)


def _config_map(field: str, source: Obj) -> list[FieldError]:
    return ([] if source.get("name") else [required(f"{field}.name")]) + keys_to_files(field, source)


def _claim(field: str, source: Obj) -> list[FieldError]:
    return [] if source.get("claimName") else [required(f"{field}.claimName")]


def _ephemeral(field: str, source: Obj) -> list[FieldError]:
    template = source.get("volumeClaimTemplate")
    place = f"{field}.volumeClaimTemplate"
    return [required(place)] if template is None else validate_volume_claim_template(place, template)


def _image(field: str, source: Obj) -> list[FieldError]:
    return pull_policy(f"{field}.pullPolicy", source.get("pullPolicy"))


_CHECKS: Mapping[str, Callable[[str, Obj], list[FieldError]]] = {
    "secret": _secret,
    "configMap": _config_map,
    "persistentVolumeClaim": _claim,
    "downwardAPI": downward_files,
    "projected": projected_files,
    "ephemeral": _ephemeral,
    "image": _image,
}
