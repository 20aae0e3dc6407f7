"""When no single kind of change helps: the fewest obstacles of all kinds that have to be lifted together.

Each cordon, taint and piece of running work is a switch; switches are thrown off one by one as long as it still fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from haru.engine import Options, Snapshot
from haru.engine.state import Obj
from haru.explain import hypothesis
from haru.explain.changes import delete, listed, patch
from haru.explain.diagnosis.least_victims import victims
from haru.explain.diagnosis.workload_unit import WorkloadUnit
from haru.explain.explanation import Remedy
from haru.explain.remedies.device_taints import by_driver, repelling_taints, taint_removal

_MOST_SWITCHES = 64
_COSTS = "all of it at once: no single one of these is enough"


@dataclass(frozen=True, slots=True)
class _Switch:
    text: str
    apply: Callable[[Snapshot], Snapshot]
    changes: tuple[Obj, ...]
    cost: int


def combined(snapshot: Snapshot, work: WorkloadUnit, options: Options) -> Iterator[Remedy]:
    """One remedy that lifts obstacles of several kinds, if lifting all of them helps."""
    switches = sorted(_switches(snapshot, work), key=lambda s: -s.cost)

    def fits(thrown: Sequence[_Switch]) -> bool:
        return work.fits(reduce(lambda s, switch: switch.apply(s), thrown, snapshot), options)

    kept = list(switches)
    if not kept or len(kept) > _MOST_SWITCHES or not fits(kept):
        return
    for switch in switches:
        fewer = [other for other in kept if other is not switch]
        if fits(fewer):
            kept = fewer
    if kept:
        text = listed([switch.text for switch in kept])
        changes = tuple(change for switch in kept for change in switch.changes)
        yield Remedy("Combination", text, changes, sum(switch.cost for switch in kept), True, _COSTS)


def _switches(snapshot: Snapshot, work: WorkloadUnit) -> Iterator[_Switch]:
    for name in snapshot.node_names:
        yield from _node_switches(snapshot, name)
    for text in repelling_taints(snapshot):
        changes, left = taint_removal(snapshot, text)
        note = f" ({by_driver(left)})" if left else ""
        yield _Switch(f"remove device taint {text}{note}", _without_device_taint(text), tuple(changes), 3)
    for unit in victims(snapshot, work):
        paths = [pod.key.path for pod in unit.pods]
        gone = tuple(delete("v1", "Pod", pod.key.name, pod.key.namespace) for pod in unit.pods)
        yield _Switch(f"end {unit.name}", _without(paths), gone, 10 + len(paths))


def _node_switches(snapshot: Snapshot, name: str) -> Iterator[_Switch]:
    spec = snapshot.nodes[name].spec
    if hypothesis.is_cordoned(spec.obj):
        body: Obj = {"spec": {"unschedulable": None}}
        yield _Switch(f"uncordon {name}", _changed(hypothesis.uncordoned, name), (patch("v1", "Node", name, body),), 1)
    if any(hypothesis.repels(taint) for taint in spec.taints):
        body = {"spec": {"taints": [t for t in spec.taints if not hypothesis.repels(t)]}}
        change = patch("v1", "Node", name, body)
        yield _Switch(f"remove the taints of {name}", _changed(hypothesis.untainted, name), (change,), 2)


def _changed(change: Callable[[Obj], Obj], name: str) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: hypothesis.with_nodes(snapshot, change, [name])


def _without(paths: Sequence[str]) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: hypothesis.without_pods(snapshot, paths)


def _without_device_taint(text: str) -> Callable[[Snapshot], Snapshot]:
    return lambda snapshot: hypothesis.without_device_taints(snapshot, lambda pool, device, taint: str(taint) == text)
