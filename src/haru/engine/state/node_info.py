"""A node with what is on it, as an immutable value: adding or removing a pod gives a new one that shares the rest.

Two nodes of the same `kind` with the same `load` are the same to every filter and score that looks neither at labels,
images nor devices, unless pods on them have inter-pod terms. Kinds and loads are told apart by identity: there is one
object for all nodes that are alike, which is found as nodes and pods come.
Source: kube-scheduler's NodeInfo, as behaviour.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from haru.engine.equivalence.decision_cache import DecisionCache, cached_property
from haru.engine.state.pod_info import PodInfo
from haru.engine.state.pod_values import HostPort, amount_of
from haru.kube.meta import Obj

_MAX_IDS = 8_192
"""A load takes some 400 bytes."""
_MAX_STEPS = 2_048
"""From loads to others by a pod: the same is asked within moments, for many nodes or for one again."""


class InternedId:
    """One object for all equal values, compared by identity.

    Only speed depends on finding it again: after the cache has dropped it, an equal value gets another one.
    """

    __slots__ = ()


@dataclass(frozen=True, eq=False)
class NodeSpec:
    """One version of a Node object. Nodes of one `kind` differ only in labels, images, pods and devices."""

    name: str
    obj: Obj
    labels: Mapping[str, str]
    taints: tuple[Obj, ...]
    unschedulable: bool
    allocatable: Mapping[str, int]
    kind: InternedId = field(default_factory=InternedId)

    @staticmethod
    def of(obj: Obj, ids: DecisionCache | None = None) -> NodeSpec:
        """Decode a Node object. `ids`: the cache of its cluster's interned values; equal nodes get one `kind`."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        amounts = status.get("allocatable") or status.get("capacity") or {}
        taints = tuple(spec.get("taints") or ())
        unschedulable = bool(spec.get("unschedulable"))
        allocatable = {name: amount_of(name, quantity) for name, quantity in amounts.items()}
        features = frozenset(status.get("declaredFeatures") or ())
        offer = (_taint_text(taints), unschedulable, tuple(sorted(allocatable.items())), features)
        made = NodeSpec(
            name=obj["metadata"]["name"],
            obj=obj,
            labels=obj["metadata"].get("labels") or {},
            taints=taints,
            unschedulable=unschedulable,
            allocatable=allocatable,
            kind=InternedId() if ids is None else ids.get_or_compute("node kinds", offer, InternedId, _MAX_IDS),
        )
        if not status.get("images"):
            made.__dict__["images"] = NO_IMAGES
        return made

    @cached_property
    def images(self) -> Mapping[str, int]:
        """The images that the node has, by every name they go by, with their sizes in bytes."""
        listed = (self.obj.get("status") or {}).get("images") or ()
        return {name: int(image.get("sizeBytes") or 0) for image in listed for name in image.get("names") or ()}

    @cached_property
    def features(self) -> frozenset[str]:
        """The features that the node declares (KEP-5328)."""
        return frozenset((self.obj.get("status") or {}).get("declaredFeatures") or ())


def _taint_text(taints: Sequence[Obj]) -> str:
    kept = [{k: v for k, v in taint.items() if k != "timeAdded"} for taint in taints]
    return json.dumps(sorted(kept, key=str), sort_keys=True) if kept else ""


NO_IMAGES: Mapping[str, int] = MappingProxyType({})
ABSENT = NodeSpec("", {}, {}, (), False, {})
"""The spec of a node that does not exist."""


