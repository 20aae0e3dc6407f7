"""What a simulated kubelet writes into a pod's status, and how long the pod runs.

Pure. The pod's annotations say how it ends: `simulated.haru.dev/run-seconds: "30"` succeeds after that time, for good;
`simulated.haru.dev/fail` fails after so many seconds, or, if it is a text (`Reason` or `Reason: message`), at once or
after run-seconds; `simulated.haru.dev/exit-code` says with which code (137 for OOMKilled, otherwise 1). Without them
the pod runs until it is deleted, or as the commands of its containers say (`containers.py`). A failure is final under
restartPolicy Never; otherwise the containers are restarted and fail again. `activeDeadlineSeconds` ends it in any case.
Source of the statuses: kubelet, as behaviour.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from haru.kube.container_scripts import OOM_EXIT_CODE, OOM_KILLED
from haru.kube.meta import Obj, annotations_of, get_condition, uid_of
from haru.kube.names import parse_time, short_hash
from haru.kube.node_admission import admission_problem as admission_problem
from haru.simulated_nodes.resize import reported_resources

RUN_SECONDS: Final = "simulated.haru.dev/run-seconds"
FAIL: Final = "simulated.haru.dev/fail"
EXIT_CODE: Final = "simulated.haru.dev/exit-code"
TERMINAL: Final = ("Succeeded", "Failed")
OVERDUE: Final = "Pod was active on the node longer than the specified deadline"
_KILLED: Final = 143
_KILLED_AT_ONCE: Final = 137
_MAX_EXIT_CODE: Final = 255


@dataclass(frozen=True, slots=True)
class Ending:
    """How and when a pod ends by itself."""

    after_seconds: float
    phase: str
    exit_code: int
    reason: str
    message: str = ""


_COMPLETED: Final = Ending(0.0, "Succeeded", 0, "Completed")


def ending_of(pod: Obj) -> Ending | None:
    """The end that the annotations ask for, None for a pod that runs on; ValueError for a malformed annotation."""
    annotations = annotations_of(pod)
    run, fail = annotations.get(RUN_SECONDS), annotations.get(FAIL)
    seconds = _seconds(RUN_SECONDS, run) if run is not None else None
    if fail is None:
        return None if seconds is None else Ending(seconds, "Succeeded", 0, "Completed")
    usual = OOM_EXIT_CODE if fail.partition(":")[0].strip() == OOM_KILLED else 1
    code = _exit_code(annotations.get(EXIT_CODE, str(usual)))
    if re.fullmatch(r"[0-9]+(\.[0-9]*)?", fail):
        return Ending(_seconds(FAIL, fail), "Failed", code, "Error")
    reason, _, message = fail.partition(":")
    return Ending(seconds or 0.0, "Failed", code, reason.strip() or "Error", message.strip() or fail.strip())


def deadline_of(pod: Obj) -> datetime | None:
    """When `activeDeadlineSeconds` ends the pod; None if it has none or has not started."""
    seconds = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    started = (pod.get("status") or {}).get("startTime")
    return parse_time(started) + timedelta(seconds=seconds) if seconds is not None and started else None


def overdue_status(pod: Obj, now: str) -> Obj:
    """The status of a pod that was ended at its deadline, whatever its restartPolicy."""
    status = ended_status(pod, now, Ending(0, "Failed", _KILLED_AT_ONCE, "Error"))
    return {**status, "reason": "DeadlineExceeded", "message": OVERDUE}


def _exit_code(text: str) -> int:
    code = int(text) if text.isascii() and text.isdigit() else 0
    if not 1 <= code <= _MAX_EXIT_CODE:
        raise ValueError(f'annotation {EXIT_CODE}: "{text}" is no exit code, write a number from 1 to {_MAX_EXIT_CODE}')
    return code


def _seconds(annotation: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f'annotation {annotation}: "{text}" is no number of seconds, write for example "30"')
    return seconds


def condition(type_: str, now: str, reason: str = "", message: str = "", *, status: bool) -> Obj:
    """A condition as a patch: null takes away what an earlier one of the type said."""
    return {
        "type": type_,
        "status": "True" if status else "False",
        "lastTransitionTime": now,
        "reason": reason or None,
        "message": message or None,
    }


def _container_id(pod: Obj, name: str) -> str:
    return f"simulated://{short_hash(uid_of(pod) + '/' + name, 40)}"


def container_status(pod: Obj, container: Mapping[str, Any], state: Obj, *, ready: bool, started: bool) -> Obj:
    """The status of a container in this state."""
    image = container.get("image") or ""
    before = statuses(pod).get(container["name"]) or {}
    last = before.get("lastState") or {}
    resources = {} if _is_ephemeral(pod, container) else reported_resources(container)
    return {
        **resources,
        "name": container["name"],
        "state": state,
        "lastState": last,
        "ready": ready,
        "restartCount": before.get("restartCount", 0),
        "image": image,
        "imageID": f"simulated://{short_hash(image, 40)}",
        "containerID": _container_id(pod, container["name"]),
        "started": started,
    }


def statuses(pod: Obj) -> dict[str, Obj]:
    """The container statuses of a pod by name, of whatever kind."""
    status = pod.get("status") or {}
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return {entry["name"]: entry for kind in kinds for entry in status.get(kind) or ()}


def _is_ephemeral(pod: Obj, container: Mapping[str, Any]) -> bool:
    return any(one["name"] == container["name"] for one in (pod.get("spec") or {}).get("ephemeralContainers") or ())


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def terminated(pod: Obj, name: str, ending: Ending, began: str, now: str) -> Obj:
    """The state of a container that has ended."""
    state = {
        "exitCode": ending.exit_code,
        "reason": ending.reason,
        "startedAt": began,
        "finishedAt": now,
        "containerID": _container_id(pod, name),
    }
    if ending.message:
        state["message"] = ending.message
    return {"terminated": state}


def unmet_readiness_gates(pod: Obj) -> list[str]:
    """Readiness gates whose condition is not True."""
    gates = [gate["conditionType"] for gate in (pod.get("spec") or {}).get("readinessGates") or ()]
    return [gate for gate in gates if (get_condition(pod, gate) or {}).get("status") != "True"]


def ready_condition(pod: Obj, now: str) -> Obj:
    """The Ready condition of a pod whose containers are ready."""
    unmet = unmet_readiness_gates(pod)
    if not unmet:
        return condition("Ready", now, status=True)
    listed = ", ".join(f'corresponding condition of pod readiness gate "{gate}" does not exist or is not True'
                       for gate in unmet)  # fmt: skip
    return condition("Ready", now, "ReadinessGatesNotReady", listed, status=False)


def running_status(pod: Obj, now: str, host_ip: str, pod_ip: str) -> Obj:
    """The status of a pod whose containers have all started."""
    spec = pod.get("spec") or {}
    status: Obj = {
        "phase": "Running",
        "startTime": (pod.get("status") or {}).get("startTime") or now,
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "conditions": [
            condition("PodReadyToStartContainers", now, status=True),
            condition("Initialized", now, status=True),
            ready_condition(pod, now),
            condition("ContainersReady", now, status=True),
        ],
        "containerStatuses": [
            container_status(pod, c, {"running": {"startedAt": now}}, ready=True, started=True)
            for c in spec.get("containers") or ()
        ],
    }
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [
            container_status(pod, c, {"running": {"startedAt": now}}, ready=True, started=True)
            if _is_sidecar(c)
            else container_status(pod, c, terminated(pod, c["name"], _COMPLETED, now, now), ready=True, started=False)
            for c in spec["initContainers"]
        ]
    if spec.get("resources"):
        status |= reported_resources(spec)
    return observed(pod, status)


def creating_status(pod: Obj, now: str, host_ip: str) -> Obj:
    """The status of a pod none of whose containers can be made yet."""
    spec = pod.get("spec") or {}
    names = [container["name"] for container in spec.get("containers") or ()]
    text = f"containers with unready status: [{' '.join(names)}]"
    waiting = {"waiting": {"reason": "PodInitializing" if spec.get("initContainers") else "ContainerCreating"}}
    blank = {"imageID": "", "containerID": ""}
    made = [{**container_status(pod, c, waiting, ready=False, started=False), **blank} for c in spec["containers"]]
    unready = [condition(t, now, "ContainersNotReady", text, status=False) for t in ("Ready", "ContainersReady")]
    conditions = [condition("PodReadyToStartContainers", now, status=False), *unready]
    addresses = {"hostIP": host_ip, "hostIPs": [{"ip": host_ip}]}
    return observed(pod, {"startTime": now, **addresses, "conditions": conditions, "containerStatuses": made})


def joined_status(pod: Obj, now: str) -> Obj | None:
    """The status of a running pod whose ephemeral containers (`kubectl debug`) have started; None if all had."""
    there = (pod.get("status") or {}).get("ephemeralContainerStatuses") or ()
    known = {entry["name"] for entry in there}
    new = [c for c in (pod.get("spec") or {}).get("ephemeralContainers") or () if c["name"] not in known]
    if not new:
        return None
    started = [container_status(pod, c, {"running": {"startedAt": now}}, ready=False, started=False) for c in new]
    return observed(pod, {"ephemeralContainerStatuses": [*there, *started]})


def observed(pod: Obj, status: Obj) -> Obj:
    """The status as written for this pod: what it observed, and transition times only where there was a transition."""
    for condition in status.get("conditions") or ():
        before = get_condition(pod, condition["type"]) or {}
        if before.get("status") == condition["status"] and before.get("lastTransitionTime"):
            condition["lastTransitionTime"] = before["lastTransitionTime"]
    generation = pod["metadata"].get("generation")
    return {**status, "observedGeneration": generation} if generation else status


def ended_status(pod: Obj, now: str, ending: Ending) -> Obj:
    """The status of a pod that ended by itself."""
    spec, before = pod.get("spec") or {}, pod.get("status") or {}
    began = before.get("startTime") or now
    reason = "PodCompleted" if ending.phase == "Succeeded" else "PodFailed"
    status: Obj = {
        "phase": ending.phase,
        "conditions": [
            condition("PodReadyToStartContainers", now, status=False),
            condition("Initialized", now, "PodCompleted" if ending.phase == "Succeeded" else "", status=True),
            condition("Ready", now, reason, status=False),
            condition("ContainersReady", now, reason, status=False),
        ],
        "containerStatuses": [_ended_container(pod, c, ending, began, now) for c in spec.get("containers") or ()],
    }
    sidecars = [c for c in spec.get("initContainers") or () if _is_sidecar(c)]
    if sidecars:
        ended = {c["name"]: _ended_container(pod, c, _COMPLETED, began, now) for c in sidecars}
        others = before.get("initContainerStatuses") or ()
        status["initContainerStatuses"] = [ended.get(entry["name"], entry) for entry in others] or list(ended.values())
    joined = {entry["name"] for entry in before.get("ephemeralContainerStatuses") or ()}
    if joined:
        status["ephemeralContainerStatuses"] = [
            _ended_container(pod, c, ending, began, now)
            for c in spec.get("ephemeralContainers") or ()
            if c["name"] in joined
        ]
    return observed(pod, status)


def _ended_container(pod: Obj, container: Mapping[str, Any], ending: Ending, began: str, now: str) -> Obj:
    state = terminated(pod, container["name"], ending, began, now)
    return container_status(pod, container, state, ready=False, started=False)


def started_at(pod: Obj) -> datetime | None:
    """When the containers were last started."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        running = (status.get("state") or {}).get("running") or {}
        if running.get("startedAt"):
            return parse_time(running["startedAt"])
    text = (pod.get("status") or {}).get("startTime")
    return parse_time(text) if text else None


# --- ends that others bring about


def killed_status(pod: Obj, now: str) -> Obj:
    """The status of a pod that was deleted: its containers, if any, were told to stop and did."""
    if (pod.get("status") or {}).get("phase") == "Running":
        return ended_status(pod, now, Ending(0, "Failed", _KILLED, "Error"))
    return observed(pod, {"phase": "Failed"})


def rejected_status(pod: Obj, now: str, reason: str, message: str) -> Obj:
    """The status of a pod that the node does not take."""
    text = f"Pod was rejected: {message}"
    return observed(pod, {"phase": "Failed", "reason": reason, "message": text, "startTime": now})
