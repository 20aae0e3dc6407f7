"""The status of a pod: its phase, its conditions and its containers, as a kubelet writes it.

Source: the pod lifecycle as documented; the conditions of KEP-3085 (PodReadyToStartContainers) and KEP-580 (readiness
gates); KEP-5067 (observedGeneration).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from haru.kube.container_restarts import ALL_RESTARTING, is_sidecar, may_restart_all, restarts_after, was_removed
from haru.kube.meta import Obj, get_condition
from haru.kube.pod_resize import IN_PROGRESS, PENDING
from haru.node.podworker.all_restarts import tell_removed, to_remove
from haru.node.podworker.observed import SeenPod
from haru.node.podworker.plan import uses_host_network
from haru.node.status.container_status import (
    EPHEMERAL,
    INIT,
    MAIN,
    StatusInputs,
    by_name,
    container_statuses,
    end_unstarted,
)

TERMINAL = ("Succeeded", "Failed")
_MOST_MESSAGES = 12 * 1024
"""How many bytes of termination messages a status has, shared among the containers alike."""
_OWN = frozenset({"PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"})


def pod_status(pod: Obj, seen: SeenPod, known: StatusInputs, now: str) -> Obj:
    """The whole status that follows; what others write (other conditions, nominations) is not in it."""
    before = pod.get("status") or {}
    started = {"startTime": before.get("startTime") or now}
    if generation := pod["metadata"].get("generation"):
        started["observedGeneration"] = generation
    if known.is_rejected and known.failure is not None:
        return {"phase": "Failed", "reason": known.failure[0], "message": known.failure[1], **started}
    init = container_statuses(pod, seen, known, INIT)
    main = container_statuses(pod, seen, known, MAIN)
    tell_removed(pod, seen, (*init, *main), by_name(pod, INIT, MAIN).values())
    ephemeral = container_statuses(pod, seen, known, EPHEMERAL)
    _shorten_messages((*init, *main, *ephemeral))
    phase = _phase(pod, init, main, seen, known)
    conditions = _conditions(pod, init, main, phase, seen)
    if phase in TERMINAL:
        end_unstarted(pod, init, main)
    status: Obj = {"phase": phase, **started, "containerStatuses": main}
    if init:
        status["initContainerStatuses"] = init
    if ephemeral:
        status["ephemeralContainerStatuses"] = ephemeral
    if known.failure is not None and phase in TERMINAL:
        status["reason"], status["message"] = known.failure
        if known.disruption:
            conditions.append(_Condition("DisruptionTarget", True, "TerminationByKubelet", known.disruption))
    elif before.get("reason") and phase in TERMINAL:
        status["reason"], status["message"] = before["reason"], before.get("message")
    status |= known.level
    if known.host_ips:
        status["hostIP"] = known.host_ips[0]
        status["hostIPs"] = [{"ip": ip} for ip in known.host_ips]
    ips = pod_ips(pod, seen, known.host_ips) or [one["ip"] for one in before.get("podIPs") or ()]
    if ips:
        status["podIP"] = ips[0]
        status["podIPs"] = [{"ip": ip} for ip in ips]
    conditions += [_Condition(type_, True, *why) for type_, *why in known.resizes if phase not in TERMINAL]
    status["conditions"] = [_condition(pod, condition, now) for condition in conditions]
    return {key: value for key, value in status.items() if value is not None}


def _shorten_messages(statuses: Sequence[Obj]) -> None:
    """Cut the last words of containers, so that those of all together are in bounds."""
    for status in statuses:
        for state in (status["state"], status["lastState"]):
            ended = state.get("terminated") or {}
            data = ended.get("message", "").encode()
            if len(data) > (most := _MOST_MESSAGES // len(statuses)):
                ended["message"] = data[:most].decode(errors="ignore")


def pod_ips(pod: Obj, seen: SeenPod, host_ips: Sequence[str]) -> list[str]:
    """The pod's addresses, if it has any."""
    if uses_host_network(pod):
        return list(host_ips) if seen.sandbox is not None else []
    return list(seen.sandbox.ips) if seen.sandbox is not None else []


# -- phase ------------------------------------------------------------------------------------------------------------


def _phase(pod: Obj, init: Sequence[Obj], main: Sequence[Obj], seen: SeenPod, known: StatusInputs) -> str:
    before = (pod.get("status") or {}).get("phase") or "Pending"
    if before in TERMINAL:
        return str(before)
    if known.is_over and (seen.runs or known.holds_devices):
        # Nobody may take a pod for ended while a process of it runs, or its devices for free.
        return str(before)
    if known.failure is not None:
        return "Failed"
    return _phase_of(pod, init, main, known)


