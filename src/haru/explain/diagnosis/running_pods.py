"""What is wrong with a pod that has its place: it cannot start, it crashes, its device fails, its eviction waits.

Read off the statuses that the kubelet and the controllers write, with their numbers. Sources: container states of the
kubelet, `allocatedResourcesStatus` (KEP-4680), device taints (KEP-5055), the status of PodDisruptionBudgets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from haru.engine import Reason, Snapshot
from haru.engine.state import PodInfo
from haru.explain.diagnosis.allocations import find_device, held_by
from haru.explain.hypothesis import is_cordoned
from haru.kube.meta import Obj
from haru.kube.names import counted, parse_time
from haru.kube.pod_claims import FAILED_PREPARE, NotPrepared, check_claim, pod_claims
from haru.kube.selectors import label_selector_from

_CRASH_LOOP: Final = "CrashLoopBackOff"
_OOM_KILLED: Final = "OOMKilled"
_START_ERROR_CODE: Final = 128
"""Of a container whose program did not start: it has no log."""
_IMAGE_REASONS: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "ImageInspectError",
)
_STARTING: Final = ("ContainerCreating", "PodInitializing")
_PAUSE: Final = re.compile(r"back-off (?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")
_PULL_PREFIX: Final = re.compile(
    r'^(?:Back-off pulling image "[^"]*": )?(?:ErrImagePull: )?(?:rpc error: code = \S+ desc = )?'
)
_MOST_TEXT: Final = 300


def start_problems(snapshot: Snapshot, pod: PodInfo, now: float = 0.0) -> tuple[Reason, ...]:
    """Why a pod that is bound to a node does not start, until somebody changes something."""
    found = [reason for status in _statuses(pod) if (reason := _not_started(pod, status)) is not None]
    started = any("waiting" not in (status.get("state") or {}) or status.get("lastState") for status in _statuses(pod))
    unprepared = () if found or started else _unprepared(snapshot, pod)
    return (*found, *_crashes(pod, now, "initContainerStatuses"), *unprepared)


def running_problems(snapshot: Snapshot, pod: PodInfo, now: float) -> tuple[Reason, ...]:
    """What is wrong with a pod that runs; `now` (seconds since the epoch, 0: unknown) tells how long it still waits."""
    troubles = [reason for status in _statuses(pod) if (reason := _not_started(pod, status)) is not None]
    return (
        *troubles,
        *_crashes(pod, now, "initContainerStatuses", "containerStatuses"),
        *_unhealthy(pod),
        *_tainted(snapshot, pod),
        *_guarded(snapshot, pod),
    )


def problems_of(snapshot: Snapshot, pod: PodInfo, now: float) -> tuple[Reason, ...]:
    """What is wrong with a pod that has its place, whether it runs yet or not."""
    if pod.terminal or pod.deleting or not pod.node:
        return ()
    if pod.status.get("phase") == "Running":
        return running_problems(snapshot, pod, now)
    return start_problems(snapshot, pod, now)


def waits_in_trouble(pod: PodInfo) -> bool:
    """Whether a container of a pod that has its place waits for more than its first start: quickly told, for tables."""
    if not pod.node or pod.terminal or pod.deleting:
        return False
    reasons = ((one.get("state") or {}).get("waiting") for one in _statuses(pod))
    return any(waiting and waiting.get("reason") not in (None, "", *_STARTING) for waiting in reasons)


def end_problems(pod: PodInfo) -> tuple[Reason, ...]:
    """What is known of how a failed pod ended, beyond its exit code: that a container was killed for memory."""
    return tuple(_crashes(pod, 0.0, "initContainerStatuses", "containerStatuses"))


def end_text(pod: PodInfo) -> str:
    """How the containers of a failed pod ended: `container main ended with exit code 137 (OOMKilled)`; or nothing."""
    for status in _statuses(pod):
        ended = (status.get("state") or {}).get("terminated") or {}
        if ended.get("exitCode"):
            why = ended.get("reason") or "Error"
            said = f": {_cut(ended['message'])}" if ended.get("message") else ""
            return f"container {status['name']} ended with exit code {ended['exitCode']} ({why}){said}"
    return ""


def _statuses(pod: PodInfo) -> Iterator[Obj]:
    for kind in ("initContainerStatuses", "containerStatuses"):
        yield from pod.status.get(kind) or ()


# -- containers


def _not_started(pod: PodInfo, status: Obj) -> Reason | None:
    """What keeps a container from its first start."""
    waiting = (status.get("state") or {}).get("waiting") or {}
    why, name = waiting.get("reason") or "", str(status["name"])
    if not why or why in (*_STARTING, _CRASH_LOOP):
        return None
    said = _cut(_PULL_PREFIX.sub("", waiting.get("message") or ""))
    data: dict[str, object] = {"container": name, "reason": why}
    if why in _IMAGE_REASONS:
        image = str(_spec(pod, name).get("image") or status.get("image") or "")
        text = f"image {image} of container {name} cannot be pulled ({why})"
        return Reason("ImagePullBackOff", f"{text}: {said}" if said else text, {**data, "image": image})
    text = f"container {name} cannot be started ({why})"
    return Reason("ContainerNotStarted", f"{text}: {said}" if said else text, data)


def _crashes(pod: PodInfo, now: float, *kinds: str) -> Iterator[Reason]:
    """Containers that ended and wait for their restart, and those that run again after they were killed for memory."""
    for status in (one for kind in kinds for one in pod.status.get(kind) or ()):
        state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated") or {}
        waiting = state.get("waiting") or {}
        ended = last or state.get("terminated") or {}
        is_killed = ended.get("reason") == _OOM_KILLED
        if not ended or not (waiting.get("reason") == _CRASH_LOOP or is_killed):
            continue
        yield _crash(pod, status, ended, waiting, now)


def _crash(pod: PodInfo, status: Obj, ended: Obj, waiting: Obj, now: float) -> Reason:
    name, restarts = str(status["name"]), int(status.get("restartCount") or 0)
    code, why = int(ended.get("exitCode") or 0), str(ended.get("reason") or "Error")
    data: dict[str, object] = {"container": name, "restarts": restarts, "exitCode": code, "reason": why}
    if ended.get("finishedAt"):
        data["finishedAt"] = ended["finishedAt"]
    again = _next_start(waiting, ended, now, data)
    times = f", restarted {counted(restarts, 'time')}" if restarts else ", not restarted yet"
    if pod.terminal:
        times, again = "", ""
    log = f"kubectl logs {pod.key.name} -n {pod.key.namespace} -c {name}{'' if pod.terminal else ' --previous'}"
    if code != _START_ERROR_CODE:
        data["command"] = log
    if why == _OOM_KILLED:
        limit = ((_spec(pod, name).get("resources") or {}).get("limits") or {}).get("memory")
        data |= {"memoryLimit": limit} if limit else {}
        of = f" at its memory limit of {limit}" if limit else ""
        return Reason(_OOM_KILLED, f"container {name} was killed for memory{of} (exit code {code}){times}{again}", data)
    said = f": {_cut(ended['message'])}" if ended.get("message") else ""
    crash = f"container {name} keeps ending (exit code {code}, {why}{said}){times}{again}"
    return Reason(_CRASH_LOOP, crash, data)


def _next_start(waiting: Obj, ended: Obj, now: float, data: dict[str, object]) -> str:
    """When it starts next, by the pause that the kubelet tells."""
    found = _PAUSE.search(waiting.get("message") or "")
    if found is None:
        return "" if waiting else ", runs again"
    pause = sum(int(part or 0) * unit for part, unit in zip(found.groups(), (3600, 60, 1), strict=True))
    data["backOffSeconds"] = pause
    if not now or not ended.get("finishedAt"):
        return f", back-off {pause} s"
    left = max(0, round(parse_time(ended["finishedAt"]).timestamp() + pause - now))
    data["backOffSecondsLeft"] = left
    return (
        f", next start in {left} s of {pause} s back-off" if left else f", next start is due after {pause} s back-off"
    )


def _spec(pod: PodInfo, name: str) -> Mapping[str, Any]:
    every = (*(pod.spec.get("initContainers") or ()), *(pod.spec.get("containers") or ()))
    return next((one for one in every if one["name"] == name), {})


# -- claims and devices


def _unprepared(snapshot: Snapshot, pod: PodInfo) -> Iterator[Reason]:
    """Claims that the kubelet cannot prepare: as it says in an event, or as the claims themselves show."""
    event = _newest_event(snapshot, pod)
    text = str(event.get("message") or "").removeprefix("Failed to prepare dynamic resources: ") if event else ""
    claims = [str(use.name) for use in _claim_uses(pod)]
    if not text and claims and not pod.terminal:
        text = _claim_problem(snapshot, pod)
    if not text:
        return
    data: dict[str, object] = {"claims": claims, "node": pod.node}
    times = ""
    if event is not None:
        count = int((event.get("series") or {}).get("count") or event.get("count") or 1)
        data["count"] = count
        times = f" ({counted(count, 'attempt')})"
    said = _cut(text.removeprefix("prepare dynamic resources: "))
    yield Reason(FAILED_PREPARE, f"its claims cannot be prepared on node {pod.node}{times}: {said}", data)


def _claim_uses(pod: PodInfo) -> list[Any]:
    try:
        return list(pod_claims(pod.obj))
    except NotPrepared:
        return []


def _claim_problem(snapshot: Snapshot, pod: PodInfo) -> str:
    """What the kubelet's own check of the claims says."""
    try:
        for use in pod_claims(pod.obj):
            check_claim(pod.obj, use, snapshot.claims.get(f"{pod.key.namespace}/{use.name}"))
    except NotPrepared as obstacle:
        return str(obstacle)
    return ""


