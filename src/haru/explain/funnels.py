"""How many devices each request finds, and what holds the others: asked of the node that comes closest.

Nodes with equal devices have equal funnels, so each kind of node is asked once.
"""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine.cluster import Snapshot
from haru.engine.decision import Reason
from haru.engine.devices import AllocationError, NodeFunnel, NodeView, decode_claims, explain_requests
from haru.engine.groups import Options
from haru.engine.groups.claims import resolve_claims
from haru.engine.groups.signature import DeviceLens
from haru.engine.pods import PodInfo
from haru.explain.explanation import Funnel
from haru.explain.work import Work


def funnels(
    snapshot: Snapshot, work: Work, pod: PodInfo, nodes: Sequence[str], options: Options
) -> tuple[tuple[Funnel, ...], tuple[Reason, ...]]:
    """The funnels of a pod's claims on the best of some nodes, and why that node refuses them."""
    uses = resolve_claims(snapshot, pod, work.pod_group(snapshot), workload_claims=options.workload_claims)
    if not isinstance(uses, tuple):
        return (), ()
    wanted = [use.claim for use in uses if use.allocation is None]
    if not wanted:
        return (), ()
    claims = decode_claims(wanted, snapshot.devices.classes, options.features)
    lens = DeviceLens(claims, options.features)
    best: NodeFunnel | None = None
    asked: set[object] = set()
    for name in nodes:
        view = NodeView(name, snapshot.nodes[name].labels)
        try:
            signature = lens.signature(snapshot.devices, snapshot.allocated, view)
            if signature in asked:
                continue
            asked.add(signature)
            funnel = explain_requests(snapshot.devices, snapshot.allocated, view, claims, options.features)
        except AllocationError:
            continue
        if best is None or _closeness(funnel) > _closeness(best):
            best = funnel
    if best is None:
        return (), ()
    reasons = tuple(Reason(r.type, r.message, _with_holders(snapshot, dict(r.data))) for r in best.refusals)
    return tuple(Funnel(best.node, request) for request in best.requests), reasons


def _closeness(funnel: NodeFunnel) -> tuple[int, int, int]:
    served = sum(request.refusal is None for request in funnel.requests)
    passed = sum(len(request.stages) for request in funnel.requests)
    return served, sum(request.stages[-1].left for request in funnel.requests if request.stages), passed


def _with_holders(snapshot: Snapshot, data: dict[str, object]) -> dict[str, object]:
    """Claims that hold devices, with the pods that use them."""
    holders = data.get("holders")
    if not isinstance(holders, dict) or not holders:
        return data
    from haru.explain.hypothesis import consumers

    used_by = {
        path: [pod.key.path for pod in consumers(snapshot, snapshot.claims[path])]
        for path in holders
        if path in snapshot.claims
    }
    return {**data, "usedBy": used_by}
