"""What a simulated kubelet writes into a pod's status, and how long the pod runs.

Pure. The pod's annotations say how it ends: `simulated.haru.dev/run-seconds: "30"` succeeds after that time, for good;
`simulated.haru.dev/fail` fails after so many seconds, or, if it is a text (`Reason` or `Reason: message`), at once or
after run-seconds; `simulated.haru.dev/exit-code` says with which code (137 for OOMKilled, otherwise 1). Without them
the pod runs until it is deleted, or as the commands of its containers say (`containers.py`). A failure is final under
restartPolicy Never; otherwise the containers are restarted and fail again. `activeDeadlineSeconds` ends it in any case.
Source of the statuses: kubelet, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from haru.kube.meta import Obj, annotations_of, get_condition, uid_of
from haru.kube.names import format_time, parse_time, short_hash
from haru.kube.pod_containers import statuses_of
from haru.kube.pod_resize import must_restart, reported_resources
from haru.kube.simulated_containers.container_scripts import ending_reason, is_number
from haru.kube.simulated_containers.simulation import exit_code_of, seconds_of, signal_of

RUN_SECONDS: Final = "simulated.haru.dev/run-seconds"
FAIL: Final = "simulated.haru.dev/fail"
EXIT_CODE: Final = "simulated.haru.dev/exit-code"
SIGNAL: Final = "simulated.haru.dev/signal"
TERMINATION_MESSAGE: Final = "simulated.haru.dev/termination-message"
TERMINAL: Final = ("Succeeded", "Failed")
OVERDUE: Final = "Pod was active on the node longer than the specified deadline"
_KILLED_AT_ONCE: Final = 137


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
    if not annotations:
        return None
    ending = _ending(annotations)
    said = annotations.get(TERMINATION_MESSAGE)
    return ending if ending is None or said is None else replace(ending, message=said)


def _ending(annotations: Mapping[str, str]) -> Ending | None:
    run, fail = annotations.get(RUN_SECONDS), annotations.get(FAIL)
    seconds = seconds_of(RUN_SECONDS, run) if run is not None else None
    if (signal := annotations.get(SIGNAL)) is not None and fail is None:
        return Ending(seconds or 0.0, "Failed", signal_of(SIGNAL, signal), "Error")
    if fail is None:
        return None if seconds is None else Ending(seconds, "Succeeded", 0, "Completed")
    given = annotations.get(EXIT_CODE)
    if is_number(fail):
        return Ending(seconds_of(FAIL, fail), "Failed", exit_code_of(EXIT_CODE, given or "1"), "Error")
    reason, message, usual = ending_reason(fail)
    return Ending(seconds or 0.0, "Failed", exit_code_of(EXIT_CODE, given or str(usual)), reason, message)


def deadline_of(pod: Obj) -> datetime | None:
    """When `activeDeadlineSeconds` ends the pod; None if it has none or has not started."""
    seconds = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    started = (pod.get("status") or {}).get("startTime")
    return parse_time(started) + timedelta(seconds=seconds) if seconds is not None and started else None


def overdue_status(pod: Obj, now: str) -> Obj:
    """The status of a pod that was ended at its deadline, whatever its restartPolicy."""
    return with_deadline(ended_status(pod, now, Ending(0, "Failed", _KILLED_AT_ONCE, "Error")))


def with_deadline(status: Obj) -> Obj:
    """The status of a pod whose containers have ended, as they were told at its deadline."""
    conditions = [
        {**one, "reason": "PodFailed"} if one["type"] in ("Ready", "ContainersReady") else one
        for one in status.get("conditions") or ()
    ]
    return {**status, "phase": "Failed", "reason": "DeadlineExceeded", "message": OVERDUE, "conditions": conditions}


def as_stopped(pod: Obj, since: datetime) -> Obj:
    """A pod that its kubelet stops as if it had been deleted then, with the time that it has for its end."""
    grace = float((pod.get("spec") or {}).get("terminationGracePeriodSeconds") or 0)
    marks = {"deletionTimestamp": format_time(since + timedelta(seconds=grace)), "deletionGracePeriodSeconds": grace}
    return {**pod, "metadata": {**pod["metadata"], **marks}}


def condition(type_: str, now: str, reason: str = "", message: str = "", *, status: bool) -> Obj:
    """A condition as a patch: null takes away what an earlier one of the type said."""
    return {
        "type": type_,
        "status": "True" if status else "False",
        "lastTransitionTime": now,
        "reason": reason or None,
        "message": message or None,
    }


def _container_id(pod: Obj, name: str, restarts: int) -> str:
    """The identity of one run of a container."""
    run = f"/{restarts}" if restarts else ""
    return f"simulated://{short_hash(f'{uid_of(pod)}/{name}{run}', 40)}"


def container_status(
    pod: Obj, container: Mapping[str, Any], state: Obj, *, ready: bool, started: bool, restarts: int | None = None
) -> Obj:
    """The status of a container in this state; `restarts` are those of its status before if they are not given."""
    image = container.get("image") or ""
    before = statuses_of(pod).get(container["name"]) or {}
    last = before.get("lastState") or {}
    count = before.get("restartCount", 0) if restarts is None else restarts
    # Of ephemeral containers kubelets tell neither.
    reported = {} if _is_ephemeral(pod, container) else {**reported_resources(container), "started": started}
    return {
        **reported,
        "name": container["name"],
        "state": state,
        "lastState": last,
        "ready": ready,
        "restartCount": count,
        "image": image,
        "imageID": f"simulated://{short_hash(image, 40)}",
        "containerID": _container_id(pod, container["name"], count),
    }


def by_name(statuses: Iterable[Obj]) -> list[Obj]:
    """Statuses of containers in the order in which kubelets tell them; those of init containers stay as they are."""
    return sorted(statuses, key=lambda status: str(status["name"]))


def restart_reason(container: Mapping[str, Any], status: Obj) -> str:
    """Why a container that runs is to be restarted, in a kubelet's words; empty if it is not."""
    if status.get("image", "") != (container.get("image") or ""):
        return "definition changed, will be restarted"
    return "resize requires restart" if must_restart(container, status) else ""