def _newest_event(snapshot: Snapshot, pod: PodInfo) -> Obj | None:
    found = []
    for event in snapshot.objects("Event").values():
        about = event.get("involvedObject") or {}
        own = about.get("uid") == pod.key.uid if about.get("uid") else about.get("name") == pod.key.name
        if event.get("reason") == FAILED_PREPARE and about.get("kind") == "Pod" and own:
            found.append(event)
    return max(found, key=lambda e: str(e.get("lastTimestamp") or e.get("eventTime") or ""), default=None)


def _unhealthy(pod: PodInfo) -> Iterator[Reason]:
    """Devices that their driver reported as unhealthy."""
    for status in _statuses(pod):
        for resource in status.get("allocatedResourcesStatus") or ():
            for device in resource.get("resources") or ():
                if device.get("health") != "Unhealthy":
                    continue
                said = f": {_cut(device['message'])}" if device.get("message") else ""
                where = f"device {device['resourceID']} ({resource['name']}) of container {status['name']}"
                data = {"device": device["resourceID"], "container": status["name"], "resource": resource["name"]}
                yield Reason("DeviceUnhealthy", f"{where} is unhealthy{said}", data)


def _tainted(snapshot: Snapshot, pod: PodInfo) -> Iterator[Reason]:
    """Devices it holds that have been tainted since."""
    for held in held_by(snapshot, pod):
        for device in held.devices:
            found = find_device(snapshot, device.driver, device.pool, device.device)
            taints = [str(taint) for taint in (found.taints if found is not None else ()) if taint.repels]
            if taints:
                name = f"{device.pool}/{device.device}"
                data: dict[str, object] = {"device": f"{device.driver}/{name}", "taints": dict.fromkeys(taints, 1)}
                yield Reason("DeviceTainted", f"device {name} that it holds is tainted {', '.join(taints)}", data)


