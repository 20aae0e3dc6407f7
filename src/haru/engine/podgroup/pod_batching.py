"""Place equal pods one after the other and compute each new node state's filter result only once.

Nodes with the same load class and the same device allocation answer the same again after each takes one more equal
pod. So only the first of them is filtered, and the result is reused for the others, in later decisions too. A gang of
thousands then costs one node choice, one node update and one device allocation per member, whatever the number of
nodes.
Source: our own; kube-scheduler's opportunistic batching (KEP-5598) has the same purpose.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from haru.engine.dra.allocator.allocation import gather
from haru.engine.dra.allocator.node_devices import NodeDevices
from haru.engine.dra.model.model import NodeView
from haru.engine.equivalence.filter_results import FilterResultCache
from haru.engine.equivalence.node_feasibility import FeasibleNode, NextResult, NodeFeasibility
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj


class PodBatch:
    """Maintain a pod's node feasibility for equal pods without filtering all nodes for each."""

    def __init__(
        self,
        overlay: Overlay,
        options: Options,
        filter_results: FilterResultCache,
        feasibility: NodeFeasibility,
        pod: PodInfo,
    ) -> None:
        self._overlay = overlay
        self._options = options
        self._filter_results = filter_results
        self.feasibility = feasibility
        self._first = pod
        self._first_owners = _owners(pod)
        self._signature: Hashable = None
        self._first_demand: DeviceDemand | None = None
        self._chose = False
        self._node_devices: dict[str, tuple[NodeDevices, bool]] = {}
        self._last_placement: tuple[str, Hashable] | None = None
        self._change_count = len(overlay.changes)

    @property
    def goes_on(self) -> bool:
        """Tell whether only equal pods were placed since the first, and with devices that one node alone sees."""
        return len(self._overlay.changes) == self._change_count

    def takes(self, pod: PodInfo, demand: DeviceDemand) -> bool:
        """Tell whether a pod equals the first, and only such pods were placed since."""
        first, snapshot = self._first, self._overlay.snapshot
        if not self.goes_on or pod.shape != first.shape:
            return False
        if pod.nominated_node or pod.key.path in snapshot.pod_index.nominations or demand.fixed or demand.extended:
            return False
        if self._first_demand is None:
            self._first_demand = demand
        if not demand.asks_like(self._first_demand):
            return False
        same = pod.labels == first.labels and pod.images == first.images and _owners(pod) == self._first_owners
        if same:
            return True
        if self._signature is None:
            self._signature = self._filter_results.pod_key(first)
        return self._filter_results.pod_key(pod) == self._signature

    def update_last_node(self, demand: DeviceDemand) -> None:
        """Update the node that the last member was placed on. Raises AllocationError."""
        if self._last_placement is None:
            return
        name, node_class = self._last_placement
        self._last_placement = None
        feasibility, known = self.feasibility, self.feasibility.next_results.get(node_class)
        feasibility.summary = None
        if known is None:
            self._filter_results.refilter(feasibility, self._first, demand, name)
            if name not in feasibility.undecided:
                candidate = feasibility.candidates.get(name)
                key = feasibility.ranking.key_of(name)
                result = NextResult(candidate, key or (), feasibility.refusals.get(name, ()))
                feasibility.keep_next_result(node_class, result)
        elif known.candidate is not None:
            feasibility.candidates[name] = known.candidate
            feasibility.ranking.put(name, known.key)
        else:
            feasibility.forget(name)
            feasibility.refusals[name] = known.refusal

    def choose(self, pod: PodInfo) -> tuple[str, FeasibleNode]:
        """Return the best feasible node for a pod; there must be one."""
        name = self.feasibility.ranking.choose(self._options.seed, pod.key.path, steady=self._chose)
        self._chose = True
        return name, self.feasibility.candidates[name]

    def allocations(self, node: NodeInfo, candidate: FeasibleNode) -> tuple[Sequence[Obj], bool]:
        """Return a candidate's allocations, and whether only that node sees the devices. Raises AllocationError."""
        if candidate.answer is None:
            return candidate.allocations, False
        known = self._node_devices.get(node.name)
        if known is None:
            features, view = self._options.features, NodeView(node.name, node.labels)
            views = gather(self._overlay.snapshot.devices, view, features)
            known = self._node_devices[node.name] = (
                NodeDevices(views, view, features),
                not [view for view in views if not view.confined],
            )
        devices, local = known
        return candidate.answer.results_alike(devices, self._options.new_share_id), local

    def node_class_of(self, node: NodeInfo, candidate: FeasibleNode) -> Hashable:
        """Return a key that is equal for nodes that equal pods cannot tell apart; answers compare by identity."""
        return candidate.answer, self.feasibility.ranking.key_of(node.name), node.spec.kind, node.load

    def record_placement(self, name: str, node_class: Hashable) -> None:
        """Record that a member was placed on a node, with the node's class before that."""
        new = self._overlay.changes[self._change_count :]
        self._change_count = len(self._overlay.changes) if None not in new else -1
        self._last_placement = (name, node_class)


def _owners(pod: PodInfo) -> object:
    return pod.obj["metadata"].get("ownerReferences")
