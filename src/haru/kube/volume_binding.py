"""What binds a PersistentVolumeClaim to a PersistentVolume: the annotations, and which volume serves which claim.

The scheduler and the controller that binds volumes share it.
Source: component-helpers 1.36, storage/volume (pv_helpers), as behaviour.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from haru.kube.meta import Obj, annotations_of, labels_of, name_of, namespace_of, uid_of
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.selectors import LabelSelector, label_selector_from

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER: Final = "pv.kubernetes.io/bound-by-controller"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
PROVISIONED_BY: Final = "pv.kubernetes.io/provisioned-by"
STORAGE_PROVISIONER: Final = "volume.kubernetes.io/storage-provisioner"
BETA_STORAGE_PROVISIONER: Final = "volume.beta.kubernetes.io/storage-provisioner"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"
_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"


def class_of(obj: Mapping[str, Any]) -> str:
    """The name of the StorageClass of a claim or volume; empty for none."""
    beta = annotations_of(obj).get(_BETA_CLASS)
    return str(beta if beta is not None else (obj.get("spec") or {}).get("storageClassName") or "")


def is_fully_bound(claim: Mapping[str, Any]) -> bool:
    """Whether the binding of a claim is complete. A manifest that names a volume says that it is."""
    if not (claim.get("spec") or {}).get("volumeName"):
        return False
    return BIND_COMPLETED in annotations_of(claim) or _phase(claim, "Bound") == "Bound"


def _phase(obj: Mapping[str, Any], in_manifest: str) -> str:
    """The phase; that of an object that no server has seen, and that nobody has given one, is `in_manifest`."""
    phase = str((obj.get("status") or {}).get("phase") or "Pending")
    return in_manifest if phase == "Pending" and not obj["metadata"].get("resourceVersion") else phase


def waits_for_consumer(storage_class: Mapping[str, Any] | None) -> bool:
    """Whether claims of a class are bound once a pod uses them."""
    return (storage_class or {}).get("volumeBindingMode") == WAIT_FOR_FIRST_CONSUMER


def provisioner_of(storage_class: Mapping[str, Any]) -> str:
    """The provisioner of a class; empty where volumes are made by hand."""
    name = str(storage_class.get("provisioner") or "")
    return "" if name == NO_PROVISIONER else name


def claim_ref(claim: Mapping[str, Any]) -> Obj:
    """The reference to a claim that its volume carries."""
    metadata = claim["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": namespace_of(claim) or "default",
        "name": name_of(claim),
        "uid": uid_of(claim),
        "resourceVersion": metadata.get("resourceVersion") or "",
    }


def is_reserved_for(volume: Mapping[str, Any], claim: Mapping[str, Any]) -> bool:
    """Whether a volume names this claim; a reference without a UID names any claim of the name."""
    owner = (volume.get("spec") or {}).get("claimRef")
    if not owner:
        return False
    same = (owner.get("namespace"), owner.get("name")) == (namespace_of(claim) or "default", name_of(claim))
    return same and (not owner.get("uid") or owner["uid"] == uid_of(claim))


def volume_for_claim(volume: Obj, claim: Mapping[str, Any]) -> Obj:
    """The volume with its reference to the claim; the same object if it has that already."""
    owner = (volume.get("spec") or {}).get("claimRef") or {}
    wanted = claim_ref(claim)
    changed = volume
    if any(owner.get(name) != wanted[name] for name in ("namespace", "name", "uid")):
        changed = {**changed, "spec": {**(changed.get("spec") or {}), "claimRef": wanted}}
    if not is_reserved_for(volume, claim) and BOUND_BY_CONTROLLER not in annotations_of(volume):
        changed = with_annotations(changed, {BOUND_BY_CONTROLLER: "yes"})
    return changed


def claim_for_node(claim: Obj, node: str) -> Obj:
    """The claim with the node that its volume is to be provisioned for; the same object if it has that already."""
    return claim if annotations_of(claim).get(SELECTED_NODE) == node else with_annotations(claim, {SELECTED_NODE: node})


def with_annotations(obj: Obj, changes: Mapping[str, str | None]) -> Obj:
    """The object with these annotations; None removes one."""
    found = {**annotations_of(obj), **changes}
    annotations = {name: value for name, value in found.items() if value is not None}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


@dataclass(frozen=True, eq=False)
class WantedVolume:
    """The requirements of a claim on a volume, decoded once."""

    claim: Obj
    path: str
    class_name: str
    size: Quantity
    mode: str
    attributes_class: str
    access_modes: frozenset[str]
    selector: LabelSelector | None
    selected_node: str | None

    @staticmethod
    def of(claim: Obj) -> WantedVolume:
        """Decode a claim; ValueError for a selector that is malformed."""
        spec = claim.get("spec") or {}
        requests = (spec.get("resources") or {}).get("requests") or {}
        selector = spec.get("selector")
        return WantedVolume(
            claim,
            f"{namespace_of(claim) or 'default'}/{name_of(claim)}",
            class_of(claim),
            parse_quantity(requests.get("storage") or "0"),
            spec.get("volumeMode") or "Filesystem",
            spec.get("volumeAttributesClassName") or "",
            frozenset(spec.get("accessModes") or ()),
            label_selector_from(selector) if selector is not None else None,
            annotations_of(claim).get(SELECTED_NODE),
        )


@dataclass(frozen=True, eq=False)
class OfferedVolume:
    """The properties of a volume, decoded once. `node_affinity` is its required NodeSelector, if it has one."""

    obj: Obj
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", name_of(self.obj))

    @cached_property
    def spec(self) -> Obj:
        """The volume's spec."""
        found: Obj = self.obj.get("spec") or {}
        return found

    @cached_property
    def class_name(self) -> str:
        """The name of its StorageClass."""
        return class_of(self.obj)

    @cached_property
    def capacity(self) -> Quantity:
        """Its size."""
        return parse_quantity((self.spec.get("capacity") or {}).get("storage") or "0")

    @cached_property
    def access_modes(self) -> frozenset[str]:
        """Its access modes."""
        return frozenset(self.spec.get("accessModes") or ())

    @cached_property
    def node_affinity(self) -> Obj | None:
        """The nodes from which it can be reached; None for all."""
        found: Obj | None = (self.spec.get("nodeAffinity") or {}).get("required")
        return found

    @property
    def order(self) -> tuple[int, str]:
        """The smallest volume comes first."""
        return self.capacity.nano, self.name

    def suffices(self, wanted: WantedVolume) -> bool:
        """Whether size, mode and attributes are what a claim asks for, and the volume is not being deleted."""
        return (
            self.capacity >= wanted.size
            and (self.spec.get("volumeMode") or "Filesystem") == wanted.mode
            and (self.spec.get("volumeAttributesClassName") or "") == wanted.attributes_class
            and not self.obj["metadata"].get("deletionTimestamp")
        )

    def is_free_for(self, wanted: WantedVolume) -> bool:
        """Whether nobody has the volume and it is all that a claim asks for, its place aside."""
        phase = _phase(self.obj, "Available")
        if self.spec.get("claimRef") or phase != "Available" or self.class_name != wanted.class_name:
            return False
        if not (wanted.access_modes <= self.access_modes and self.suffices(wanted)):
            return False
        return wanted.selector is None or wanted.selector.matches(labels_of(self.obj))
