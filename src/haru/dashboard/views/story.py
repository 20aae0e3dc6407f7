"""The page of a workload: its explanation, its pods, why they are where they are, its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from haru.dashboard.views.queue import KnownPods, created_at, is_waiting, pods_of, subject
from haru.dashboard.views.timeline import Entry, timeline
from haru.dashboard.views.workloads import Workload
from haru.engine import Snapshot
from haru.engine.dra import DeviceId
from haru.engine.state import PodInfo
from haru.explain.diagnosis import held_by, since_of
from haru.explain.entry import explain
from haru.explain.explanation import HeldClaim
from haru.explain.results import Explanation
from haru.explain.utilization import utilization
from haru.kube.meta import Obj, uid_of

_MOST_PODS = 200
_SIGNS = ("FailedCreate", "Scheduled", "FailedScheduling")
"""Events with what no object has: whose pods cannot be created, and which schedulers run."""


@dataclass(frozen=True, slots=True)
class PodRow:
    """A pod with its node since when, and its devices. `node` is empty while it is pending."""

    name: str
    phase: str
    node: str
    since: str
    holds: tuple[HeldClaim, ...]
    percent: float | None = None
    """The mean utilization of its devices, if it is known."""
    restarts: int = 0
    trouble: str = ""
    """Why a container does not run, or how the last run of one ended."""


@dataclass(frozen=True, slots=True)
class Story:
    """`explanation` is the workload's; `here` that of one of its scheduled pods, with the verdicts of other nodes."""

    workload: Workload
    explanation: Explanation
    here: Explanation | None
    pods: tuple[PodRow, ...]
    more_pods: int
    entries: tuple[Entry, ...]
    group: str = ""
    """The path of the PodGroup of its pods, and how many of them it needs at least."""
    min_count: int = 0


def signs_of(events: Iterable[Obj]) -> list[Obj]:
    """The events by which waiting work is explained."""
    return [{**event, "kind": "Event"} for event in events if event.get("reason") in _SIGNS]


def story(
    snapshot: Snapshot, work: Workload, events: Iterable[Obj], now: str, known: KnownPods | None = None
) -> Story | None:
    """Make the story of a workload at a time (RFC 3339); None if there is none. `events` may be about anything."""
    pods = pods_of(snapshot, work, known)
    found = subject(snapshot, work, pods)
    if found is None:
        return None
    kind, obj = found
    events = list(events)
    explanation = explain(snapshot, kind, obj, signs_of(events), now=now)
    placed = next((pod for pod in pods if pod.node and not pod.terminal), None)
    here = explain(snapshot, "pod", placed.obj, now=now) if placed is not None else None
    about = _objects(snapshot, obj, pods)
    uids = {uid_of(each) for each in about}
    own_events = [event for event in events if (event.get("involvedObject") or {}).get("uid") in uids]
    rows = tuple(_row(snapshot, pod) for pod in pods[:_MOST_PODS])
    return Story(
        work,
        explanation,
        here,
        rows,
        max(0, len(pods) - _MOST_PODS),
        timeline(about, own_events),
        *_gang(snapshot, obj, pods),
    )


def _row(snapshot: Snapshot, pod: PodInfo) -> PodRow:
    phase = "Terminating" if pod.deleting else str(pod.status.get("phase") or "Pending")
    since = created_at(pod) if is_waiting(pod) else since_of(pod)
    holds = held_by(snapshot, pod) if pod.node and not pod.terminal else ()
    known = [percent for claim in holds for percent in _percents(snapshot, pod, claim) if percent is not None]
    percent = sum(known) / len(known) if known else None
    containers = pod.status.get("containerStatuses") or ()
    restarts = sum(int(each.get("restartCount") or 0) for each in containers)
    trouble = next((text for each in containers if (text := _trouble(each))), "")
    return PodRow(pod.key.name, phase, pod.node, since, holds, percent, restarts, trouble)


def _percents(snapshot: Snapshot, pod: PodInfo, claim: HeldClaim) -> Iterator[float | None]:
    for each in claim.devices:
        yield utilization(snapshot, claim.claim, [pod], DeviceId(each.driver, each.pool, each.device))


def _trouble(container: Obj) -> str:
    """Why a container does not run, in the words of its status; nothing for one that runs, or has not begun."""
    state, last = container.get("state") or {}, (container.get("lastState") or {}).get("terminated") or {}
    waiting, ended = state.get("waiting") or {}, state.get("terminated") or last
    told = []
    if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
        told.append(": ".join(filter(None, (waiting["reason"], waiting.get("message")))))
    if ended.get("exitCode"):
        told.append(f"exit code {ended['exitCode']}" + (f" ({ended['reason']})" if ended.get("reason") else ""))
    return "; ".join(told)


def _objects(snapshot: Snapshot, obj: Obj, pods: Sequence[PodInfo]) -> list[Obj]:
    """The object, its pods, their PodGroups and their claims, each once."""
    found = {_identity(obj): obj}
    for pod in pods:
        found[_identity(pod.obj)] = pod.obj
        group = snapshot.pod_group(pod.group) if pod.group is not None else None
        claims = (snapshot.claims.get(path) for path in sorted(pod.claim_paths))
        found.update({_identity(each): each for each in (group, *claims) if each is not None})
    return list(found.values())


def _identity(obj: Obj) -> tuple[str, str, str]:
    metadata = obj["metadata"]
    return str(obj["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"])


def _gang(snapshot: Snapshot, obj: Obj, pods: Sequence[PodInfo]) -> tuple[str, int]:
    """The PodGroup of an object or its pods, and its minCount; nothing for pods that are no gang."""
    path = f"{obj['metadata'].get('namespace')}/{obj['metadata']['name']}" if obj["kind"] == "PodGroup" else ""
    path = path or next((pod.group.path for pod in pods if pod.group is not None), "")
    policy = ((snapshot.pod_groups.get(path) or {}).get("spec") or {}).get("schedulingPolicy") or {}
    least = int((policy.get("gang") or {}).get("minCount") or 0)
    return (path, least) if least else ("", 0)
