"""Why a running pod is where it is: what each node would say to it now, had it no place yet, and how they compare."""

from __future__ import annotations

from haru.engine import Options, Overlay, Snapshot
from haru.engine.dra import AllocationError
from haru.engine.podgroup import PodPlacer
from haru.engine.preemption import with_nominated_pods
from haru.engine.state import PodInfo
from haru.explain import hypothesis
from haru.explain.diagnosis.diagnosis import diagnose
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import NodeGroup, NodeScore

_MOST_SCORES = 8


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
    totals: dict[str, int] = {}
    for kind, _ in found.members:
        placer = PodPlacer(Overlay(with_nominated_pods(before, [kind.pod])), None, options, before.node_names)
        try:
            totals = dict(placer.scores(kind.pod))
        except AllocationError:
            continue
    best = sorted(totals, key=lambda name: (-totals[name], name != pod.node, name))
    told = [name for number, name in enumerate(best) if number < _MOST_SCORES or name == pod.node]
    return found.nodes, tuple(NodeScore(name, totals[name], name == pod.node) for name in told), len(totals)
