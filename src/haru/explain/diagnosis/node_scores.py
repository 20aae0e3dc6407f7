"""Why a pod is where it is: what the nodes would say to it, and the points that each score plugin gives them."""

from __future__ import annotations

from collections.abc import Mapping

from haru.engine import Options, Overlay, Snapshot
from haru.engine.dra import AllocationError
from haru.engine.podgroup import PodPlacer
from haru.engine.preemption import with_nominated_pods
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.diagnosis.diagnosis import diagnose
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import NodeGroup, NodeScore, ScorePart

_MOST_SCORES = 8
SCORE_REASONS: Mapping[str, str] = {
    "TaintToleration": "fewer taints of effect PreferNoSchedule that it does not tolerate",
    "NodeAffinity": "more of its preferred node affinity",
    "PodTopologySpread": "fewer of its like in the same topology domain",
    "InterPodAffinity": "more of the preferred affinity between it and other pods, less of the anti-affinity",
    "DynamicResources": "devices for an alternative that its claims name earlier",
    "NodeResourcesBalancedAllocation": "cpu and memory used more evenly",
    "ImageLocality": "more of its images there already",
    "HaruPacking": "smaller devices and fragments before whole cards",
    "HaruExpected": "more of the expected mix of work still fits afterwards",
}
_FIT_REASONS: Mapping[str, str] = {
    "LeastAllocated": "more cpu and memory left",
    "MostAllocated": "less cpu and memory left",
    "RequestedToCapacityRatio": "a share of resources in use that the profile rates higher",
}


def why_here(
    snapshot: Snapshot, pod: PodInfo, options: Options
) -> tuple[tuple[NodeGroup, ...], tuple[NodeScore, ...], int]:
    """The nodes by what they would say, the scores of the best and of its own, and how many would take it.

    On the cluster without the pod and without what only it holds.
    """
    path = pod.key.path
    spec = {key: value for key, value in pod.spec.items() if key not in ("nodeName", "schedulingGroup")}
    again = PodInfo.of({**pod.obj, "spec": spec, "status": {**pod.status, "phase": "Pending"}})
    before = hypothesis.with_pods(hypothesis.without_pods(snapshot, [path]), [again])
    found = diagnose(before, WorkloadUnit((path,)), options)
    totals: Mapping[str, int] = {}
    parts: Mapping[str, tuple[ScorePart, ...]] = {}
    for kind, _ in found.members:
        placer = PodPlacer(Overlay(with_nominated_pods(before, [kind.pod])), None, options, before.node_names)
        try:
            totals, parts = placer.scores(kind.pod), _parts(placer, kind.pod, options)
        except AllocationError:
            continue
    best = sorted(totals, key=lambda name: (-totals[name], name != pod.node, name))
    told = [name for number, name in enumerate(best) if number < _MOST_SCORES or name == pod.node]
    scores = (NodeScore(name, totals[name], name == pod.node, parts[name]) for name in told)
    return found.nodes, tuple(scores), len(totals)


def _parts(placer: PodPlacer, pod: PodInfo, options: Options) -> Mapping[str, tuple[ScorePart, ...]]:
    return {
        node: tuple(ScorePart(part.plugin, part.score, part.weight, _reason(part.plugin, options)) for part in parts)
        for node, parts in placer.scores_by_plugin(pod).items()
    }


def _reason(plugin: str, options: Options) -> str:
    """What a plugin gives more points for."""
    if plugin == "NodeResourcesFit":
        return _FIT_REASONS[options.profile.fit.type]
    return SCORE_REASONS.get(plugin, "")
