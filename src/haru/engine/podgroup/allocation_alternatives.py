"""Enumerate all ways to allocate claims on a node, starting with the allocator's first answer.

When an allocation does not help the rest of a group, the enumeration runs the allocator again without one of its
choices, once for each: a device for all requests that would hold it, a share of a device (or admin access) for the one
request that has it, the alternative of a request that gets all devices. Every other allocation lacks one of them, or
holds no less. So none is missed. What a request for all devices gets is no choice, and never left out.
Source: our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from haru.engine.dra.allocator.allocation import DoesNotFit, allocate
from haru.engine.dra.errors import AllocationError, GaveUp
from haru.engine.dra.model.claims import ALL, Claim, Request
from haru.engine.dra.model.model import DeviceId, NodeView
from haru.engine.framework.options import Options
from haru.engine.podgroup.search_budget import SearchBudget
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.overlay import Overlay
from haru.kube.meta import Obj


class _Choice(NamedTuple):
    """A device for one request of a claim, or for any (both names empty); without a device, an alternative for all."""

    claim: str
    request: str
    device: DeviceId | None


def allocation_alternatives(
    overlay: Overlay, options: Options, budget: SearchBudget, node: NodeInfo, claims: Sequence[Claim]
) -> Iterator[tuple[Obj, ...]]:
    """Yield distinct allocations of the claims on the node, in the overlay's state at the first call."""
    if not claims:
        yield ()
        return
    ask: Callable[..., object] = partial(
        allocate,
        overlay.snapshot.devices,
        allocated=overlay.allocated,
        node=NodeView(node.name, node.labels),
        features=options.features,
        new_share_id=options.new_share_id,
        step_budget=options.budgets.step_budget,
        scoring=options.profile.packing,
    )
    left_out: frozenset[_Choice] = frozenset()
    waiting, known, offered = [left_out], {left_out}, set[frozenset[_Choice]]()
    while waiting:
        left_out = waiting.pop(0)
        left = [_without(claim, left_out) for claim in claims] if left_out else claims
        if any(not request.asks for claim in left for request in claim.requests):
            continue
        results = _answer(partial(ask, claims=left), budget, is_first=not left_out)
        if results is None:
            continue
        choices = _choices(claims, results)
        if choices not in offered:
            offered.add(choices)
            yield results
        for choice in sorted(choices):
            fewer = left_out | {choice}
            if fewer not in known:
                known.add(fewer)
                waiting.append(fewer)


def _answer(ask: Callable[[], object], budget: SearchBudget, is_first: bool) -> tuple[Obj, ...] | None:
    """Return an allocation, None without one. The first may raise AllocationError."""
    budget.spend()
    try:
        answer = ask()
    except GaveUp:
        budget.unproven = True
        return None
    except AllocationError:
        if is_first:
            raise
        # Whatever is behind the error would be an error to the allocator, too: it is no alternative.
        return None
    return None if isinstance(answer, DoesNotFit) else tuple(getattr(answer, "results", ()))


def _choices(claims: Sequence[Claim], results: Sequence[Obj]) -> frozenset[_Choice]:
    """Return what other allocations may lack."""
    found = set()
    for claim, allocation in zip(claims, results, strict=True):
        modes = {ask.result_name: ask.mode for request in claim.requests for ask in request.asks}
        for result in (allocation.get("devices") or {}).get("results") or ():
            name, device = result["request"], DeviceId(result["driver"], result["pool"], result["device"])
            if modes[name] == ALL:
                if "/" in name:
                    found.add(_Choice(claim.name, name, None))
            elif result.get("shareID") or result.get("adminAccess"):
                found.add(_Choice(claim.name, name, device))
            else:
                found.add(_Choice("", "", device))
    return frozenset(found)


def _without(claim: Claim, left_out: frozenset[_Choice]) -> Claim:
    return claim._replace(requests=tuple([_request_without(claim.name, one, left_out) for one in claim.requests]))


def _request_without(claim: str, request: Request, left_out: frozenset[_Choice]) -> Request:
    asks = []
    for ask in request.asks:
        if _Choice(claim, ask.result_name, None) in left_out:
            continue
        names = ((claim, ask.result_name),) if ask.admin else (("", ""), (claim, ask.result_name))
        without = frozenset([one.device for one in left_out if one.device and one[:2] in names])
        asks.append(replace(ask, without=without))
    return request._replace(asks=tuple(asks))
