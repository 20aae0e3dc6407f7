"""Whether a volume can be provisioned for a claim on a node: provisioner, allowed topologies, storage capacity.

Source: kube-scheduler 1.36's volume binder (checkVolumeProvisions, KEP-1472), as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from haru.engine.state.node_info import NodeInfo
from haru.engine.state.snapshot import Snapshot
from haru.kube.meta import Obj
from haru.kube.quantity import parse_quantity
from haru.kube.selectors import LabelSelector, label_selector_from
from haru.kube.volume_binding import WantedVolume, provisioner_of

Shortage = Literal["volume", "storage"]
"""What a node lacks for a claim: a volume that could be bound or made, or storage to make it of."""


class _Capacity(NamedTuple):
    limit: int
    selector: LabelSelector


class Provisioning:
    """Answer for one state of StorageClasses, CSIDrivers and CSIStorageCapacities."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._classes = snapshot.objects("StorageClass")
        self._drivers = snapshot.objects("CSIDriver")
        self._capacities = snapshot.objects("CSIStorageCapacity")
        self._by_class: dict[str, tuple[Mapping[tuple[str, str], list[_Capacity]], Sequence[_Capacity]]] = {}

    def shortage(self, wanted: WantedVolume, node: NodeInfo) -> Shortage | None:
        """Return what a node lacks for the provisioning of a claim; None if it lacks nothing."""
        storage_class = self._classes.get(wanted.class_name)
        provisioner = provisioner_of(storage_class) if storage_class is not None else ""
        if storage_class is None or not provisioner or not _in_topologies(storage_class, node.labels):
            return "volume"
        driver = self._drivers.get(provisioner)
        if not wanted.size.nano or not ((driver or {}).get("spec") or {}).get("storageCapacity"):
            return None
        return None if self._has_capacity(wanted, node) else "storage"

    def _has_capacity(self, wanted: WantedVolume, node: NodeInfo) -> bool:
        known = self._by_class.get(wanted.class_name)
        if known is None:
            known = self._by_class[wanted.class_name] = self._read(wanted.class_name)
        pinned, others = known
        size, labels = wanted.size.value(), node.labels
        near = [one for pin in labels.items() for one in pinned.get(pin, ())] if pinned else []
        return any(one.limit >= size and one.selector.matches(labels) for one in (*near, *others))

    def _read(self, class_name: str) -> tuple[Mapping[tuple[str, str], list[_Capacity]], Sequence[_Capacity]]:
        """Decode the capacities of a class, by the first label that their nodes have."""
        pinned: dict[tuple[str, str], list[_Capacity]] = {}
        others: list[_Capacity] = []
        for obj in self._capacities.values():
            limit = obj.get("maximumVolumeSize") or obj.get("capacity")
            topology = obj.get("nodeTopology")
            if obj.get("storageClassName") != class_name or limit is None or topology is None:
                continue
            try:
                one = _Capacity(parse_quantity(limit).value(), label_selector_from(topology))
            except ValueError:
                continue
            pin = next(iter((topology.get("matchLabels") or {}).items()), None)
            (others if pin is None else pinned.setdefault(pin, [])).append(one)
        return pinned, others


def _in_topologies(storage_class: Obj, labels: Mapping[str, str]) -> bool:
    """Whether any of the allowed topologies matches; all nodes will do where none is named."""
    terms = storage_class.get("allowedTopologies") or ()
    if not terms:
        return True
    return any(
        expressions and all(labels.get(e.get("key", "")) in (e.get("values") or ()) for e in expressions)
        for expressions in (term.get("matchLabelExpressions") or () for term in terms)
    )
