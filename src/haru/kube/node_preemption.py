"""Which pods a node ends so that a critical pod has room. Pure.

Guaranteed pods go where all others are not enough, then burstable ones, then the rest: always the one that frees most
of what is missing. Source: the kubelet's handler of critical pods that it would refuse, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from haru.kube.meta import Obj, uid_of
from haru.kube.node_admission import Shortage, is_critical, requested_amounts
from haru.kube.strategy import qos_class

PREEMPTING: Final = "Preempting"
MESSAGE: Final = "Preempted in order to admit critical pod"
CONDITION: Final = "Pod was preempted by Kubelet to accommodate a critical pod."
NO_PREEMPTION: Final = "UnexpectedAdmissionError"
"""The reason of a critical pod for which nobody can make room."""
_FAILED: Final = "Unexpected error while attempting to recover from admission failure"
_SHORTEST_WAIT: Final = 10.0

Amounts = Mapping[str, int]


class NoVictimsError(Exception):
    """There is no room for the pod, even if all goes that may."""


def preemptable(pod: Obj, other: Obj) -> bool:
    """Whether a node may end another pod for this critical one."""
    return not is_critical(other) or _priority(pod) > _priority(other)


def seconds_to_wait(gone: Iterable[Obj]) -> float:
    """How long a critical pod waits for the end of others at most."""
    graces = (float(pod["spec"].get("terminationGracePeriodSeconds") or 0) for pod in gone)
    return max(_SHORTEST_WAIT, 1.5 * max(graces, default=0.0))


def victims(pod: Obj, others: Sequence[Obj], missing: Sequence[Shortage]) -> list[Obj]:
    """The pods that go for a critical one. Raises `NoVictimsError`."""
    freed = {uid_of(other): {**requested_amounts(other), "pods": 1000} for other in others}
    lacking = {one.resource: one.missing for one in missing}
    lesser: dict[str, list[Obj]] = {"Guaranteed": [], "Burstable": [], "BestEffort": []}
    for other in others:
        if preemptable(pod, other):
            lesser[qos_class(dict(other["spec"]))].append(other)
    if left := _left(lacking, freed, (other for each in lesser.values() for other in each)):
        amounts = "".join(f"(res: {name}, q: {_amount(name, amount)}), " for name, amount in left.items())
        text = f"no set of running pods found to reclaim resources: [{amounts}]"
        raise NoVictimsError(f"{_FAILED}: preemption: error finding a set of pods to preempt: {text}")
    chosen = dict(lesser)
    for name, pods in lesser.items():
        beside = (other for each in chosen if each != name for other in chosen[each])
        chosen[name] = _nearest(pods, freed, _left(lacking, freed, beside))
    return [*chosen["BestEffort"], *chosen["Burstable"], *chosen["Guaranteed"]]


def _nearest(pods: Sequence[Obj], freed: Mapping[str, Amounts], lacking: Amounts) -> list[Obj]:
    """Those of the pods that are enough: as few and as small ones as a greedy choice finds."""

    def distance(pod: Obj) -> tuple[float, int, int]:
        frees = freed[uid_of(pod)]
        parts = (max(0, amount - frees.get(name, 0)) / amount for name, amount in lacking.items())
        return sum(part**2 for part in parts), frees.get("memory", 0), frees.get("cpu", 0)

    chosen, rest = list[Obj](), list(pods)
    while lacking:
        nearest = min(rest, key=distance)
        rest.remove(nearest)
        chosen.append(nearest)
        lacking = _left(lacking, freed, [nearest])
    return chosen


def _left(lacking: Amounts, freed: Mapping[str, Amounts], pods: Iterable[Obj]) -> Amounts:
    """What is still missing once these are gone."""
    gone = [freed[uid_of(pod)] for pod in pods]
    left = {name: amount - sum(one.get(name, 0) for one in gone) for name, amount in lacking.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _amount(name: str, thousandths: int) -> int:
    return thousandths if name == "cpu" else -(-thousandths // 1000)


def _priority(pod: Obj) -> int:
    return int((pod.get("spec") or {}).get("priority") or 0)
