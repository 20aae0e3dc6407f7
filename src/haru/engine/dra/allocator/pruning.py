"""Cheap necessary conditions: counts which show that the rest of the walk cannot be had, without walking it.

For the current request from its place on, and for the requests after it:

    what is taken in any case can be taken, and the rest is had beside it
    enough free devices, group by group as far as counters let a group give them out
    enough for all of them at once, where they compete
    of one value, where devices must match; of enough values, where they must differ
    counters of one name, or of names that differ in a number only, summed over all groups as far as devices in question
    draw on them, suffice for the least that all requests take together

A request that may end the attempt with an error (a faulty selector, all devices under a constraint) must be reached
if the walk reaches it, so nothing is said about it or about what follows it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from haru.engine.dra.allocator.allocation_problem import MAX_RESULTS, AllocationProblem
from haru.engine.dra.allocator.candidates import SubrequestPlan
from haru.engine.dra.allocator.constraints import Values
from haru.engine.dra.allocator.hall_check import HallCheck
from haru.engine.dra.allocator.joint_demands import (
    Allowed,
    ConflictingMatches,
    ConstraintDomain,
    CounterGroups,
    Option,
    Value,
)
from haru.engine.dra.allocator.max_partitions import max_partitions
from haru.engine.dra.allocator.search_state import SearchPlace, SearchState, Undo

_MAX_RIVALRY = 6000
"""Devices times demands up to which rivals are matched against each other."""

_MOST_KNOWN = 20_000

Request = tuple[SubrequestPlan, ...]
OpenRequest = tuple[int, Request, int, int]
"""A claim's number, the plans of a request, how many devices of it are taken, and from where on the next is sought."""


class Remainder(NamedTuple):
    """What is still to be taken for a plan: `done` devices are, and `free` are those that it could take."""

    claim: int
    plan: SubrequestPlan
    done: int
    free: list[int]


