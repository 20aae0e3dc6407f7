"""The allocator's entry: claims of one pod, one node, all or nothing.

    Allocated      one AllocationResult per claim, in their order
    DoesNotFit     this node cannot serve the claims
    AllocationError (raised)   the attempt is to be aborted on every node
    GaveUp (raised)            no answer within the step budget

A pure function: the caller persists what it returns. Source: KEP-4381.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, repeat

from haru.engine.dra.allocated_state import AllocatedState
from haru.engine.dra.allocator.allocation_problem import AllocationProblem
from haru.engine.dra.allocator.device_search import DeviceSearch
from haru.engine.dra.allocator.node_devices import NodeDevices
from haru.engine.dra.allocator.search_state import Pick
from haru.engine.dra.diagnosis.reasons import DeviceRefusal
from haru.engine.dra.errors import AllocationError, GaveUp
from haru.engine.dra.model.claims import Claim, SubRequest, decode_claims
from haru.engine.dra.model.model import Features, NodeView
from haru.engine.dra.placement import only_on, result_selector
from haru.engine.dra.pools.inventory import DeviceSnapshot
from haru.engine.dra.pools.pools import PoolView
from haru.engine.dra.scoring.fragmentation_score import preferred
from haru.engine.equivalence.decision_cache import cached_property
from haru.kube.meta import Obj


def build(
    site: NodeDevices, claim: Claim, picks: Sequence[Pick], asks: Sequence[SubRequest], new_share_id: Callable[[], str]
) -> Obj:
    """The AllocationResult of one claim. `asks` holds the chosen alternative of each request, in order."""
    devices: Obj = {"results": [_result(site, pick, new_share_id) for pick in picks]}
    config = _class_config(asks)
    if claim.config:
        config = config + _claim_config(claim, asks)
    if config:
        devices["config"] = config
    allocation: Obj = {"devices": devices}
    try:
        selector = _selector(site, picks)
    except AllocationError as error:
        name = claim.name.rpartition("/")[2]
        raise AllocationError(f"create NodeSelector for claim {name}: {error}") from error
    if selector is not None:
        allocation["nodeSelector"] = selector
    return allocation


def _plain_allocation(site: NodeDevices, chosen: Sequence[tuple[str, int]]) -> Obj:
    """The allocation of devices of one node that says no more than which they are."""
    results: list[Obj] = []
    views, view_of, devices = site.views, site.view_of, site.devices
    for request, position in chosen:
        driver, pool = views[view_of[position]].key
        results.append({"request": request, "driver": driver, "pool": pool, "device": devices[position].name})
    return {"devices": {"results": results}, "nodeSelector": site.only_here}


def _selector(site: NodeDevices, picks: Sequence[Pick]) -> Obj | None:
    first = picks[0].position if picks else None
    if first is not None and site.devices[first].placement is None and site.slice_of(first).placement.node_name:
        return only_on(site.node)  # the first device decides, as nearly always
    return result_selector(((site.slice_of(p.position), site.devices[p.position]) for p in picks), site.node)


def _result(site: NodeDevices, pick: Pick, new_share_id: Callable[[], str]) -> Obj:
    ask, device = pick.plan.ask, site.devices[pick.position]
    driver, pool = site.views[site.view_of[pick.position]].key
    result: Obj = {"request": ask.result_name, "driver": driver, "pool": pool, "device": device.name}
    if ask.admin:
        result["adminAccess"] = True
    if ask.raw_tolerations:
        result["tolerations"] = list(ask.raw_tolerations)
    if device.binding is not None and site.features.DeviceBindingAndStatus:
        if device.binding.conditions:
            result["bindingConditions"] = list(device.binding.conditions)
        if device.binding.failure_conditions:
            result["bindingFailureConditions"] = list(device.binding.failure_conditions)
    if pick.consumed is not None:
        result["shareID"] = new_share_id()
        consumed = {name: text for (name, _), (_, text) in zip(device.shape.capacity, pick.consumed, strict=True)}
        if consumed:
            result["consumedCapacity"] = consumed
    return result


def _is_configured(ask: SubRequest) -> bool:
    return ask.device_class is not None and bool(ask.device_class.config)


def _class_config(asks: Sequence[SubRequest]) -> list[Obj]:
    entries: list[Obj] = []
    of_class: dict[str, list[str]] = {}
    for ask in asks:
        if ask.device_class is None or not ask.device_class.config:
            continue
        requests = of_class.get(ask.class_name)
        if requests is None:
            requests = of_class[ask.class_name] = []
            entries.extend({"source": "FromClass", "requests": requests, **c} for c in ask.device_class.config)
        requests.append(ask.result_name)
    return [{**entry, "requests": list(entry["requests"])} for entry in entries]


def _claim_config(claim: Claim, asks: Sequence[SubRequest]) -> list[Obj]:
    known = {request.name for request in claim.requests} | {ask.result_name for ask in asks}
    return [
        {"source": "FromClaim", **config}
        for config in claim.config
        if not config.get("requests") or known & set(config["requests"])
    ]


INVALID_POOLS = "invalid resource pools were encountered"
CANNOT_ALLOCATE = "cannot allocate all claims"
DEFAULT_BUDGET = 200_000


@dataclass(frozen=True, slots=True)
class Allocated:
    """The node serves the claims: `results[i]` is the `status.allocation` of the i-th claim."""

    results: tuple[Obj, ...]


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """The node cannot serve the claims. `reasons` say in short why; `explain_requests` says it in full."""

    reasons: tuple[DeviceRefusal, ...]

    @property
    def message(self) -> str:
        """The first reason as text."""
        return self.reasons[0].message if self.reasons else CANNOT_ALLOCATE


TAKEN = DoesNotFit((DeviceRefusal("DevicesUnavailable", CANNOT_ALLOCATE),))

Allocation = Allocated | DoesNotFit


@dataclass(eq=False)
class Solution:
    """What was chosen, by position: for each claim its picks and the alternatives that they are for. Never changed."""

    claims: tuple[Claim, ...]
    picks: list[list[Pick]]
    asks: list[list[SubRequest]]

    @cached_property
    def _plain(self) -> list[list[tuple[str, int]]] | None:
        """For each claim its requests and the positions of their devices; None if there is more to its allocation."""
        asks = chain.from_iterable(self.asks)
        if any(ask.admin or ask.raw_tolerations or _is_configured(ask) for ask in asks):
            return None
        if any(claim.config for claim in self.claims) or not all(self.picks):
            return None
        if any(pick.consumed is not None for pick in chain.from_iterable(self.picks)):
            return None
        return [[(pick.plan.ask.result_name, pick.position) for pick in own] for own in self.picks]

    def results_alike(self, site: NodeDevices, new_share_id: Callable[[], str]) -> tuple[Obj, ...]:
        """The same as `results`; cheaper for one node after the other."""
        if self._plain is None or not site.plain:
            return self.results(site, new_share_id)
        return tuple(map(_plain_allocation, repeat(site), self._plain))

    def results(self, site: NodeDevices, new_share_id: Callable[[], str]) -> tuple[Obj, ...]:
        """The allocations of the claims, on the node that was asked or one like it."""
        return tuple(
            [build(site, *chosen, new_share_id) for chosen in zip(self.claims, self.picks, self.asks, strict=True)]
        )


def allocate(
    snapshot: DeviceSnapshot,
    allocated: AllocatedState,
    node: NodeView,
    claims: Sequence[Obj] | Sequence[Claim],
    features: Features,
    *,
    new_share_id: Callable[[], str],
    step_budget: int = DEFAULT_BUDGET,
    expired: Callable[[], bool] | None = None,
    scoring: bool = False,
) -> Allocation:
    """Find devices on the node for all claims together: the first solution in the order of Kubernetes 1.36.

    With `scoring` the first one in the order of `preference`, which keeps whole cards whole; it exists exactly if the
    other does.

    Raises AllocationError when the attempt must be aborted, GaveUp when `step_budget` steps did not suffice or
    `expired` said that it is time. Claims may be given decoded (`decode_claims`) when many nodes are asked about the
    same ones.
    """
    wanted = decoded(claims, snapshot, features)
    if not wanted:
        return Allocated(())
    views = gather(snapshot, node, features)
    problem = AllocationProblem(views, allocated, node, wanted, features)
    answer = solve(problem, step_budget, expired, scoring=scoring)
    return answer if isinstance(answer, DoesNotFit) else Allocated(answer.results(problem, new_share_id))


def gather(snapshot: DeviceSnapshot, node: NodeView, features: Features) -> list[PoolView]:
    """The pools that the node sees, in their order."""
    try:
        return snapshot.views(node, features.PartitionableDevices)
    except AllocationError as error:
        raise AllocationError(f"gather pool information: {error}") from error


def solve(
    problem: AllocationProblem, step_budget: int, expired: Callable[[], bool] | None = None, *, scoring: bool = False
) -> Solution | DoesNotFit:
    """The first solution on a problem; with `scoring` in the order of `preference`, if that has an answer.

    A problem is solved once.
    """
    try:
        return _solve(problem, step_budget, expired, scoring)
    finally:
        problem.stop_looking()


def _solve(
    problem: AllocationProblem, step_budget: int, expired: Callable[[], bool] | None, scoring: bool
) -> Solution | DoesNotFit:
    if scoring and not problem.hopeless:
        found = _solve_preferred(problem, step_budget, expired)
        if found is not None:
            return found
    search = None if problem.hopeless else DeviceSearch(problem, step_budget, expired)
    picks = None if search is None else search.solve()
    if search is None or picks is None:
        invalid = tuple([str(view.key) for view in problem.all_views if view.status == "invalid"])
        return DoesNotFit((DeviceRefusal("PoolInvalid", INVALID_POOLS, {"pools": invalid}),)) if invalid else TAKEN
    asks = [
        [request.asks[chosen.get(number, 0)] for number, request in enumerate(claim.requests)]
        for claim, chosen in zip(problem.claims, search.chosen, strict=True)
    ]
    return Solution(tuple(problem.claims), picks, asks)


def _solve_preferred(
    problem: AllocationProblem, step_budget: int, expired: Callable[[], bool] | None
) -> Solution | DoesNotFit | None:
    """The first solution in the order of preference; None where the usual order is to decide.

    The search is exact, so in either order there is a solution or there is none. Only where this one is not found
    within the budget, or its devices cannot be written down as one allocation, the usual order may know better.
    """
    order = preferred(problem)
    if order is None:
        return None
    try:
        found = solve(problem.in_order(order), step_budget, expired)
        if isinstance(found, DoesNotFit):
            return found
        picks = [[pick._replace(position=order[pick.position]) for pick in own] for own in found.picks]
        found = replace(found, picks=picks)
        if not all(view.confined for view in problem.views):
            found.results(problem, str)
    except (AllocationError, GaveUp):
        return None
    return found


def decoded(claims: Sequence[Obj] | Sequence[Claim], snapshot: DeviceSnapshot, features: Features) -> tuple[Claim, ...]:
    """The claims in decoded form, whichever way they were given."""
    if claims and isinstance(claims[0], Claim):
        return tuple(claims)  # type: ignore[arg-type]
    return decode_claims(claims, snapshot.classes, features)  # type: ignore[arg-type]
