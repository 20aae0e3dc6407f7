"""Amounts of bytes that are no whole numbers."""

from __future__ import annotations

from collections.abc import Iterator

from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity
from haru.kube.warnings.nodes import selector_term_warnings

_NANO_PER_UNIT = 10**9
_NANO_PER_MILLI = 10**6


def volume_claim_warnings(spec: Obj, path: str) -> Iterator[str]:
    """List the warnings about a PersistentVolumeClaim's spec at `path`."""
    resources = spec.get("resources") or {}
    for kind in ("requests", "limits"):
        yield from fraction_warnings(resources.get(kind), f"{path}.resources.{kind}", ("storage",))


def fraction_warnings(amounts: Obj | None, path: str, names: tuple[str, ...]) -> Iterator[str]:
    """Of these resources, those of which fractions of a byte are asked for."""
    if not amounts:
        return
    for name in names:
        text = amounts.get(name)
        if text is None or (isinstance(text, str) and text[-1:] in "0123456789i" and text.isalnum()):
            continue  # digits with at most a binary suffix: whole bytes
        amount = parse_quantity(text)
        if -(-amount.nano // _NANO_PER_MILLI) * _NANO_PER_MILLI % _NANO_PER_UNIT:
            yield f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'


_RECYCLED = (
    "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
)
_ANNOTATIONS = {
    "volume.beta.kubernetes.io/storage-class": 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_PLUGINS = {
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}


def volume_warnings(volume: Obj) -> Iterator[str]:
    """What is odd about a PersistentVolume."""
    annotations, spec = volume["metadata"].get("annotations") or {}, volume.get("spec") or {}
    for key, said in _ANNOTATIONS.items():
        if key in annotations:
            yield f"metadata.annotations[{key}]: {said}"
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield f"spec.persistentVolumeReclaimPolicy: {_RECYCLED}"
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    for number, term in enumerate(terms):
        yield from selector_term_warnings(term, f"spec.nodeAffinity.required.nodeSelectorTerms[{number}]")
    for name, why in _PLUGINS.items():
        if spec.get(name) is not None:
            yield f"spec.{'storageOS' if name == 'storageos' else name}: {why}"


def driver_warnings(driver: Obj) -> Iterator[str]:
    """What is odd about a new CSIDriver."""
    spec = driver.get("spec") or {}
    if spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None:
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent "
            "possible logging of tokens in volume attributes"
        )
