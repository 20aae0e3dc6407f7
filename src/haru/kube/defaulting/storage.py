"""Defaults of storage.k8s.io: stored and served, without controllers of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from haru.kube.defaulting.filling import fill_unset, section

if TYPE_CHECKING:
    from haru.kube.gates import FeatureGates

Obj = dict[str, Any]


def _storage_class(storage_class: Obj, gates: FeatureGates) -> None:
    fill_unset(storage_class, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _csi_driver(driver: Obj, gates: FeatureGates) -> None:
    spec = section(driver, "spec")
    fill_unset(
        spec,
        attachRequired=True,
        podInfoOnMount=False,
        storageCapacity=False,
        fsGroupPolicy="ReadWriteOnceWithFSType",
        requiresRepublish=False,
    )
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = ["Persistent"]


FILLERS: Mapping[tuple[str, str], Callable[[Obj, FeatureGates], None]] = {
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
}