def _phase_of(pod: Obj, init: Sequence[Obj], main: Sequence[Obj], known: StatusInputs) -> str:
    specs = {container["name"]: container for container in pod["spec"].get("initContainers") or ()}
    ordinary = [status for status in init if not is_sidecar(specs[status["name"]])]
    failures = [(specs[status["name"]], end) for status in ordinary if (end := _failure(status)) is not None]
    if any(known.is_over or not _starts_again(pod, *failure) for failure in failures):
        return "Failed"
    works = known.is_over or any("running" in status["state"] for status in main)
    if not works and any(_is_on_its_way(status) for status in ordinary):
        return "Pending"
    has_begun = any(status["state"].keys() & {"running", "terminated"} or status["lastState"] for status in main)
    pending = [status for status in ordinary if not _succeeded(status)]
    pending += [status for status in init if is_sidecar(specs[status["name"]]) and not status["started"]]
    if pending and not has_begun and not known.is_over:
        return "Pending"
    return _phase_of_containers(pod, main, known)


def _phase_of_containers(pod: Obj, main: Sequence[Obj], known: StatusInputs) -> str:
    waiting = sum(1 for status in main if "waiting" in status["state"] and not status["lastState"])
    running = sum(1 for status in main if "running" in status["state"])
    ended = len(main) - waiting - running
    succeeded = sum(1 for status in main if _succeeded(status))
    if known.is_over:
        return "Succeeded" if succeeded == len(main) else "Failed"
    if waiting and not (running or ended):
        return "Pending"
    if waiting:
        return "Pending"
    if running or ended:
        return "Running"
    return "Pending"


def _succeeded(status: Obj) -> bool:
    ended = status["state"].get("terminated")
    return ended is not None and ended.get("exitCode") == 0


def _failure(status: Obj) -> Obj | None:
    """How a container ended last, if not well and if it does not run again."""
    ended: Obj | None = status["state"].get("terminated")
    if "waiting" in status["state"]:
        ended = (status["lastState"] or {}).get("terminated")
    return ended if ended is not None and ended.get("exitCode") != 0 else None


def _starts_again(pod: Obj, container: Obj, end: Obj) -> bool:
    return was_removed(end) or restarts_after(pod, container, int(end.get("exitCode", 0)), init=True)


def _is_on_its_way(status: Obj) -> bool:
    return "running" in status["state"] or ("waiting" in status["state"] and not status["lastState"])


# -- conditions -------------------------------------------------------------------------------------------------------


class _Condition(NamedTuple):
    type: str
    holds: bool
    reason: str = ""
    message: str = ""


def _conditions(pod: Obj, init: Sequence[Obj], main: Sequence[Obj], phase: str, seen: SeenPod) -> list[_Condition]:
    specs = {container["name"]: container for container in pod["spec"].get("initContainers") or ()}
    sidecars = [status for status in init if is_sidecar(specs[status["name"]])]
    sandbox = seen.sandbox
    networked = sandbox is not None and sandbox.ready and (uses_host_network(pod) or bool(sandbox.ips))
    are_ready = {status["name"]: status["ready"] for status in main}
    unready = [status["name"] for status in sidecars if not status["ready"]]
    # In the order of the spec, whereas statuses are in that of their names.
    unready += [one["name"] for one in pod["spec"]["containers"] if not are_ready.get(one["name"], True)]
    containers = _ready_containers(phase, unready)
    found = [
        _Condition("PodReadyToStartContainers", networked and phase not in TERMINAL),
        _initialized(pod, init, sidecars, phase, main),
        _Condition("Ready", *_ready(pod, containers)),
        _Condition("ContainersReady", *containers),
        _Condition("PodScheduled", True),
    ]
    return [*found, _all_restarting(pod, seen, phase)] if may_restart_all(pod["spec"]) else found


def _all_restarting(pod: Obj, seen: SeenPod, phase: str) -> _Condition:
    if phase in TERMINAL:
        return _Condition(ALL_RESTARTING, False, "PodCompleted" if phase == "Succeeded" else "PodFailed")
    if to_remove(pod, seen):
        return _Condition(
            ALL_RESTARTING, True, "RestartAllContainersStarted", "container exited with restart policy rule"
        )
    return _Condition(ALL_RESTARTING, False)


