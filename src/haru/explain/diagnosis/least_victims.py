"""Which running work has to end so that waiting work starts: the search by which preemption finds its victims.

Units are thought away from the end of an order and come back as far as the work still fits, so none of what is left
can be spared. One search costs little more than looking at every unit once (`Search.least`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine import Options, Snapshot
from haru.engine.podgroup import PodGroupInfo, UnansweredError, members_of
from haru.engine.preemption import DisruptionUnit as Candidate
from haru.engine.preemption import Preemptor, ReprieveOrder, Search, node_sets, with_nominated_pods
from haru.engine.state import PodInfo
from haru.explain.diagnosis.workload_unit import WorkloadUnit


@dataclass(frozen=True, slots=True)
class Victim:
    """Work that ends as a whole: a pod by itself, or the running pods of a group."""

    name: str
    priority: int
    pods: tuple[PodInfo, ...]


def victims(snapshot: Snapshot, work: WorkloadUnit) -> list[Victim]:
    """All running work but the one in question; the most important first."""
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
    return sorted([*singles, *wholes], key=lambda u: (-u.priority, -len(u.pods), u.name))


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
