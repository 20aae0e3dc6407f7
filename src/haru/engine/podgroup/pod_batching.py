"""Place equal pods one after the other and compute each new node state's filter result only once.

Nodes with the same load class and the same device allocation answer the same again after each takes one more equal
pod. So only the first of them is filtered, and the result is reused for the others, in later decisions too. A gang of
thousands then costs one node choice and one device allocation per member, whatever the number of nodes. The overlay is
told of the placements when somebody reads it, which for the last members of an attempt is never.
Source: our own; kube-scheduler's opportunistic batching (KEP-5598) has the same purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from itertools import chain

from haru.engine.dra.allocator.allocation import gather
from haru.engine.dra.allocator.node_devices import NodeDevices
from haru.engine.dra.model.model import NodeView
from haru.engine.equivalence.filter_results import FilterResultCache
from haru.engine.equivalence.node_device_classes import classified_nodes_of
from haru.engine.equivalence.node_feasibility import FeasibleNode, NextResult, NodeFeasibility
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.prefilter import DeviceDemand
from haru.engine.podgroup.placed import Placed, assume
from haru.engine.state.overlay import Overlay
from haru.engine.state.partition import WHOLE
from haru.engine.state.pod_info import PodInfo


class PodBatch:
    """Maintain a pod's node feasibility for equal pods without filtering all nodes for each.

    Whoever reads the overlay calls `settle` before.
    """

    def __init__(
        self,
        overlay: Overlay,
        options: Options,
        filter_results: FilterResultCache,
        feasibility: NodeFeasibility,
        pod: PodInfo,
        demand: DeviceDemand,
    ) -> None:
        self._overlay = overlay
        self._options = options
        self._filter_results = filter_results
        self.feasibility = feasibility
        self._first = pod
        self._first_owners = _owners(pod)
        self._signature: Hashable = None
        self._first_demand = demand
        self._chose = False
        self._node_devices: dict[str, tuple[NodeDevices, bool]] = {}
        self._classes: dict[str, Hashable] = {}
        """By name: a key of each node that took a pod, equal for nodes that equal pods cannot tell apart."""
        self._last_node: str | None = None
        self._waiting: dict[str, list[Placed]] = {}
        """By node: placements that the overlay lacks, but for its `changes`."""
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
        if not demand.asks_like(self._first_demand):
            return False
        same = pod.labels == first.labels and pod.images == first.images and _owners(pod) == self._first_owners
        if same:
            return True
        if self._signature is None:
            self._signature = self._filter_results.pod_key(first)
        return self._filter_results.pod_key(pod) == self._signature

    def settle(self) -> None:
        """Let the overlay assume all that was placed."""
        if self._waiting:
            self._settle(list(self._waiting))

    def _settle(self, nodes: Iterable[str]) -> None:
        """Let the overlay assume what was placed on some nodes."""
        for placed in chain.from_iterable([self._waiting.pop(name, ()) for name in nodes]):
            assume(self._overlay, placed, local=True)
        self._change_count = len(self._overlay.changes)

    def _update_node(self, name: str, demand: DeviceDemand) -> None:
        """Update the node that the last member was placed on. Raises AllocationError."""
        feasibility, node_class = self.feasibility, self._classes[name]
        feasibility.summary = None
        known = feasibility.next_results.get(node_class)
        if known is None:
            self._settle((name,))
            self._filter_results.refilter(feasibility, self._first, demand, name)
            if name in feasibility.undecided:
                return
            known = self._result_of(name)
            feasibility.keep_next_result(node_class, known)
        elif known.candidate is not None:
            feasibility.candidates[name] = known.candidate
            feasibility.ranking.put(name, known.key)
        else:
            feasibility.forget(name)
            feasibility.refusals[name] = known.refusal
        self._classes[name] = known.node_class

    def _result_of(self, name: str) -> NextResult:
        """Return what a node answers now."""
        feasibility = self.feasibility
        candidate = feasibility.candidates.get(name)
        if candidate is None:
            return NextResult(None, refusal=feasibility.refusals.get(name, ()))
        return NextResult(candidate, feasibility.ranking.key_of(name) or (), (), self._class_of(name, candidate))

    def _class_of(self, name: str, candidate: FeasibleNode) -> Hashable:
        """Return the key of a node's class; answers compare by identity."""
        node = self._overlay.node(name)
        return candidate.answer, self.feasibility.ranking.key_of(name), node.spec.kind, node.load

    def place(self, pod: PodInfo, demand: DeviceDemand, scored: Callable[[NodeFeasibility], None]) -> Placed | None:
        """Place a pod that equals the one before; None if no node takes it. Raises AllocationError.

        `scored` is called once its node is chosen.
        """
        overlay, feasibility, last_node = self._overlay, self.feasibility, self._last_node
        if last_node is not None:
            self._last_node = None
            self._update_node(last_node, demand)
        if not feasibility.candidates:
            return None
        name = feasibility.ranking.choose(self._options.seed, pod.key.path, steady=self._chose)
        self._chose = True
        if self._options.recorder is not None:
            scored(feasibility)
        candidate = feasibility.candidates[name]
        allocated, local = candidate.allocations, not candidate.allocations
        if candidate.answer is not None:
            devices, local = self._node_devices.get(name) or self._devices_on(name)
            allocated = candidate.answer.results_alike(devices, self._options.new_share_id)
        # A batch has no pods with other claims than those to allocate.
        placed = Placed(pod, demand, name, tuple(zip(demand.pending, allocated, strict=True)), ())
        self._last_node = name
        if name not in self._classes:
            self._classes[name] = self._class_of(name, candidate)
        if local:
            self._waiting.setdefault(name, []).append(placed)
            # What follows the nodes on other overlays has to look at this one again, whether it is settled or not.
            overlay.changes.append(name)
            self._change_count += 1
        else:
            self.settle()
            assume(overlay, placed)
            new = overlay.changes[self._change_count :]
            self._change_count = len(overlay.changes) if None not in new else -1
        return placed

    def _devices_on(self, name: str) -> tuple[NodeDevices, bool]:
        """Return the devices that a node sees, and whether it alone does. Raises AllocationError."""
        snapshot, features = self._overlay.snapshot, self._options.features
        view = NodeView(name, snapshot.nodes[name].labels)
        classified = classified_nodes_of(snapshot.classified_nodes, name)
        sees_all = features.PartitionableDevices and snapshot.devices.partition is WHOLE
        if classified is not None and sees_all and len(classified.views) == 1:
            known = NodeDevices(classified.views, view, features), True
        else:
            views = gather(snapshot.devices, view, features)
            known = NodeDevices(views, view, features), not [view for view in views if not view.confined]
        self._node_devices[name] = known
        return known


def _owners(pod: PodInfo) -> object:
    return pod.obj["metadata"].get("ownerReferences")
