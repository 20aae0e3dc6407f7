"""The score of a node for prioritized requests (KEP-4816): the earlier the chosen alternative, the better."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from haru.engine.dra.model.claims import Claim, SubRequest
from haru.engine.dra.model.model import Obj

_ALTERNATIVES = 8


def prioritized_score(results: Iterable[Obj], claims: Iterable[Obj]) -> int:
    """The sum, over requests with alternatives, of 8 less the index of the chosen one.

    `results` are allocations and `claims` the claims that they belong to, pairwise; a pod that mixes new claims with
    allocated ones passes each pair that the node's answer contains.
    """
    return sum(_score(result, claim) for result, claim in zip(results, claims, strict=True))


def _score(allocation: Obj, claim: Obj) -> int:
    requests = ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ()
    order: Mapping[str, int] = {
        f"{request.get('name')}/{alternative.get('name')}": index
        for request in requests
        for index, alternative in enumerate(request.get("firstAvailable") or ())
    }
    chosen = {result.get("request") for result in (allocation.get("devices") or {}).get("results") or ()}
    return sum(_ALTERNATIVES - order[name] for name in chosen if name in order)


def chosen_score(claims: Iterable[Claim], asks: Iterable[Sequence[SubRequest]]) -> int:
    """The same score, of claims as decoded and the alternative that was chosen for each of their requests."""
    return sum(
        _ALTERNATIVES - next(index for index, ask in enumerate(request.asks) if ask is chosen)
        for claim, of_claim in zip(claims, asks, strict=True)
        for request, chosen in zip(claim.requests, of_claim, strict=True)
        if request.prioritized
    )