@dataclass(eq=False)
class NodeInfo:
    """A node and its pods; never changed. `present` is false if pods are bound to a node that does not exist."""

    name: str
    spec: NodeSpec
    pods: Mapping[str, PodInfo]
    requested: Mapping[str, int]
    scoring_requested: tuple[int, int]
    host_ports: tuple[HostPort, ...]
    ids: DecisionCache

    @staticmethod
    def empty(name: str, spec: NodeSpec | None = None, ids: DecisionCache | None = None) -> NodeInfo:
        """A node without pods. `ids`: the cache of its cluster's interned values; equal use gets one `load`."""
        made = NodeInfo(name, spec or ABSENT, {}, {}, (0, 0), (), DecisionCache() if ids is None else ids)
        made.__dict__["affine"] = ()
        made.__dict__["load"] = _load_of(made)
        return made

    @property
    def present(self) -> bool:
        """Return whether the Node object exists."""
        return self.spec is not ABSENT

    @property
    def labels(self) -> Mapping[str, str]:
        """The node's labels."""
        return self.spec.labels

    @property
    def taints(self) -> tuple[Obj, ...]:
        """The node's taints."""
        return self.spec.taints

    @property
    def allocatable(self) -> Mapping[str, int]:
        """The node's allocatable resources."""
        return self.spec.allocatable

    @property
    def images(self) -> Mapping[str, int]:
        """The images on the node, with their sizes in bytes."""
        return self.spec.images

    @cached_property
    def affine(self) -> tuple[PodInfo, ...]:
        """Its pods that have inter-pod terms."""
        return tuple([pod for pod in self.pods.values() if pod.spec.get("affinity") and pod.terms])

    @cached_property
    def load(self) -> InternedId:
        """One object for all nodes with equal use."""
        return _load_of(self)

    def with_spec(self, spec: NodeSpec | None) -> NodeInfo:
        """Return the same pods on another version of the node, or on none."""
        parts = self.pods, self.requested, self.scoring_requested, self.host_ports, self.ids
        made = NodeInfo(self.name, spec or ABSENT, *parts)
        made.__dict__["load"] = self.load
        if "affine" in self.__dict__:
            made.__dict__["affine"] = self.affine
        return made

    def with_pod(self, pod: PodInfo) -> NodeInfo:
        """The node with one more pod (or another version of one it has)."""
        path = pod.key.path
        base = self.without_pod(path) if path in self.pods else self
        step = base.load, pod.weight
        # Nodes of one load have equal sums, and so they have with one more pod.
        requested, scored, load = self.ids.get_or_compute("loads with a pod", step, lambda: base._sums(pod), _MAX_STEPS)
        ports = (*base.host_ports, *sorted(pod.host_ports)) if pod.host_ports else base.host_ports
        made = NodeInfo(self.name, self.spec, {**base.pods, path: pod}, requested, scored, ports, self.ids)
        made.__dict__["load"] = load
        if "affine" in base.__dict__ and not pod.spec.get("affinity"):
            # What is known already need not be looked for when somebody looks at all nodes.
            made.__dict__["affine"] = base.affine
        return made

    def _sums(self, pod: PodInfo) -> tuple[Mapping[str, int], tuple[int, int], InternedId]:
        """Return what is requested, and the load, with one more pod."""
        requested = dict(self.requested)
        for name, value in pod.usage.items():
            requested[name] = requested.get(name, 0) + value
        cpu, memory = pod.scoring_usage
        scored = self.scoring_requested[0] + cpu, self.scoring_requested[1] + memory
        ports = (*self.host_ports, *pod.host_ports)
        return requested, scored, _interned(self.ids, requested, scored, len(self.pods) + 1, ports)

    def with_confirmed(self, pod: PodInfo) -> NodeInfo:
        """The node with another version of a pod it has, which takes the same of it (`PodInfo.confirms`)."""
        sums = self.requested, self.scoring_requested, self.host_ports
        made = NodeInfo(self.name, self.spec, {**self.pods, pod.key.path: pod}, *sums, self.ids)
        made.__dict__["load"] = self.load
        if "affine" in self.__dict__ and not pod.spec.get("affinity"):
            made.__dict__["affine"] = self.affine
        return made

    def without_pod(self, path: str) -> NodeInfo:
        """The node without a pod that it has."""
        return self.without_pods((path,))

    def without_pods(self, paths: Collection[str]) -> NodeInfo:
        """The node without some pods that it has."""
        made = self._holding({path: pod for path, pod in self.pods.items() if path not in paths})
        if self.__dict__.get("affine") == ():
            made.__dict__["affine"] = ()
        return made

    def rebuilt(self, pods: Iterable[PodInfo]) -> NodeInfo:
        """The node with exactly these pods."""
        return self._holding({pod.key.path: pod for pod in pods})

    def _holding(self, kept: Mapping[str, PodInfo]) -> NodeInfo:
        """The node with exactly these pods, by their paths."""
        requested: dict[str, int] = {}
        cpu = memory = 0
        ports: list[HostPort] = []
        for pod in kept.values():
            for name, value in pod.usage.items():
                requested[name] = requested.get(name, 0) + value
            cpu, memory = cpu + pod.scoring_usage[0], memory + pod.scoring_usage[1]
            ports.extend(sorted(pod.host_ports))
        return NodeInfo(self.name, self.spec, kept, requested, (cpu, memory), tuple(ports), self.ids)


def _load_of(node: NodeInfo) -> InternedId:
    return _interned(node.ids, node.requested, node.scoring_requested, len(node.pods), node.host_ports)


def _interned(
    ids: DecisionCache, requested: Mapping[str, int], scored: tuple[int, int], pods: int, ports: Iterable[HostPort]
) -> InternedId:
    """Return the load of nodes with so many pods that request so much."""
    key = (tuple(sorted(requested.items())), scored, pods, tuple(sorted(ports)))
    return ids.get_or_compute("node loads", key, InternedId, _MAX_IDS)