# -- evictions


def _guarded(snapshot: Snapshot, pod: PodInfo) -> Iterator[Reason]:
    """An eviction from a cordoned node that a PodDisruptionBudget does not allow now."""
    node = snapshot.nodes.get(pod.node)
    if node is None or not node.present or pod.terminal or not is_cordoned(node.spec.obj):
        return
    for budget in snapshot.objects("PodDisruptionBudget").values():
        status = budget.get("status") or {}
        allowed = int(status.get("disruptionsAllowed") or 0)
        if allowed > 0 or not _covers(budget, pod) or pod.key.name in (status.get("disruptedPods") or ()):
            continue
        name, healthy = str(budget["metadata"]["name"]), int(status.get("currentHealthy") or 0)
        wanted, expected = int(status.get("desiredHealthy") or 0), int(status.get("expectedPods") or 0)
        data: dict[str, object] = {
            "podDisruptionBudget": name,
            "disruptionsAllowed": allowed,
            "currentHealthy": healthy,
            "desiredHealthy": wanted,
            "expectedPods": expected,
            "node": pod.node,
        }
        text = (
            f"its node {pod.node} is cordoned, and its eviction waits: PodDisruptionBudget {name} allows {allowed} "
            f"disruptions ({healthy} of {counted(expected, 'expected pod')} healthy, {wanted} must be)"
        )
        yield Reason("EvictionWaits", text, data)


def _covers(budget: Obj, pod: PodInfo) -> bool:
    """As the Eviction API has it: an empty selector covers all pods of the namespace, none at all covers none."""
    selector = (budget.get("spec") or {}).get("selector")
    if selector is None or (budget["metadata"].get("namespace") or "default") != pod.key.namespace:
        return False
    try:
        return label_selector_from(selector).matches(pod.labels)
    except ValueError:
        return False


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 1]}…"
