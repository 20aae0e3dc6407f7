"""Placing one pod on an overlay: filter, allocate devices per feasible node, score, choose.

Source: kube-scheduler's scheduling cycle (PreFilter to Reserve), as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat

from haru.engine.dra.errors import AllocationError
from haru.engine.equivalence.filter_results import FilterResultCache
from haru.engine.equivalence.node_feasibility import FilterSummary, NodeFeasibility
from haru.engine.framework.interfaces import (
    NO_NODES,
    PluginScore,
    rejected_message,
    rejecting_plugins,
    summed_reasons,
    unavailable_message,
    weighed,
)
from haru.engine.framework.metrics_recorder import MetricsRecorder
from haru.engine.framework.options import Options
from haru.engine.plugins.dynamicresources.prefilter import PLUGIN, DeviceDemand, device_demand_of
from haru.engine.plugins.noderesources.plugin import NodeResourcesScore
from haru.engine.plugins.volumebinding.plugin import VolumeBinding, volume_rejection
from haru.engine.podgroup.equal_members import EqualMembers
from haru.engine.podgroup.placed import Placed, assume, placement_on
from haru.engine.podgroup.pod_batching import PodBatch
from haru.engine.state.decision import Diagnosis, Reason
from haru.engine.state.overlay import Overlay
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj


@dataclass(slots=True, unsafe_hash=True)
class Unschedulable:
    """Hold why a pod has no place. `failed`: an error ended the attempt, so nothing is proven. Never changed.

    `diagnosis` is what the nodes said to the first of equal pods.
    """

    pod: PodInfo
    message: str
    reasons: tuple[Reason, ...]
    plugins: tuple[str, ...] = ()
    failed: bool = False
    diagnosis: Diagnosis | None = field(default=None, compare=False, repr=False)


class PodPlacer:
    """Place pods one after the other on one overlay, among some nodes; `asked_again`: so do later attempts.

    The overlay may lack the last of them until the placer is asked for more.
    """

    def __init__(
        self, overlay: Overlay, group: Obj | None, options: Options, nodes: Sequence[str], *, asked_again: bool = False
    ) -> None:
        self._overlay = overlay
        self._group = group
        self._options = options
        self._nodes = nodes
        self._nominations = overlay.snapshot.pod_index.nominations
        self._filter_results = FilterResultCache(overlay, options, nodes, asked_again=asked_again)
        self._batch: PodBatch | None = None

    def place(self, pod: PodInfo, demand: DeviceDemand | None = None) -> Placed | Unschedulable:
        """Assume a pod on its best node in the overlay; the nominated node if it is still feasible.

        `demand` is what the pod requests of devices, where that is known.
        """
        if not self._nodes:
            return Unschedulable(pod, NO_NODES, (Reason("NoNodes", NO_NODES),))
        recorder = self._options.recorder
        if recorder is None:
            return self._place_one(pod, demand)
        recorder.start()
        try:
            return self._place_one(pod, demand)
        finally:
            recorder.stop()

    def place_all(self, members: Sequence[PodInfo]) -> Iterator[Placed | Unschedulable]:
        """Place pods one after the other, until an error ends the attempt."""
        for run in EqualMembers.of(self._overlay.snapshot, members):
            outcomes = self._place_run(run)
            yield from outcomes
            if _is_error(outcomes[-1]):
                break

    def _place_run(self, run: EqualMembers) -> list[Placed | Unschedulable]:
        """Place equal pods, until an error ends the attempt."""
        self._settle()
        demands = run.demands(self._overlay, self._group, self._options) if self._are_alike(run) else None
        outcomes: list[Placed | Unschedulable] = []
        while (number := len(outcomes)) < len(run.pods) and not (outcomes and _is_error(outcomes[-1])):
            batch = self._batch
            if number and demands is not None and batch is not None and batch.goes_on:
                outcomes += self._place_rest(batch, run.pods[number:], demands[number:])
            else:
                outcomes.append(self.place(run.pods[number], demands[number] if demands is not None else None))
        return outcomes

    def _settle(self) -> None:
        """Let the overlay assume what the batch has placed so far."""
        if self._batch is not None:
            self._batch.settle()

    def _demand_of(self, pod: PodInfo) -> DeviceDemand | Reason:
        self._settle()
        return device_demand_of(self._overlay, pod, self._group, self._options)

    def _are_alike(self, run: EqualMembers) -> bool:
        """Tell whether nodes and rules cannot tell equal members apart."""
        if not self._nodes or len(run.pods) == 1:
            return False
        if self._nominations and any(pod.key.path in self._nominations for pod in run.pods):
            return False
        return not (run.varying and self._filter_results.reads_labels(run.pods[0], run.varying))

    def _place_rest(
        self, batch: PodBatch, pods: Sequence[PodInfo], demands: Sequence[DeviceDemand]
    ) -> list[Placed | Unschedulable]:
        """Place pods that equal the one before, as long as the batch goes on.

        Where one is refused so are those after it, for nothing changes.
        """
        outcomes: list[Placed | Unschedulable] = []
        recorder = self._options.recorder
        for pod, demand in zip(pods, demands, strict=True):
            if recorder is not None:
                recorder.start()
                recorder.batch_attempts["hint_used"] += 1
            outcome: Placed | Unschedulable
            try:
                outcome = batch.place(pod, demand, self._scored) or self._unschedulable(pod, batch.feasibility)
            except AllocationError as error:
                outcome = _selector_error(pod, error)
            if recorder is not None:
                recorder.stop()
            outcomes.append(outcome)
            if isinstance(outcome, Unschedulable):
                if not outcome.failed:
                    outcomes += _refused_alike(outcome, pods[len(outcomes) :], recorder)
                break
            if not batch.goes_on:
                break
        return outcomes

    def _place_one(self, pod: PodInfo, known: DeviceDemand | None) -> Placed | Unschedulable:
        demand = known if known is not None else self._demand_of(pod)
        if isinstance(demand, Reason):
            if self._options.recorder is not None:
                self._options.recorder.lap("PreFilter", "UnschedulableAndUnresolvable")
            reason, plugin = self._first_rejection(pod, demand)
            return Unschedulable(pod, rejected_message(len(self._nodes), reason.message), (reason,), (plugin,))
        try:
            return self._place(pod, demand)
        except AllocationError as error:
            return _selector_error(pod, error)

    def _first_rejection(self, pod: PodInfo, reason: Reason) -> tuple[Reason, str]:
        """Return why a pod is rejected that no node can give its devices: its volumes come first."""
        known = VolumeBinding.name in self._options.profile.filters
        failure = volume_rejection(self._overlay.snapshot, pod) if known and pod.volume_claims else None
        return (reason, PLUGIN) if failure is None else (failure.reason, failure.plugin)

    def _place(self, pod: PodInfo, demand: DeviceDemand) -> Placed | Unschedulable:
        recorder = self._options.recorder
        if self._batch is None or not self._batch.takes(pod, demand):
            self._settle()
            feasibility = self._filter_results.feasibility(pod, demand)
            can_batch = self._filter_results.can_batch(feasibility, pod, demand)
            if recorder is not None:
                recorder.batch_attempts["no_hint"] += 1
                if self._batch is not None:
                    recorder.batch_flushes["pod_incompatible" if can_batch else "pod_not_batchable"] += 1
            can_batch = can_batch and not pod.nominated_node and pod.key.path not in self._nominations
            self._batch = (
                PodBatch(self._overlay, self._options, self._filter_results, feasibility, pod, demand)
                if can_batch
                else None
            )
            if self._batch is None:
                return self._place_alone(feasibility, pod, demand)
        elif recorder is not None:
            recorder.batch_attempts["hint_used"] += 1
        placed = self._batch.place(pod, demand, self._scored)
        return placed or self._unschedulable(pod, self._batch.feasibility)

    def _place_alone(self, feasibility: NodeFeasibility, pod: PodInfo, demand: DeviceDemand) -> Placed | Unschedulable:
        if not feasibility.ranking:
            return self._unschedulable(pod, feasibility)
        nomination = self._nominations.get(pod.key.path)
        name = nomination.node if nomination is not None else pod.nominated_node
        if not feasibility.ranking.takes(name):
            name = feasibility.ranking.choose(self._options.seed, pod.key.path)
            self._scored(feasibility)
        allocated = self._filter_results.runner.allocations(demand, name, feasibility.candidates[name])
        pending = demand.pending_on(self._overlay.node(name))
        allocations = tuple(zip(pending, allocated, strict=True))
        return assume(self._overlay, placement_on(self._overlay, pod, demand, name, allocations))

    def _scored(self, feasibility: NodeFeasibility) -> None:
        recorder = self._options.recorder
        if recorder is not None:
            recorder.lap("Score")
            for name in feasibility.prefilter.scoring_plugins:
                recorder.evaluations[name, "Score"] += 1

    def diagnose(self, pod: PodInfo) -> Diagnosis:
        """Return each infeasible node's filter failures for a pod, or why PreFilter rejected it."""
        demand = self._demand_of(pod)
        if isinstance(demand, Reason):
            return Diagnosis(pod.key, {}, rejection=self._first_rejection(pod, demand)[0])
        feasibility = self._filter_results.feasibility(pod, demand)
        rejection = feasibility.plan.rejection
        reason = rejection.reason if rejection is not None else None
        return Diagnosis(pod.key, feasibility.filter_failures(self._overlay), rejection=reason)

    def scores(self, pod: PodInfo) -> Mapping[str, int]:
        """Return the score of each feasible node for a pod; only their differences mean something.

        Empty if the pod was rejected outright. Raises AllocationError.
        """
        demand = self._demand_of(pod)
        return {} if isinstance(demand, Reason) else self._filter_results.feasibility(pod, demand).ranking.totals()

    def scores_by_plugin(self, pod: PodInfo) -> Mapping[str, Sequence[PluginScore]]:
        """Return the parts that make up `scores`; plugins that score all nodes alike may be missing."""
        demand = self._demand_of(pod)
        if isinstance(demand, Reason):
            return {}
        feasibility = self._filter_results.feasibility(pod, demand)
        found: dict[str, list[PluginScore]] = {}
        for node, scores in feasibility.ranking.normalised().items():
            found[node] = []
            plugins = zip(feasibility.prefilter.scoring_plugins, feasibility.prefilter.scorers, scores, strict=True)
            for plugin, scorer, score in plugins:
                if isinstance(scorer, NodeResourcesScore):
                    found[node] += scorer.by_plugin(self._overlay.node(node))
                elif scorer.weight:
                    found[node].append(PluginScore(plugin, scorer.weight, score))
        return found

    def _unschedulable(self, pod: PodInfo, feasibility: NodeFeasibility) -> Unschedulable:
        if feasibility.plan.rejection is not None:
            failure = feasibility.plan.rejection
            message = rejected_message(len(self._nodes), failure.reason.message)
            return Unschedulable(pod, message, (failure.reason,), (failure.plugin,))
        if feasibility.undecided:
            text = feasibility.undecided[min(feasibility.undecided)]
            reason = Reason(
                "GaveUp", text, {"nodes": len(feasibility.undecided), "budget": self._options.budgets.step_budget}
            )
            return Unschedulable(pod, text, (reason,), (PLUGIN,), failed=True)
        if feasibility.summary is None:
            failures = feasibility.filter_failures(self._overlay)
            refusals = weighed(failures.values())
            message = unavailable_message(len(self._nodes), refusals)
            reasons, plugins = summed_reasons(refusals), rejecting_plugins(refusals)
            feasibility.summary = FilterSummary(message, reasons, plugins, failures)
        message, reasons, plugins, nodes = feasibility.summary
        return Unschedulable(pod, message, reasons, plugins, diagnosis=Diagnosis(pod.key, nodes))


def _selector_error(pod: PodInfo, error: AllocationError) -> Unschedulable:
    return Unschedulable(pod, str(error), (Reason("SelectorError", str(error)),), (PLUGIN,), failed=True)


def _is_error(outcome: Placed | Unschedulable) -> bool:
    return isinstance(outcome, Unschedulable) and outcome.failed


def _refused_alike(
    refused: Unschedulable, pods: Sequence[PodInfo], recorder: MetricsRecorder | None
) -> list[Unschedulable]:
    """Return that pods are refused for the reasons of one that they equal."""
    if recorder is not None:
        recorder.batch_attempts["hint_used"] += len(pods)
    return [*map(Unschedulable, pods, repeat(refused.message), repeat(refused.reasons), repeat(refused.plugins))]