class PruningBounds:
    """Answers `hopeless` for a place of the walk, given what has been taken."""

    def __init__(self, problem: AllocationProblem) -> None:
        self._problem = problem
        self._values: dict[tuple[int, str], Values | None] = {}
        self._plain = not (problem.sharing or problem.counting)
        """Whether a device is free unless it is taken."""
        self._candidates_of: dict[tuple[int, int], int | None] = {}
        self._numbers: dict[tuple[int, ...], int] = {}
        self._taken: dict[int, dict[str, int]] = {}
        self._cards: dict[int, CounterGroups] = {}
        self._capacities: dict[tuple[int, tuple[int, ...], tuple[int, ...]], int] = {}
        every = [tuple(plans) for claim in problem.plans for plans in claim]
        self._barriers = frozenset([plan.number for plans in every for plan in plans if _barrier(plan)])
        """The numbers of plans about which nothing is said."""
        self._certain = any(_is_certain(plans) for plans in every)
        """Whether any request takes the same devices whatever else is chosen."""
        self._rest = _rests(problem, self._barriers)
        self._costs = [
            [_size(plans) + sum(_size(later[1]) for later in rest) for plans, rest in zip(claim, rests, strict=True)]
            for claim, rests in zip(problem.plans, self._rest, strict=True)
        ]
        self._applicable = not self._barriers or not _may_exceed_limit(problem)

    def cost(self, place: SearchPlace) -> int:
        """Return how many devices `hopeless` looks at there."""
        return self._costs[place.claim][place.request]

    def hopeless(self, ledger: SearchState, place: SearchPlace) -> bool:
        """Tell whether a count proves that nothing can come of this place; False says nothing."""
        claim, request, plan, done, start = place
        plans: Request = (plan,) if plan is not None else tuple(self._problem.plans[claim][request])
        if not self._applicable or (self._barriers and not self._barriers.isdisjoint([p.number for p in plans])):
            return False
        demands = [(claim, plans, done, start), *self._rest[claim][request]]
        if not self._certain:
            return self._contradictory(ledger, place, demands)
        certain: list[Undo] = []
        try:
            return not self._take_certain(ledger, demands, certain) or self._contradictory(
                ledger, place, [demand for demand in demands if not _is_certain(demand[1])]
            )
        finally:
            for undo in reversed(certain):
                ledger.take_back(undo)

    def _take_certain(self, ledger: SearchState, demands: Sequence[OpenRequest], taken: list[Undo]) -> bool:
        """Take what the rest of the walk takes in any case; False if that cannot be had."""
        for claim, plans, done, _ in demands:
            if not _is_certain(plans):
                continue
            plan = plans[0]
            for position in plan.candidates[done:]:
                undo = None if ledger.in_use(claim, plan, position) else ledger.pick(claim, plan, position)
                if undo is None:
                    return False
                taken.append(undo)
        return True

    def _contradictory(self, ledger: SearchState, place: SearchPlace, demands: Sequence[OpenRequest]) -> bool:
        """Tell whether these demands cannot be met together."""
        wanted: list[tuple[int, list[int]]] = []
        known: dict[tuple[int, int], list[int]] = {}
        others: Sequence[OpenRequest] = () if self._plain else demands
        for demand in demands if self._plain else ():
            number, alternatives, have, begin = demand
            shared = self._shared_candidates(alternatives)
            if shared is None:
                others = [*others, demand]
                continue
            # Alternatives that differ in nothing but their number, beside others like them: they are most.
            free = known.get((shared, begin))
            if free is None:
                free = known[shared, begin] = self._free_of(ledger, number, alternatives[0], have, begin)
            needed = min([p.needed for p in alternatives]) - have
            if len(free) < needed:
                return True
            wanted.append((needed, free))
        if others and self._contradict_each_other(ledger, place, others, wanted):
            return True
        # Within a request the check above suffices; where a request begins, it is looked at who else wants the same.
        return place.done == 0 and len(wanted) > 1 and not self._rivals_agree(ledger, wanted)

    def _contradict_each_other(
        self,
        ledger: SearchState,
        place: SearchPlace,
        demands: Sequence[OpenRequest],
        wanted: list[tuple[int, list[int]]],
    ) -> bool:
        """Tell whether demands of any sort cannot be met; add what each wants for itself alone to `wanted`."""
        least: Counter[str] = Counter()
        common = ConstraintDomain()
        together = ConflictingMatches()
        usable: set[int] = set()
        for number, alternatives, have, begin in demands:
            offers = [self._free_of(ledger, number, p, have, begin) for p in alternatives]
            rests = (Remainder(number, p, have, free) for p, free in zip(alternatives, offers, strict=True))
            options = [self._option(ledger, rest) for rest in rests]
            feasible = [option for option in options if option is not None]
            if not feasible:
                return True
            common.add(number, [option.allowed for option in feasible])
            found = [option.least for option in feasible]
            if self._exclusive(alternatives):
                if number != place.claim or not ledger.picks[number]:
                    self._note_matches(together, number, alternatives, offers)
                needed = min(p.needed - have for p in alternatives)
                wanted.append((needed, list(dict.fromkeys(p for free in offers for p in free))))
            for name in set.intersection(*(set(option) for option in found)):
                least[name] += min(option[name] for option in found)
            for free in offers:
                usable.update(free)
        if (least and not self._counters_suffice(ledger, least, usable)) or common.contradictory():
            return True
        return not all(self._each_has_a_value(ledger, *found) for found in together.crowded())

    def _shared_candidates(self, plans: Request) -> int | None:
        """Return a number for the candidates of a request if all alternatives take any of the same; None if not."""
        key = (plans[0].number, len(plans))
        if key not in self._candidates_of:
            sets = {tuple(p.candidates) for p in plans}
            free = not any(p.takes_all or p.constraints or p.ask.admin for p in plans)
            same = free and len(sets) == 1
            self._candidates_of[key] = self._numbers.setdefault(sets.pop(), len(self._numbers)) if same else None
        return self._candidates_of[key]

    def _exclusive(self, plans: Request) -> bool:
        """Whether no device that a request takes can be taken by another one."""
        if self._plain:
            return not any(p.ask.admin for p in plans)
        return not any(p.ask.admin or any(map(self._problem.shareable, p.candidates)) for p in plans)

    def _rivals_agree(self, ledger: SearchState, wanted: list[tuple[int, list[int]]]) -> bool:
        positions = {p for _, found in wanted for p in found}
        if len(positions) * sum(needed for needed, _ in wanted) > _MAX_RIVALRY:
            return True
        problem = self._problem
        clusters: dict[tuple[int, int], int] = {}
        members: dict[int, list[int]] = {}
        cluster_of: dict[int, int] = {}
        for position in sorted(positions):
            charge = problem.charge(position)
            if charge:
                key = (problem.view_of[position], self._cards_of(problem.view_of[position]).of[position])
                number = cluster_of[position] = clusters.setdefault(key, len(clusters))
                members.setdefault(number, []).append(position)
        limits = {number: self._capacity(ledger, problem.view_of[found[0]], found) for number, found in members.items()}
        return HallCheck(cluster_of, limits).satisfiable(wanted)

    def _note_matches(
        self, together: ConflictingMatches, claim: int, plans: Request, offers: Sequence[Iterable[int]]
    ) -> None:
        """What a request wants of one value, whichever alternative is chosen."""
        if any(plan.takes_all for plan in plans):
            return
        constraints = self._problem.claims[claim].constraints
        need = min(plan.needed for plan in plans)
        for index in set.intersection(*(set(plan.constraints) for plan in plans)):
            if constraints[index].match:
                free = (position for offer in offers for position in offer)
                together.want(claim, index, constraints[index].attribute, need, free)

    def _each_has_a_value(self, ledger: SearchState, attribute: str, many: int, need: int, free: list[int]) -> bool:
        """Whether the devices of each value, `need` at a time, are enough for as many constraints."""
        by_value: dict[Value, list[int]] = {}
        for position in free:
            for value in self._of(position, attribute):
                by_value.setdefault(value, []).append(position)
        served = 0
        for found in by_value.values():
            groups, plain = self._charged(found)
            served += (plain + self._given_out(ledger, groups)) // need
            if served >= many:
                return True
        return False

    def _option(self, ledger: SearchState, rest: Remainder) -> Option | None:
        """Return what the rest of a plan asks for on its own; None if it cannot be had."""
        plan, free, need = rest.plan, rest.free, rest.plan.needed - rest.done
        if plan.takes_all:
            return Option({}, {}) if plan.candidates and len(free) == len(plan.candidates) - rest.done else None
        if len(free) < need:
            return None
        allowed = self._allowed(rest.claim, plan, free, need) if plan.constraints else {}
        least = self._least_taken(ledger, free, need) if allowed is not None else None
        return Option(least, allowed) if least is not None and allowed is not None else None

    def _free_of(self, ledger: SearchState, claim: int, plan: SubrequestPlan, done: int, start: int) -> list[int]:
        """The devices that a plan could still take, each for itself."""
        if plan.takes_all:
            return [p for p in plan.candidates[done:] if not ledger.in_use(claim, plan, p)]
        candidates = plan.candidates
        if start:
            candidates = candidates[bisect_left(candidates, start) :]
        if self._plain and not plan.ask.admin:
            owners, allocated = ledger.owners, self._problem.allocated
            free = [p for p in candidates if not owners.get(p) and p not in allocated]
            return [p for p in free if ledger.constrained(claim, plan, p) is not None] if plan.constraints else free
        return [p for p in candidates if self._free(ledger, claim, plan, p)]

    def _free(self, ledger: SearchState, claim: int, plan: SubrequestPlan, position: int) -> bool:
        return (
            not ledger.in_use(claim, plan, position)
            and ledger.share_fits(plan, position)
            and (position in ledger.used or ledger.counters_fit(position))
            and (not plan.constraints or ledger.constrained(claim, plan, position) is not None)
        )

    def _allowed(self, claim: int, plan: SubrequestPlan, free: list[int], need: int) -> Allowed | None:
        """The values that each constraint on a plan leaves; None if one of them leaves too few."""
        constraints = self._problem.claims[claim].constraints
        allowed: Allowed = {}
        for index in plan.constraints:
            if not constraints[index].match:
                values = set(self._all_values(free, constraints[index].attribute))
                if len(values) < need:
                    return None
                allowed[index] = (values, need)
        matched = [i for i in plan.constraints if constraints[i].match]
        if not matched:
            return allowed
        tuples: Counter[tuple[Value, ...]] = Counter()
        for position in free:
            tuples.update(product(*(self._of(position, constraints[i].attribute) for i in matched)))
        possible = [t for t, count in tuples.items() if count >= need]
        for place, index in enumerate(matched):
            allowed[index] = ({t[place] for t in possible}, 0)
        return allowed if possible else None

    def _least_taken(self, ledger: SearchState, free: list[int], need: int) -> dict[str, int] | None:
        """What `need` of these devices take at least of each counter name; None if counters cannot give that many."""
        if self._plain:
            return {}
        groups, plain = self._charged(free)
        if plain >= need:
            return {}
        if plain + self._given_out(ledger, groups) < need:
            return None
        least: dict[str, int] = {}
        for number, position in enumerate(p for found in groups.values() for p in found):
            taken = self._by_name(position)
            if number == 0:
                least = dict(taken)
            else:
                least = {name: min(least[name], taken[name]) for name in least.keys() & taken.keys()}
        return {name: amount * (need - plain) for name, amount in least.items() if amount > 0}

    def _given_out(self, ledger: SearchState, groups: Mapping[int, list[int]]) -> int:
        """How many devices, by view, counters can give out at most."""
        return sum(self._capacity(ledger, view, found) for view, found in groups.items())

    def _charged(self, free: list[int]) -> tuple[dict[int, list[int]], int]:
        """The devices that draw on counters, by view; and how many do not."""
        problem = self._problem
        groups: dict[int, list[int]] = {}
        plain = 0
        for position in free:
            # Shares of one device are charged once, so a shareable device may cost nothing more.
            if problem.charge(position) and not problem.shareable(position):
                groups.setdefault(problem.view_of[position], []).append(position)
            else:
                plain += 1
        return groups, plain

    def _capacity(self, ledger: SearchState, view: int, free: list[int]) -> int:
        """How many of these devices of one view its counters can give out at most."""
        left, cards = ledger.left[view], self._cards_of(view)
        members: dict[int, list[int]] = {}
        for position in free:
            members.setdefault(cards.of[position], []).append(position)
        total = 0
        for card, found in members.items():
            key = (view, tuple(found), tuple([left[counter] for counter in cards.counters[card]]))
            most = self._capacities.get(key)
            if most is None:
                if len(self._capacities) >= _MOST_KNOWN:
                    self._capacities.clear()
                most = self._capacities[key] = self._most(found, left)
            total += most
        return total

    def _cards_of(self, view: int) -> CounterGroups:
        found = self._cards.get(view)
        if found is None:
            here = [position for position, number in enumerate(self._problem.view_of) if number == view]
            found = self._cards[view] = CounterGroups({position: self._problem.charge(position) for position in here})
        return found

    def _most(self, found: list[int], left: Sequence[int]) -> int:
        """How many devices of one card can be given out together, or at least not more than so many."""
        if len(found) == 1:
            return 1
        exact = max_partitions([self._problem.charge(p) for p in found], left)
        if exact is not None:
            return exact
        members: dict[int, list[dict[int, int]]] = {}
        for position in found:
            charge = self._problem.charge(position)
            members.setdefault(charge[0][0], []).append(dict(charge))
        total = 0
        for charges in members.values():
            common = set.intersection(*(set(charge) for charge in charges))
            limits = [left[c] // least for c in common if (least := min(charge[c] for charge in charges)) > 0]
            total += min([len(charges), *limits])
        return total

    def _by_name(self, position: int) -> dict[str, int]:
        """What a device takes of counters of one name, and of all whose names differ in their number only."""
        taken = self._taken.get(position)
        if taken is None:
            names = self._problem.views[self._problem.view_of[position]].counter_names
            taken = self._taken[position] = {}
            for counter, amount in self._problem.charge(position):
                for name in _spellings(names[counter][1]):
                    taken[name] = taken.get(name, 0) + amount
        return taken

    def _counters_suffice(self, ledger: SearchState, least: Counter[str], usable: Iterable[int]) -> bool:
        """Whether the counters that any of these devices draws on have enough left together."""
        problem = self._problem
        total: Counter[str] = Counter()
        counters = {(problem.view_of[p], counter) for p in usable for counter, _ in problem.charge(p)}
        for view, counter in counters:
            left = ledger.left[view][counter]
            if left > 0:
                for name in _spellings(problem.views[view].counter_names[counter][1]):
                    total[name] += left
        return all(total[name] >= amount for name, amount in least.items())

    def _all_values(self, positions: Iterable[int], attribute: str) -> Iterator[Value]:
        for position in positions:
            yield from self._of(position, attribute)

    def _of(self, position: int, attribute: str) -> list[Value]:
        key = (position, attribute)
        if key not in self._values:
            self._values[key] = self._problem.constraint_values(position, attribute)
        values = self._values[key]
        return [(values[0], value) for value in values[1]] if values is not None else []


@lru_cache(maxsize=1024)
def _spellings(name: str) -> tuple[str, ...]:
    """A counter's name, and that of its family: memory-slice-3 is one of memory-slice-*."""
    family = name.rstrip("0123456789")
    return (name,) if family == name else (name, f"{family}*")


def _size(plans: Sequence[SubrequestPlan]) -> int:
    return sum(len(plan.candidates) for plan in plans)


def _barrier(plan: SubrequestPlan) -> bool:
    return plan.faulty or (plan.takes_all and bool(plan.constraints))


def _is_certain(plans: Request) -> bool:
    """Whether a request takes the same devices, whatever else is chosen."""
    return len(plans) == 1 and plans[0].takes_all and not plans[0].ask.admin


def _rests(problem: AllocationProblem, barriers: frozenset[int]) -> list[list[list[OpenRequest]]]:
    """Per claim and request, the requests that follow it up to the first that may end in an error."""
    rests: list[list[list[OpenRequest]]] = []
    following: list[OpenRequest] = []
    for claim in range(len(problem.plans) - 1, -1, -1):
        found: list[list[OpenRequest]] = []
        for plans in reversed(problem.plans[claim]):
            found.append(following)
            if any(p.number in barriers for p in plans):
                following = []
            else:
                following = [(claim, tuple(plans), 0, 0), *following]
        rests.append(found[::-1])
    return rests[::-1]


def _may_exceed_limit(problem: AllocationProblem) -> bool:
    return any(sum(max(p.needed for p in plans) for plans in claim) > MAX_RESULTS for claim in problem.plans)
