"""How many devices each request finds, and what holds the others: asked of the node that comes closest.

Nodes with equal devices have equal funnels, so each kind of node is asked once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haru.engine.cluster import Snapshot
from haru.engine.decision import Obj, Reason
from haru.engine.devices import AllocationError, Claim, NodeFunnel, NodeView, explain_requests
from haru.engine.groups import Options
from haru.engine.groups.board import decoded_claims
from haru.engine.groups.demand import demand_of
from haru.engine.groups.signature import DeviceLens
from haru.engine.overlay import Overlay
from haru.explain.explanation import Funnel
from haru.explain.hypothesis import consumers
from haru.explain.work import Refusal


def funnels(refusal: Refusal, group: Obj | None, options: Options) -> tuple[tuple[Funnel, ...], tuple[Reason, ...]]:
    """The funnels of a refused pod's claims on the best node that lacks devices, and why that node refuses them."""
    overlay = refusal.overlay
    nodes = [
        name
        for name in sorted(refusal.answers)
        if any(failure.reason.type == "DevicesUnavailable" for failure in refusal.answers[name])
    ]
    demand = demand_of(overlay, refusal.pod, group, options)
    if not nodes or isinstance(demand, Reason):
        return (), ()
    best = _best(overlay, decoded_claims(overlay, options, demand.pending), nodes, options)
    if best is None:
        return (), ()
    reasons = tuple(Reason(r.type, r.message, _with_users(overlay.snapshot, r.data)) for r in best.refusals)
    return tuple(Funnel(best.node, request) for request in best.requests), reasons


def _best(overlay: Overlay, claims: Sequence[Claim], nodes: Sequence[str], options: Options) -> NodeFunnel | None:
    lens = DeviceLens(claims, options.features)
    devices, allocated = overlay.snapshot.devices, overlay.allocated
    best: NodeFunnel | None = None
    asked: set[object] = set()
    for name in nodes:
        view = NodeView(name, overlay.node(name).labels)
        try:
            signature = lens.signature(devices, allocated, view)
            if signature in asked:
                continue
            asked.add(signature)
            funnel = explain_requests(devices, allocated, view, claims, options.features)
        except AllocationError:
            continue
        if best is None or _closeness(funnel) > _closeness(best):
            best = funnel
    return best


def _closeness(funnel: NodeFunnel) -> tuple[int, int, int]:
    served = sum(request.refusal is None for request in funnel.requests)
    passed = sum(len(request.stages) for request in funnel.requests)
    return served, sum(request.stages[-1].left for request in funnel.requests if request.stages), passed


def _with_users(snapshot: Snapshot, data: Mapping[str, object]) -> Mapping[str, object]:
    """Claims that hold devices, with the pods that use them."""
    holders = data.get("holders")
    if not isinstance(holders, dict) or not holders:
        return data
    known = [path for path in holders if path in snapshot.claims]
    used_by = {path: [pod.key.path for pod in consumers(snapshot, snapshot.claims[path])] for path in known}
    return {**data, "usedBy": used_by}
