"""What helps a pod that has its place and does not run as it should: one remedy or a few for each reason.

What the scheduler can answer is tried: whether the pod, made again, would have a place. Whether its program then goes
on is known to nobody: such remedies are not confirmed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from haru.engine import Options, Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain.changes import delete
from haru.explain.explanation import Remedy
from haru.explain.remedies.disruption_budgets import budget_remedies
from haru.explain.remedies.failed_devices import device_remedies, preparation_remedies
from haru.explain.remedies.images import image_remedies
from haru.explain.remedies.memory_limits import memory_remedies
from haru.explain.remedies.new_place import new_place

MOST: Final = 6
_LONG_PAUSE_SECONDS: Final = 30
_START_ERROR: Final = "StartError"
_Remedies = Callable[[Snapshot, PodInfo, Reason, Options], Iterator[Remedy]]


def placed_pod_remedies(
    snapshot: Snapshot, problems: Sequence[tuple[PodInfo, Reason]], options: Options
) -> tuple[Remedy, ...]:
    """What would help pods with these problems, the cheapest first; pods of one workload have one remedy together."""
    found: dict[tuple[str, str], Remedy] = {}
    for pod, reason in problems:
        ways = _REMEDIES.get(reason.type)
        if ways is None or len(found) >= MOST:
            continue
        for remedy in ways(snapshot, pod, reason, options):
            found.setdefault((remedy.kind, remedy.summary), remedy)
    return tuple(sorted(found.values(), key=lambda r: (not r.confirmed, r.cost, r.kind))[:MOST])


def _crash_remedies(snapshot: Snapshot, pod: PodInfo, reason: Reason, options: Options) -> Iterator[Remedy]:
    """Another command where the program does not exist; a new pod for a long pause, which begins anew with that."""
    name = reason.data["container"]
    if reason.data["reason"] == _START_ERROR:
        costs = "the program did not start, so there is no log; which command the image has is for its author to say"
        yield Remedy("CorrectCommand", f"give container {name} a command that its image has", (), 1, False, costs)
        return
    left = int(str(reason.data.get("backOffSecondsLeft", reason.data.get("backOffSeconds", 0))))
    if pod.controller is None or left < _LONG_PAUSE_SECONDS or new_place(snapshot, pod, options) is None:
        return
    text = f"once what its log says is mended, restart pod {pod.key.name} at once in place of in {left} s"
    costs = f"{pod.controller['kind'].lower()}/{pod.controller['name']} makes a new pod, which may get another node"
    gone = delete("v1", "Pod", pod.key.name, pod.key.namespace)
    yield Remedy("RestartPod", text, (gone,), 5, False, costs)


_REMEDIES: Final[dict[str, _Remedies]] = {
    "OOMKilled": memory_remedies,
    "CrashLoopBackOff": _crash_remedies,
    "ImagePullBackOff": image_remedies,
    "FailedPrepareDynamicResources": preparation_remedies,
    "DeviceUnhealthy": device_remedies,
    "DeviceTainted": device_remedies,
    "EvictionWaits": budget_remedies,
}
