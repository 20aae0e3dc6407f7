"""Who is in the way: the running work whose end would make room, and the least of it that has to end.

Fitting is monotone in what ends, so the least set is found by sparing: the most important work first, in blocks that
are halved when sparing all of a block would cost the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from haru.engine.cluster import Snapshot
from haru.engine.groups import Options
from haru.engine.pods import PodInfo
from haru.explain import hypothesis
from haru.explain.work import Work


@dataclass(frozen=True, slots=True)
class Unit:
    """Work that ends as a whole: a pod by itself, or the running pods of a group."""

    name: str
    priority: int
    pods: tuple[PodInfo, ...]


def units(snapshot: Snapshot, work: Work) -> list[Unit]:
    """All running work but the one in question; the most important first."""
    own = set(work.paths)
    singles: list[Unit] = []
    groups: dict[str, list[PodInfo]] = {}
    for path, pod in snapshot.pods.items():
        if not pod.node or pod.terminal or path in own or (pod.group is not None and pod.group == work.group):
            continue
        if pod.group is None:
            singles.append(Unit(path, pod.priority, (pod,)))
        else:
            groups.setdefault(pod.group.path, []).append(pod)
    wholes = [Unit(path, max(p.priority for p in pods), tuple(pods)) for path, pods in groups.items()]
    return sorted([*singles, *wholes], key=lambda u: (-u.priority, -len(u.pods), u.name))


def smallest_eviction(snapshot: Snapshot, work: Work, options: Options) -> list[Unit]:
    """Work none of which can be spared if the work in question is to fit; empty if ending all of it does not help."""
    everything = units(snapshot, work)

    def fits(ended: Sequence[Unit]) -> bool:
        paths = [pod.key.path for unit in ended for pod in unit.pods]
        return work.fits(hypothesis.without_pods(snapshot, paths), options)

    if not everything or not fits(everything):
        return []
    ended = list(everything)

    def spare(block: Sequence[Unit]) -> None:
        nonlocal ended
        names = {unit.name for unit in block}
        rest = [unit for unit in ended if unit.name not in names]
        if fits(rest):
            ended = rest
        elif len(block) > 1:
            spare(block[: len(block) // 2])
            spare(block[len(block) // 2 :])

    spare(everything)
    return ended
