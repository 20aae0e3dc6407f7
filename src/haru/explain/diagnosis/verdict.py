"""The verdict on work that waits: asked of the cluster as it is, then emptied, then with every obstacle lifted.

`least` finds which running work has to end, by the search of preemption: units are thought away from the end of an
order and come back as far as the work still fits, so none of what is left can be spared. One search costs little more
than looking at every unit once (`Search.least`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from haru.engine import Decision, Options, Reason, Snapshot, reserve_earliest_start
from haru.engine.podgroup import PodGroupInfo, UnansweredError, members_of
from haru.engine.preemption import DisruptionUnit as Candidate
from haru.engine.preemption import Preemptor, ReprieveOrder, Search, node_sets, with_nominated_pods
from haru.engine.state import Diagnosis, PodInfo, time_text
from haru.explain import hypothesis
from haru.explain.diagnosis.device_conditions import devices_not_ready
from haru.explain.diagnosis.pod_affinity import affinity_targets, missing_targets, without_missing_targets
from haru.explain.diagnosis.schedulers import DEFAULT_SCHEDULER, unknown_scheduler
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Later, Verdict


@dataclass(frozen=True, slots=True)
class Victim:
    """Work that ends as a whole: a pod by itself, or the running pods of a group."""

    name: str
    priority: int
    pods: tuple[PodInfo, ...]


def victims(snapshot: Snapshot, work: WorkloadUnit) -> list[Victim]:
    """All running work but the one in question; the most important first."""
    return sorted(running_work(snapshot, work), key=lambda u: (-u.priority, -len(u.pods), u.name))


def running_work(snapshot: Snapshot, work: WorkloadUnit) -> list[Victim]:
    """All running work but the one in question, in no order."""
    own = set(work.paths)
    singles: list[Victim] = []
    groups: dict[str, list[PodInfo]] = {}
    for path, pod in snapshot.pods.items():
        if not pod.node or pod.terminal or path in own or (pod.group is not None and pod.group == work.group):
            continue
        if pod.group is None:
            singles.append(Victim(path, pod.priority, (pod,)))
        else:
            groups.setdefault(pod.group.path, []).append(pod)
    wholes = [Victim(path, max(p.priority for p in pods), tuple(pods)) for path, pods in groups.items()]
    return [*singles, *wholes]


def least(snapshot: Snapshot, work: WorkloadUnit, options: Options, order: Sequence[Victim]) -> list[Victim] | None:
    """The units none of which can be spared, those that come first in `order` spared first; None if all are too few.

    Raises UnansweredError where the search gives up.
    """
    pods = [pod.obj for pod in work.pending(snapshot)]
    members, group = members_of(snapshot, pods), work.pod_group(snapshot)
    if not members:
        return None
    seen = with_nominated_pods(snapshot, members, groups=options.gates.groups, now=options.now)
    info = PodGroupInfo.of(seen, members, group, options)
    preemptor = Preemptor(info, node_sets(seen, info))
    candidates = {Candidate(unit.pods, unit.priority): unit for unit in order}
    found = Search(snapshot, preemptor).least(
        ReprieveOrder(tuple(candidates)), lambda unit: unit.priority, refused=True, enough=info.needed
    )
    return None if found is None else [candidates[unit] for unit in found.units]


def is_enough(snapshot: Snapshot, work: WorkloadUnit, options: Options, order: Sequence[Victim]) -> bool:
    """Whether the work fits once all these units have ended; no where the search gives up."""
    try:
        return least(snapshot, work, options, order) is not None
    except UnansweredError:
        return False


def later(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Later | None:
    """What refused work waits for; None where the end of running work does not help it."""
    pods = [pod.obj for pod in work.pending(snapshot)]
    found = reserve_earliest_start(snapshot, pods, group=work.pod_group(snapshot), options=options)
    if found is None or not found.waits_for:
        return None
    until = "" if found.until is None else time_text(found.until)
    return Later(tuple(sorted(pod.path for pod in found.waits_for)), until)


# Causes whose end can be foreseen without asking the scheduler.
_BY_THEMSELVES = frozenset({"ClaimInFlight", "BindingConditions"})
_BY_SOMEBODY = frozenset(
    {
        "GaveUp",
        "SchedulerNameMismatch",
        "ClaimMissing",
        "ClaimDeleting",
        "ClaimForeign",
        "ClaimReservedFull",
        "DeviceClassMissing",
        "VolumeMissing",
        "VolumeUnbound",
        "SelectorError",
    }
)


@dataclass(frozen=True, slots=True)
class JudgedVerdict:
    """The verdict, the scheduler's own reasons, how many members have a place at once now, and what it waits for.

    `placed`: a place is free. `unknown` says that nobody takes the work: no scheduler of its name is known.
    `diagnosis` is that of the decision behind it.
    """

    verdict: Verdict
    reasons: tuple[Reason, ...]
    fit: int = 0
    later: Later | None = None
    placed: bool = False
    unknown: Reason | None = None
    diagnosis: Diagnosis | None = None


def verdict_of(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> JudgedVerdict:
    """What is to be expected for work that is not held."""
    found, unknown = _judged(snapshot, work, options), unknown_scheduler(snapshot, work)
    if unknown is None:
        return found
    verdict: Verdict = "NeverFits" if found.verdict == "NeverFits" else "FitsIf"
    rest = [reason for reason in found.reasons if reason.type != "Waiting"]
    return replace(found, verdict=verdict, reasons=(unknown, *rest), later=None, unknown=unknown)


def _judged(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> JudgedVerdict:
    """What a scheduler would make of it."""
    decision = work.decide(snapshot, options)
    if decision.status == "scheduled":
        waiting = devices_not_ready(snapshot, work.pending(snapshot)) or Reason(
            "Waiting", f"a place is free for it: {_scheduler(snapshot, work)} in its next attempt"
        )
        left = [r for m in decision.members if m.status != "scheduled" for r in m.reasons]
        return JudgedVerdict("Starting", (waiting, *distinct(left)), placed=True)
    fit = next((int(r.data["fit"]) for r in decision.reasons if r.type == "Quorum"), 0)
    verdict = _foreseen(decision)
    awaited = later(snapshot, work, options) if verdict != "FitsIf" else None
    if verdict is None:
        verdict = "FitsLater" if awaited is not None else _verdict(snapshot, work, options)
    return JudgedVerdict(verdict, why(decision), fit, awaited, diagnosis=decision.diagnosis)


def _scheduler(snapshot: Snapshot, work: WorkloadUnit) -> str:
    [name, *_] = [pod.scheduler_name for pod in work.pending(snapshot)] or [DEFAULT_SCHEDULER]
    return "the scheduler takes it" if name == DEFAULT_SCHEDULER else f"the scheduler {name} takes it"


def _foreseen(decision: Decision) -> Verdict | None:
    """The verdict where the causes tell it by themselves."""
    causes = {reason.type for reason in why(decision)}
    if causes & _BY_THEMSELVES:
        return "FitsLater"
    return "FitsIf" if causes & _BY_SOMEBODY else None


def _verdict(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Verdict:
    """Whether it fits where nothing else runs, or where nothing is closed besides."""
    if is_enough(snapshot, work, options, victims(snapshot, work)):
        return "FitsLater"
    own = own_pods(snapshot, work)
    verdict = _where_nothing_runs_but(own, snapshot, work, options)
    if verdict != "NeverFits" or not any(pod.terms.near for pod in work.pending(snapshot)):
        return verdict
    # Whoever it has to be near may run on, or come some day.
    targets = affinity_targets(snapshot, work)
    if targets:
        return _where_nothing_runs_but(own | targets, snapshot, work, options)
    missing = missing_targets(snapshot, work)
    freed = without_missing_targets(snapshot, work, missing)
    return "FitsIf" if missing and _where_nothing_runs_but(own, freed, work, options) != "NeverFits" else "NeverFits"


def _where_nothing_runs_but(kept: set[str], snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Verdict:
    empty = hypothesis.emptied(snapshot, kept)
    if work.fits(empty, options):
        return "FitsLater"
    return "FitsIf" if work.fits(unobstructed(empty), options) else "NeverFits"


def own_pods(snapshot: Snapshot, work: WorkloadUnit) -> set[str]:
    """Pods that belong to the work: those that are asked about, and siblings that run already."""
    own = set(work.paths)
    if work.group is not None:
        own |= snapshot.group_state(work.group).all
    return own


def unobstructed(snapshot: Snapshot) -> Snapshot:
    """As if no node were cordoned and nothing tainted."""
    in_the_way = [n for n in snapshot.node_names if snapshot.nodes[n].taints or snapshot.nodes[n].spec.unschedulable]
    open_ = hypothesis.with_nodes(snapshot, lambda n: hypothesis.untainted(hypothesis.uncordoned(n)), in_the_way)
    return hypothesis.without_device_taints(open_, lambda pool, device, taint: True)


def why(decision: Decision) -> tuple[Reason, ...]:
    """The reasons of a refusal: the group's, and those of members that found no place."""
    of_members = [r for m in decision.members for r in m.reasons if r.type != "Quorum"]
    return distinct([*(_counted(reason) for reason in decision.reasons), *of_members])


def _counted(reason: Reason) -> Reason:
    """The quorum's reason in numbers: its text in conditions is fixed, and says none."""
    if reason.type != "Quorum":
        return reason
    text = f"{reason.data['fit']} of the {reason.data['needed']} members that it needs have a place at once"
    return Reason("Quorum", text, reason.data)


def distinct(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """The reasons without repetitions."""
    seen: dict[tuple[str, str], Reason] = {}
    for reason in reasons:
        seen.setdefault((reason.type, reason.message), reason)
    return tuple(seen.values())