def _initialized(pod: Obj, init: Sequence[Obj], sidecars: Sequence[Obj], phase: str, main: Sequence[Obj]) -> _Condition:
    if phase == "Succeeded":
        return _Condition("Initialized", True, "PodCompleted")
    names = {status["name"] for status in sidecars}
    has_begun = any("running" in s["state"] or "terminated" in s["state"] or s["lastState"] for s in main)
    missing = [s["name"] for s in init if not (s["started"] if s["name"] in names else s["ready"])]
    # What was initialized once stays so, also while its init containers run again.
    was = (get_condition(pod, "Initialized") or {}).get("status") == "True"
    if not missing or was or (has_begun and all(name in names for name in missing)):
        return _Condition("Initialized", True)
    message = _listed("containers with incomplete status", missing)
    return _Condition("Initialized", False, "ContainersNotInitialized", message)


def _ready_containers(phase: str, unready: Sequence[str]) -> tuple[bool, str, str]:
    if phase == "Succeeded":
        return False, "PodCompleted", ""
    if phase == "Failed":
        return False, "PodFailed", ""
    if unready:
        return False, "ContainersNotReady", _listed("containers with unready status", unready)
    return True, "", ""


def _ready(pod: Obj, containers: tuple[bool, str, str]) -> tuple[bool, str, str]:
    if not containers[0]:
        return containers
    texts = []
    for gate in pod["spec"].get("readinessGates") or ():
        kind = gate["conditionType"]
        found = get_condition(pod, kind)
        if found is None:
            texts.append(f'corresponding condition of pod readiness gate "{kind}" does not exist.')
        elif found.get("status") != "True":
            texts.append(f'the status of pod readiness gate "{kind}" is not "True", but {found.get("status")}')
    return (False, "ReadinessGatesNotReady", ", ".join(texts)) if texts else containers


def _listed(what: str, names: Sequence[str]) -> str:
    return f"{what}: [{' '.join(names)}]"


def _condition(pod: Obj, condition: _Condition, now: str) -> Obj:
    """A condition as objects have it; its time of transition stays while its status does."""
    status = "True" if condition.holds else "False"
    had: Mapping[str, Any] = get_condition(pod, condition.type) or {}
    since = had["lastTransitionTime"] if had.get("status") == status and had.get("lastTransitionTime") else now
    found: Obj = {"type": condition.type, "status": status, "lastTransitionTime": since}
    if condition.reason:
        found["reason"] = condition.reason
    if condition.message:
        found["message"] = condition.message
    if generation := pod["metadata"].get("generation"):
        found["observedGeneration"] = generation
    return found


def status_patch(before: Obj, after: Obj) -> Obj | None:
    """The strategic merge patch of one status into the other; None if nothing differs.

    Conditions merge by type: those of others stay, own ones that do not hold any more go, and a field that went away is
    said to be null. Addresses would
    merge, too: those of a sandbox that is gone are replaced.
    """
    patch: Obj = {key: value for key, value in after.items() if key != "conditions" and before.get(key) != value}
    for name in ("resources", "allocatedResources"):
        if name in patch and before.get(name):
            patch[name] = _replacing(before[name], patch[name])
    for name in ("podIPs", "hostIPs"):
        if name in patch:
            patch[name] = [{"$patch": "replace"}, *patch[name]]
    had = {condition["type"]: condition for condition in before.get("conditions") or ()}
    conditions = []
    for condition in after.get("conditions") or ():
        old = had.get(condition["type"], {})
        if _without_probe_times(old) != condition:
            conditions.append({**{key: None for key in old if key not in condition}, **condition})
    told = {condition["type"] for condition in after.get("conditions") or ()}
    gone = sorted((_OWN | {PENDING, IN_PROGRESS}) & had.keys() - told)
    conditions += [{"$patch": "delete", "type": type_} for type_ in gone]
    if conditions:
        patch["conditions"] = conditions
    return patch or None


def _replacing(before: Obj, after: Obj) -> Obj:
    """A map that merges into the other one."""
    found: Obj = {key: None for key in before if key not in after}
    for key, value in after.items():
        found[key] = _replacing(before[key], value) if isinstance(value, dict) and before.get(key) else value
    return found


def _without_probe_times(condition: Mapping[str, Any]) -> Obj:
    return {key: value for key, value in condition.items() if key != "lastProbeTime"}