def _is_ephemeral(pod: Obj, container: Mapping[str, Any]) -> bool:
    return any(one["name"] == container["name"] for one in (pod.get("spec") or {}).get("ephemeralContainers") or ())


def _is_sidecar(container: Mapping[str, Any]) -> bool:
    return container.get("restartPolicy") == "Always"


def terminated(pod: Obj, name: str, ending: Ending, began: str, now: str) -> Obj:
    """The state of a container that has ended."""
    restarts = (statuses_of(pod).get(name) or {}).get("restartCount", 0)
    state = {
        "exitCode": ending.exit_code,
        "reason": ending.reason,
        "startedAt": began,
        "finishedAt": now,
        "containerID": _container_id(pod, name, restarts),
    }
    if ending.message:
        state["message"] = ending.message
    return {"terminated": state}


def unmet_readiness_gates(pod: Obj) -> list[str]:
    """Why readiness gates keep a pod back, in kubelets' words."""
    texts = []
    for gate in (pod.get("spec") or {}).get("readinessGates") or ():
        kind, found = gate["conditionType"], get_condition(pod, gate["conditionType"])
        if found is None:
            texts.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif found.get("status") != "True":
            texts.append(f'the status of pod readiness gate "{kind}" is not "True", but {found.get("status")}')
    return texts


def ready_condition(pod: Obj, now: str) -> Obj:
    """The Ready condition of a pod whose containers are ready."""
    unmet = unmet_readiness_gates(pod)
    if not unmet:
        return condition("Ready", now, status=True)
    return condition("Ready", now, "ReadinessGatesNotReady", ", ".join(unmet), status=False)


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
        "containerStatuses": by_name(
            container_status(pod, c, {"running": {"startedAt": now}}, ready=True, started=True)
            for c in spec.get("containers") or ()
        ),
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
    made = by_name(
        {**container_status(pod, c, waiting, ready=False, started=False), **blank} for c in spec["containers"]
    )
    unready = [condition(t, now, "ContainersNotReady", text, status=False) for t in ("Ready", "ContainersReady")]
    conditions = [condition("PodReadyToStartContainers", now, status=False), *unready]
    if not spec.get("initContainers"):
        conditions.append(condition("Initialized", now, status=True))
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
    """The status as written for this pod: what it observed, and transition times only where there was a transition.

    Null stands only for what there was: an object with nulls costs the API server a second, slow look at all of it.
    """
    generation, scheduled = pod["metadata"].get("generation"), get_condition(pod, _SCHEDULED)
    conditions = status.get("conditions") or ()
    if conditions and scheduled is None and all(one["type"] != _SCHEDULED for one in conditions):
        # Nobody has scheduled a pod that was created with its node.
        conditions = [*conditions, condition(_SCHEDULED, conditions[0].get("lastTransitionTime") or "", status=True)]
        status = {**status, "conditions": conditions}
    for one in conditions:
        before = get_condition(pod, one["type"]) or {}
        if before.get("status") == one["status"] and before.get("lastTransitionTime"):
            one["lastTransitionTime"] = before["lastTransitionTime"]
        for name in ("reason", "message"):
            if one.get(name, "") is None and name not in before:
                del one[name]
        if generation:
            one["observedGeneration"] = generation
    if not generation:
        return status
    if conditions and scheduled is not None and scheduled.get("observedGeneration") != generation:
        seen = {"type": _SCHEDULED, "observedGeneration": generation}
        status = {**status, "conditions": [*conditions, seen]}
    return {**status, "observedGeneration": generation}


def newly_observed(pod: Obj) -> Obj | None:
    """The status of a pod whose spec has changed since it was last written; None if it has not (KEP-5067)."""
    generation, status = pod["metadata"].get("generation"), pod.get("status") or {}
    if not generation or (status.get("observedGeneration") or 0) >= generation:
        return None
    known = [one["type"] for one in status.get("conditions") or () if one["type"] in _OWN_CONDITIONS]
    conditions = [{"type": type_, "observedGeneration": generation} for type_ in known]
    return {"observedGeneration": generation, **({"conditions": conditions} if conditions else {})}


_SCHEDULED: Final = "PodScheduled"
_OWN_CONDITIONS: Final = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", _SCHEDULED)
"""Conditions in which a kubelet says which generation it has seen."""


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
        "containerStatuses": by_name(
            _ended_container(pod, c, ending, began, now) for c in spec.get("containers") or ()
        ),
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


def rejected_status(pod: Obj, now: str, reason: str, message: str) -> Obj:
    """The status of a pod that the node does not take: without any condition that kubelets write."""
    text = f"Pod was rejected: {message}"
    status = observed(pod, {"phase": "Failed", "reason": reason, "message": text, "startTime": now})
    gone = [type_ for type_ in _OWN_CONDITIONS if get_condition(pod, type_)]
    return {**status, "conditions": [{"type": type_, "$patch": "delete"} for type_ in gone]} if gone else status
