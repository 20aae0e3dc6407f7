"""Preemption of whole workloads: what has to go so that a group finds room, devices included.

Decided once per group over the whole cluster, and only if the group does not fit as things are. First all units of a
lower priority are thought away: if the quorum does not fit even then, nobody is evicted. Otherwise units are spared in
order of importance as long as as many members fit; what is not spared is evicted, and the members are nominated to
places and devices that are free once that is done. Victims' devices count as free in all of this (`Clearing`).
Source: KEP-5710, KEP-268, docs/adr/0004; 1.36 sees neither devices nor topology here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from haru.engine.clearing import Clearing, left_to_groups, without_orphans
from haru.engine.cluster import Snapshot
from haru.engine.decision import Decision, Reason
from haru.engine.devices import AllocationError
from haru.engine.groups import result
from haru.engine.groups.budget import OutOfBudgetError
from haru.engine.groups.counting import Shelf, shelf_for
from haru.engine.groups.errors import UnansweredError
from haru.engine.groups.fitting import Fitting, Preemptor
from haru.engine.groups.peeling import Peeling
from haru.engine.groups.promises import leaving, own_promises
from haru.engine.groups.protection import candidates
from haru.engine.groups.quorum import TOO_FEW, min_count
from haru.engine.groups.sparing import spare, spare_one_by_one
from haru.engine.groups.stands import Stands
from haru.engine.groups.tally import Tally, tally_for
from haru.engine.groups.units import SparingOrder, Unit, sparing_order, units_below
from haru.engine.nominations import evicted_pods

NEVER = "not eligible due to preemptionPolicy=Never."
NO_VICTIMS = "No preemption victims found for incoming preemptor"
WAITING_FOR_ROOM = "pod group is waiting for preemption to complete"


@dataclass(frozen=True, slots=True)
class Victims:
    """What has to go, most important first, so that `fit` members have places, on nodes of `places`.

    `violations` of the units violate a disruption budget.
    """

    units: tuple[Unit, ...]
    fit: int
    places: Sequence[Sequence[str]]
    violations: int = 0


def preempt_for_group(snapshot: Snapshot, refused: Decision, preemptor: Preemptor) -> Decision:
    """What becomes of a group that does not fit: nominated, with evictions, or refused as before and told why."""
    if preemptor.key is None or quorum_is_met(snapshot, preemptor):
        # Extras wait: what their group needs it has.
        return refused
    if _never(snapshot, preemptor):
        return result.with_note(refused, NEVER)
    base = once_room_is_made(snapshot)
    try:
        if is_making_room(snapshot) and own_promises(snapshot, preemptor.members):
            # It was promised room that is being made: as long as that will do, nobody else has to go.
            kept = nominated(base, refused, preemptor, Victims((), preemptor.needed, preemptor.places))
            if kept is not None:
                return kept
        if too_few_stay(base, preemptor):
            return result.with_note(refused, TOO_FEW)
        units = candidates(base, preemptor)
        if not units and not counts_on_going(snapshot, preemptor):
            return result.with_note(refused, NO_VICTIMS)
        victims = Search(base, preemptor).victims(units, refused=base is snapshot)
        return (nominated(base, refused, preemptor, victims) if victims is not None else None) or refused
    except UnansweredError as error:
        return result.failed(preemptor.key, preemptor.members, error.reason, snapshot.version)


def once_room_is_made(snapshot: Snapshot) -> Snapshot:
    """The cluster that preemption starts from: who is going is gone, promised places are taken."""
    base = snapshot if snapshot.after is None else replace(snapshot.after, after=None)
    going = list(base.leaving.values())
    if going:
        base = Clearing(left_to_groups(base, going), [going]).settled()
    return without_orphans(base, snapshot.orphaned)


def is_making_room(snapshot: Snapshot) -> bool:
    """Whether pods leave their nodes, for whatever reason, or claims that nobody uses any more are not yet free."""
    return bool(leaving(snapshot) or snapshot.leaving or snapshot.orphaned)


def counts_on_going(snapshot: Snapshot, preemptor: Preemptor) -> bool:
    """Whether any less important pod is going already: the preemptor may wait for its room without evicting anybody."""
    going = [*leaving(snapshot), *snapshot.leaving.values()]
    return bool(units_below(snapshot, preemptor.priority, going, groups=preemptor.options.groups))


def too_few_stay(base: Snapshot, preemptor: Preemptor) -> bool:
    """Whether the group lacks members once those are gone that are going: it could not start, whatever room is made."""
    minimum = min_count(preemptor.group) if preemptor.options.gang_scheduling else None
    return minimum is not None and preemptor.key is not None and base.group_state(preemptor.key).count < minimum


def quorum_is_met(snapshot: Snapshot, preemptor: Preemptor) -> bool:
    """Whether the group runs already as far as it has to."""
    if preemptor.key is None:
        return False
    minimum = min_count(preemptor.group) if preemptor.options.gang_scheduling else None
    return snapshot.group_state(preemptor.key).scheduled_count >= (minimum or 1)


class Search:
    """The search for victims of one preemptor, among one set of candidates after the other."""

    def __init__(self, base: Snapshot, preemptor: Preemptor) -> None:
        self._base = base
        self._preemptor = preemptor
        members, group, options = preemptor.members, preemptor.group, preemptor.options
        # Whoever goes for those that the preemptor has to respect is gone by now; these go for those that it need not.
        self._evicted = evicted_pods(base.nominations.values())
        self._stands = Stands.of(base, partitionable=options.features.PartitionableDevices)
        self._shelf = shelf_for(base, members, group, options, base.node_names)
        self._tally = tally_for(base, options, self._shelf.classes) if self._shelf is not None else None

    def victims(
        self, units: Sequence[Unit], *, refused: bool, places: Sequence[Sequence[str]] | None = None
    ) -> Victims | None:
        """What has to go of some candidates, given by importance; None if not even all of them make enough room.

        Raises UnansweredError.
        `refused` says that the preemptor is known not to fit with all of them in place; `places` limit where it goes.
        """
        order = sparing_order(self._base, units, self._evicted)
        return self.least(order, lambda unit: unit.priority, refused=refused, places=places)

    def least(
        self,
        order: SparingOrder,
        level: Callable[[Unit], Hashable],
        *,
        refused: bool,
        places: Sequence[Sequence[str]] | None = None,
        enough: int | None = None,
    ) -> Victims | None:
        """The same for candidates in any order of sparing; `enough`: how many members are to fit, at first all that do.

        `level` is the same for neighbours that are alike in what the order is about.
        """
        try:
            if self._shelf is not None and self._tally is not None:
                return self._peeled(order, self._shelf, self._tally, places, enough)
        except OutOfBudgetError:
            pass  # Step by step it may be decided all the same.
        except AllocationError as error:
            raise UnansweredError(Reason("SelectorError", str(error))) from error
        preemptor = self._preemptor if places is None else replace(self._preemptor, places=places)
        ground = _Ground(self._base, preemptor, order.units, self._shelf, enough)
        if ground.fit < preemptor.needed:
            return None
        numbers = range(len(order.units))
        if preemptor.needs_company:
            victims = spare_one_by_one(numbers, ground)
        else:
            victims = spare(numbers, ground, lambda number: level(order.units[number]), refused=refused)
        return _victims(order, victims, ground.fit, places or ground.places())

    def _peeled(
        self,
        order: SparingOrder,
        shelf: Shelf,
        tally: Tally,
        places: Sequence[Sequence[str]] | None,
        enough: int | None,
    ) -> Victims | None:
        """The same for members that are all alike, where nodes can be counted apart."""
        preemptor = self._preemptor
        peeling = Peeling(self._base, order.units, places or preemptor.places, self._stands, tally, shelf)
        found = peeling.victims(len(preemptor.members) if enough is None else enough, preemptor.needed)
        return _victims(order, *found, places or peeling.useful()) if found is not None else None


def _victims(order: SparingOrder, numbers: Sequence[int], fit: int, places: Sequence[Sequence[str]]) -> Victims:
    going = sorted([order.units[number] for number in numbers], key=attrgetter("rank"))
    violations = sum(number < order.guarded for number in numbers) if order.guarded else 0
    return Victims(tuple(going), fit, places, violations)


class _Ground:
    """The cluster without the candidates, on which they are put back as far as the preemptor still fits."""

    def __init__(
        self, base: Snapshot, preemptor: Preemptor, units: Sequence[Unit], shelf: Shelf | None, enough: int | None
    ) -> None:
        self._clearing = Clearing(base, [unit.pods for unit in units])
        self._places = preemptor.places
        self._shelf = shelf
        self._fitting = Fitting(preemptor)
        self._limit = self._questions = preemptor.options.preemption_budget
        if shelf is not None:
            shelf.stand_on(self._clearing)
        self.fit = self._most(len(preemptor.members) if enough is None else enough)

    def places(self) -> Sequence[Sequence[str]]:
        """Where the preemptor may go now; nodes that take nobody may be left out."""
        if self._shelf is None:
            return self._places
        return [self._shelf.useful(nodes) for nodes in self._places]

    def fits_with(self, units: Sequence[int]) -> bool:
        """Whether as many members as at first fit with these units in place; they are gone again afterwards."""
        if self._questions <= 0:
            raise UnansweredError(_too_many_questions(self._limit))
        self._questions -= 1
        self._clearing.put_back(units)
        if self._shelf is None:
            fits = self._fitting.fits(self._clearing.snapshot(), self.fit)
        else:
            fits = self._most(self.fit, self._clearing.nodes_of(units)) >= self.fit
        self._clearing.take(units)
        return fits

    def keep(self, units: Sequence[int]) -> None:
        """Put units back for good."""
        self._clearing.put_back(units)
        if self._shelf is not None:
            self._shelf.keep(self._clearing.nodes_of(units))

    def _most(self, enough: int, touched: Collection[str] = ()) -> int:
        if self._shelf is None:
            return min(enough, self._fitting.most(self._clearing.snapshot()))
        best = 0
        for nodes in self._places:
            best = max(best, self._shelf.most(nodes, enough, touched))
            if best >= enough:
                break
        return min(best, enough)


def _too_many_questions(limit: int) -> Reason:
    return Reason("GaveUp", f"gave up after {limit} questions whether less has to be evicted", {"budget": limit})


def _never(snapshot: Snapshot, preemptor: Preemptor) -> bool:
    """Whether any pending member forbids to evict others."""
    pods = list(preemptor.members)
    if preemptor.key is not None:
        waiting = (snapshot.pods[path] for path in snapshot.group_state(preemptor.key).unscheduled)
        pods += [pod for pod in waiting if not pod.deleting]
    return any(pod.spec.get("preemptionPolicy") == "Never" for pod in pods)


def nominated(base: Snapshot, refused: Decision, preemptor: Preemptor, victims: Victims) -> Decision | None:
    """The members in their places once the victims are gone, or None if there are none. Raises UnansweredError."""
    cleared = Clearing(base, [unit.pods for unit in victims.units]).settled()
    attempt = Fitting(replace(preemptor, places=victims.places)).place(cleared, victims.fit)
    if attempt is None:
        return None
    evictions = tuple(eviction for unit in victims.units for eviction in unit.evictions())
    message = WAITING_FOR_ROOM if preemptor.key is not None else refused.message
    return result.nominated(refused, attempt.outcomes, evictions, message)
