"""Compute the earliest start of waiting pods, and the places to reserve for them until then.

A dry run removes all running pods that may end, and puts them back, those with the latest end first, as long as the
waiting pods still fit: the rest must end before these can start, and by the known run-time limits no other choice of
places allows an earlier start. It is the search of preemption (`Search.least`), in the order of ends, not importance.
Source: EASY backfilling; docs/adr/0007.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from haru.engine.backfill.reservation import BackfillReservation
from haru.engine.framework.options import Options
from haru.engine.podgroup.decision_builder import placed
from haru.engine.podgroup.gang_pre_enqueue import gang_gate_reason
from haru.engine.podgroup.placed import Placed
from haru.engine.podgroup.placement_attempt import PlacementAttempt
from haru.engine.podgroup.podgroup_cycle import members_of
from haru.engine.podgroup.podgroup_info import PodGroupInfo, key_of
from haru.engine.podgroup.search_budget import UnansweredError
from haru.engine.preemption.disruption_units import DisruptionUnit, ReprieveOrder, running_pods
from haru.engine.preemption.dry_run import keep_group_reservations, without_pods
from haru.engine.preemption.feasibility_oracle import FeasibilityOracle, Preemptor, node_sets
from haru.engine.preemption.nominated_placements import with_nominated_pods
from haru.engine.preemption.podgroup_preemption import Search, Victims, after_pending_evictions, quorum_is_met
from haru.engine.state.cache import Snapshot
from haru.engine.state.deadlines import latest_end
from haru.engine.state.node_info import NodeInfo
from haru.engine.state.pending_reservations import Nomination
from haru.engine.state.pod_info import PodInfo
from haru.kube.meta import Obj

_TOPIC = "ends of running pods"


class _End(NamedTuple):
    """When a pod is gone: sooner is smaller; `unknown` ends come after all that are known, the oldest pod first."""

    unknown: bool
    time: float
    started: str


def reserve_earliest_start(
    snapshot: Snapshot, pods: Sequence[Obj], *, group: Obj | None, options: Options
) -> BackfillReservation | None:
    """Reserve places for pods that `decide` has refused; None if no end of running pods lets them start.

    Also None where a search for it gives up, and for a group that runs already as far as it has to.
    """
    members, key = members_of(snapshot, pods), key_of(group)
    if not members or (
        key is not None and options.gates.gang_scheduling and gang_gate_reason(snapshot, key) is not None
    ):
        return None
    # The new reservation replaces the present one.
    snapshot = replace(snapshot, reservation=None) if snapshot.reservation is not None else snapshot
    seen = with_nominated_pods(snapshot, members, groups=options.gates.groups, now=options.now)
    info = PodGroupInfo.of(seen, members, group, options)
    preemptor = Preemptor(info, node_sets(seen, info))
    if quorum_is_met(seen, preemptor):
        return None
    base = after_pending_evictions(seen)
    ends, unlimited = _Ends.of(snapshot).units(snapshot, base, options.now)
    if not unlimited:
        base = keep_group_reservations(base, running_pods(base, base.node_names))
    units = sorted(ends, key=ends.__getitem__, reverse=True)
    try:
        found = Search(base, preemptor).least(
            ReprieveOrder(tuple(units)), ends.__getitem__, refused=False, enough=info.needed
        )
        attempt = None if found is None else _placed(base, preemptor, found)
    except UnansweredError:
        return None
    if found is None or attempt is None:
        return None
    held = [placed(outcome) for outcome in attempt.outcomes if isinstance(outcome, Placed)]
    kept = tuple(
        Nomination(one.pod, one.node or "", preemptor.priority, one.allocations, claimed=one.claimed)
        for one in held[: info.needed]
    )
    awaited = [ends[unit] for unit in found.units]
    unknown = any(end.unknown for end in awaited)
    until = None if unknown else max((end.time for end in awaited), default=options.now)
    waits_for = frozenset(unit.pods[0].key for unit in found.units)
    return BackfillReservation(key, preemptor.priority, kept, waits_for, until)


class _Ends:
    """The running pods by node with their ends; kept with the cluster where they themselves say all of it."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[NodeInfo, Sequence[tuple[DisruptionUnit, _End]]]] = {}

    @staticmethod
    def of(snapshot: Snapshot) -> _Ends:
        """What is known of a cluster's pods."""
        return snapshot.decision_cache.get_or_compute(_TOPIC, None, _Ends)

    def units(self, snapshot: Snapshot, base: Snapshot, now: float) -> tuple[dict[DisruptionUnit, _End], bool]:
        """The pods on nodes of the base that may end, each as a unit, with their ends; whether all are unlimited."""
        known = base.nodes is snapshot.nodes
        found: dict[DisruptionUnit, _End] = {}
        all_unlimited = True
        unknown: dict[str, _End] = {}
        if len(self._known) > 2 * len(base.node_names):
            self._known.clear()
        for name, info in base.all_nodes:
            assert info is not None
            kept = self._known.get(name)
            if kept is not None and kept[0] is info:
                found.update(kept[1])
                continue
            pairs: list[tuple[DisruptionUnit, _End]] = []
            unlimited = True
            for pod in info.pods.values():
                end: _End | None = None
                some_day, started = pod.run_deadline
                if some_day is None:
                    unlimited, end = False, _end(snapshot, pod, now, known=known)
                elif some_day:
                    end = unknown.get(started)
                    if end is None:
                        end = unknown[started] = _End(True, 0.0, started)
                if end is not None:
                    pairs.append((DisruptionUnit((pod,), 0), end))
            if unlimited:
                self._known[name] = info, pairs
            all_unlimited &= unlimited
            found.update(pairs)
        return found, all_unlimited


def _end(snapshot: Snapshot, pod: PodInfo, now: float, *, known: bool) -> _End | None:
    """Return when a pod on a node ends; `known` says that all pods on nodes are bound now."""
    end = latest_end(snapshot, pod, now)
    if end is None and not pod.ends_by_itself:
        return None
    if not (known or snapshot.pods[pod.key.path].node):
        # It is only nominated, and starts at an unknown time.
        end = None
    return _End(end is None, end or 0.0, pod.run_deadline.started)


def _placed(base: Snapshot, preemptor: Preemptor, found: Victims) -> PlacementAttempt | None:
    cleared = without_pods(base, [pod for unit in found.units for pod in unit.pods])
    return FeasibilityOracle(replace(preemptor, places=found.places)).place(cleared, found.fit)
