"""How the containers of a simulated pod that is deleted come to their end, within its grace period. Pure.

A container ends at once when it is told to (exit code 143), after its preStop hook, when the trap of its shell ends and
with its code, or so late as its annotation `stop-seconds` says; at the end of the grace period it is killed (137).
Sidecars end after the others, the last first.
Source: kubelet `kuberuntime_container.go` (hooks, at least two seconds after them), KEP-753, `getPhase`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from haru.kube.container_restarts import is_sidecar
from haru.kube.meta import Obj, get_condition
from haru.kube.pod_containers import containers_of, statuses_of
from haru.kube.simulated_containers import simulation
from haru.kube.simulated_containers.stop_traps import (
    KILLED,
    STOPPED,
    hook_seconds,
    killed_after,
    run_on_stop,
    stop_message,
    traps_of,
)
from haru.simulated_nodes import pods as podlib


class Stop(NamedTuple):
    """When a container has ended, in seconds after the deletion, and its exit code."""

    after: float
    exit_code: int


def takes_time(pod: Obj) -> bool:
    """Whether some container of a pod may not end at once."""
    spec = pod.get("spec") or {}
    return any(
        is_slow_to_stop(pod, one) for one in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
    )


def is_slow_to_stop(pod: Obj, container: Mapping[str, Any]) -> bool:
    """Whether a container may not end at once."""
    if (container.get("lifecycle") or {}).get("preStop") or traps_of(container) is not None:
        return True
    return simulation.setting(pod, container["name"], simulation.STOP_SECONDS) is not None


def stops_of(pod: Obj, grace: float) -> dict[str, Stop]:
    """When and how each running container ends."""
    running = {name for name, status in statuses_of(pod).items() if "running" in (status.get("state") or {})}
    spec = pod.get("spec") or {}
    stops: dict[str, Stop] = {}
    for container in (*(spec.get("containers") or ()), *(spec.get("ephemeralContainers") or ())):
        if container["name"] in running:
            stops[container["name"]] = stop_of(pod, container, grace)
    last = max((stop.after for stop in stops.values()), default=0.0)
    for container in reversed(spec.get("initContainers") or ()):
        if container["name"] in running:
            stop = stop_of(pod, container, max(0.0, grace - last))
            if is_sidecar(container):
                last += stop.after
                stop = Stop(last, stop.exit_code)
            stops[container["name"]] = stop
    return stops


def stop_of(pod: Obj, container: Mapping[str, Any], grace: float) -> Stop:
    """When and how one container ends that is told to."""
    hook = hook_seconds(pod, container, grace)
    slow, code = _told_to_end(pod, container)
    patience = killed_after(pod, container, grace)
    return Stop(hook + slow, code) if slow <= patience else Stop(hook + patience, KILLED)


def _told_to_end(pod: Obj, container: Mapping[str, Any]) -> tuple[float, int]:
    """After how many seconds a container ends that is told to, and its exit code."""
    text = simulation.setting(pod, container["name"], simulation.STOP_SECONDS)
    if text is not None:
        try:
            return simulation.seconds_of(simulation.STOP_SECONDS, text), STOPPED
        except ValueError:
            return 0.0, STOPPED
    ran = run_on_stop(pod, container)
    if ran is None:
        return 0.0, STOPPED
    return (math.inf, KILLED) if ran.ends_after is None else (ran.ends_after, ran.exit_code)


def stopped_status(pod: Obj, stopped: Mapping[str, tuple[Stop, str]], now: str) -> Obj:
    """The status once these containers have ended, each at a time of its own; with a phase once all have."""
    spec, before = pod.get("spec") or {}, pod.get("status") or {}
    containers = {one["name"]: one for one in containers_of(spec)}
    status: Obj = {}
    for member in ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses"):
        given: Sequence[Obj] = before.get(member) or ()
        if given:
            status[member] = [_stopped(pod, containers.get(one["name"]), one, stopped) for one in given]
    main = status.get("containerStatuses") or []
    over = all("running" not in one["state"] for member in status.values() for one in member)
    unready = [one["name"] for one in main if not one.get("ready")]
    reason, message = "ContainersNotReady", f"containers with unready status: [{' '.join(unready)}]"
    if over:
        codes = [_exit_code(one) for one in main]
        status["phase"] = "Succeeded" if codes and not any(codes) else "Failed"
        reason, message = ("PodCompleted" if status["phase"] == "Succeeded" else "PodFailed"), ""
        status["conditions"] = [
            podlib.condition("PodReadyToStartContainers", now, status=False),
        ]
        if not _is_initializing(pod):
            done = "PodCompleted" if reason == "PodCompleted" else ""
            status["conditions"].append(podlib.condition("Initialized", now, done, status=True))
    if over or unready:
        status.setdefault("conditions", []).extend(
            podlib.condition(name, now, reason, message, status=False) for name in ("Ready", "ContainersReady")
        )
    return podlib.observed(pod, status)


def _stopped(pod: Obj, container: Obj | None, status: Obj, stopped: Mapping[str, tuple[Stop, str]]) -> Obj:
    name, running = status["name"], (status.get("state") or {}).get("running")
    last = (status.get("lastState") or {}).get("terminated")
    if name not in stopped:
        waits = "waiting" in (status.get("state") or {}) and last
        return {**status, "state": {"terminated": last}, "lastState": {}} if waits else status
    if running is None or container is None:
        return status
    stop, at = stopped[name]
    reason = "Error" if stop.exit_code else "Completed"
    ending = podlib.Ending(0.0, "", stop.exit_code, reason, stop_message(pod, container))
    state = podlib.terminated(pod, name, ending, running["startedAt"], at)
    return {**status, "state": state, "ready": False, "started": False}


def _is_initializing(pod: Obj) -> bool:
    """Whether the pod is stopped before its containers have begun."""
    initialized = get_condition(pod, "Initialized")
    return initialized is not None and initialized["status"] == "False"


def _exit_code(status: Obj) -> int:
    ended = (status.get("state") or {}).get("terminated")
    return int(ended["exitCode"]) if ended else KILLED
