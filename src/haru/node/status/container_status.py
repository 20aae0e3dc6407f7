"""Container statuses, from the runtime and the agent.

Source: the fields of v1 ContainerStatus, and how a kubelet fills them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from haru.kube.container_restarts import is_sidecar
from haru.kube.meta import Obj
from haru.kube.names import format_time
from haru.node.podworker.observed import EXITED, RUNNING, UNKNOWN, SeenContainer, SeenPod
from haru.node.podworker.plan import ProbeResults
from haru.node.podworker.restarts import should_restart

LOST_EXIT_CODE: Final = 137
_LOST: Final = {
    "reason": "ContainerStatusUnknown",
    "message": "The container could not be located when the pod was terminated",
    "exitCode": LOST_EXIT_CODE,
}


class ContainerGroup(NamedTuple):
    """Where a pod lists containers of one kind, and their statuses."""

    spec: str
    status: str


INIT: Final = ContainerGroup("initContainers", "initContainerStatuses")
MAIN: Final = ContainerGroup("containers", "containerStatuses")
EPHEMERAL: Final = ContainerGroup("ephemeralContainers", "ephemeralContainerStatuses")


@dataclass(frozen=True, slots=True)
class StatusInputs:
    """What the agent knows of a pod beside the runtime's report."""

    runtime: str = "containerd"
    """Its name, which is part of container ids."""
    reasons: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """By container: why it was not started, as a reason and a message."""
    probed: Mapping[str, ProbeResults] = field(default_factory=dict)
    """By container id."""
    host_ips: Sequence[str] = ()
    is_over: bool = False
    """The pod's end was decided: by its work, a deadline, an eviction, or before it began."""
    failure: tuple[str, str] | None = None
    """Why the pod as a whole has failed, as a reason and a message."""
    disruption: str = ""
    """What its condition says of a pod that goes for others."""
    replaced: Set[str] = frozenset()
    """Ids of containers that were killed to be started again."""
    is_rejected: bool = False
    """The node did not take the pod: nothing else is said of it."""
    resources: Mapping[str, Obj] = field(default_factory=dict)
    """By container: the part of its status that says what it was allocated and what it has."""
    level: Mapping[str, Any] = field(default_factory=dict)
    """The part of the pod's status that says what it was allocated, and has, as a whole."""
    resizes: Sequence[tuple[str, str, str]] = ()
    """Conditions about a resize that are true: type, reason, message."""
    holds_devices: bool = False
    """Its devices could not be given back yet: until then it has not ended."""
    recursive_read_only: bool = False
    """Whether the runtime mounts what is below a volume read-only, too."""


def end_unstarted(pod: Obj, init: Sequence[Obj], main: Sequence[Obj]) -> None:
    """Say of a pod that is over that containers which never started have ended, too.

    Only those whose turn had come: containers once the init containers are through, init containers up to the last
    one that has begun, but always the first.
    """
    begun = [n for n, status in enumerate(init) if "waiting" not in status["state"] or status["lastState"]]
    is_initialized = not init or _is_through(pod["spec"]["initContainers"][-1], init[-1])
    is_initialized = is_initialized or any("waiting" not in one["state"] or one["lastState"] for one in main)
    for status in (*init[: begun[-1] + 1 if begun else 1], *(main if is_initialized else ())):
        if "terminated" not in status["state"]:
            status["state"] = {"terminated": dict(_LOST)}


def _is_through(container: Mapping[str, Any], status: Obj) -> bool:
    if is_sidecar(container):
        return bool(status["started"])
    ends = (status["state"].get("terminated"), status["lastState"].get("terminated"))
    return any(end is not None and end.get("exitCode") == 0 for end in ends)


def time_text(nanoseconds: int) -> str:
    """A time as objects have it. What never came was in 1970, as a kubelet says of a container that did not start."""
    return format_time(datetime.fromtimestamp(nanoseconds // 10**9, UTC))


def by_name(pod: Obj, *groups: ContainerGroup) -> dict[str, Obj]:
    """The statuses that a pod had."""
    status = pod.get("status") or {}
    return {entry["name"]: entry for group in groups for entry in status.get(group.status) or ()}


def living_ids(pod: Obj) -> list[str]:
    """Runtime ids of the containers that have not terminated by the pod's status."""
    told = by_name(pod, INIT, MAIN, EPHEMERAL).values()
    living = [one for one in told if "terminated" not in (one.get("state") or {})]
    return [id_ for one in living if (id_ := str(one.get("containerID") or "").rpartition("://")[2])]


def has_run(status: Mapping[str, Any]) -> bool:
    """Whether a container was started, by its status."""
    ended = (status.get("lastState") or {}).get("terminated") or {}
    return "waiting" not in (status.get("state") or {}) or ended.get("containerID") == status.get("containerID")


def container_statuses(pod: Obj, seen: SeenPod, known: StatusInputs, group: ContainerGroup) -> list[Obj]:
    """Statuses: of init containers in the order of the spec, of others by name."""
    found = [_status(pod, container, seen, known, group) for container in pod["spec"].get(group.spec) or ()]
    return found if group is INIT else sorted(found, key=lambda status: str(status["name"]))


def _status(pod: Obj, container: Mapping[str, Any], seen: SeenPod, known: StatusInputs, group: ContainerGroup) -> Obj:
    history, init = seen.history(container["name"]), group is INIT
    if not history:
        return _unseen(pod, container, known, group)
    newest = history[0]
    state = _state(newest, known, pod, container)
    if len(history) > 1 and history[1].state == EXITED:
        last: Obj | None = _ended(history[1], known)
    else:
        last = _earlier_end(by_name(pod, group).get(container["name"]), newest)
    reason = known.reasons.get(container["name"])
    if "terminated" in state and group is not EPHEMERAL and not known.is_over:
        again = should_restart(pod, container, newest, init=init)
        # No API takes back the end of a container that would not start again but for its killer.
        if (reason and again) or (newest.id in known.replaced and not again):
            last, state = state, {"waiting": _waiting(*(reason or (_initial(pod), "")))}
    said = known.probed.get(newest.id, ProbeResults())
    started, ready = _started_and_ready(container, newest, said, group)
    status: Obj = {
        "name": container["name"],
        "state": state,
        "lastState": last or {},
        "ready": ready,
        "restartCount": newest.attempt,
        "image": newest.image.name or container.get("image", ""),
        "imageID": newest.image.ref,
        "containerID": f"{known.runtime}://{newest.id}",
    }
    if started is not None:
        status["started"] = started
    if newest.user is not None:
        status["user"] = {"linux": dict(newest.user)}
    return status | known.resources.get(container["name"], {}) | _volume_mounts(container, known)


def _earlier_end(before: Obj | None, newest: SeenContainer) -> Obj | None:
    """How the start before this one ended, where only the pod's status still says it."""
    if before is None or not before.get("containerID"):
        return None
    if not str(before["containerID"]).endswith(f"//{newest.id}") and "terminated" in (before.get("state") or {}):
        return dict(before["state"])
    return before.get("lastState")


def _unseen(pod: Obj, container: Mapping[str, Any], known: StatusInputs, group: ContainerGroup) -> Obj:
    """Of a container that the runtime does not know: it has not begun, or was removed."""
    before = by_name(pod, group).get(container["name"])
    status: Obj = {
        "name": container["name"],
        "state": {"waiting": _waiting(*known.reasons.get(container["name"], (_initial(pod), "")))},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": container.get("image", ""),
        "imageID": "",
    }
    if group is not EPHEMERAL:
        status["started"] = False
    if before is not None:
        had = before.get("state") or {}
        status |= {key: before[key] for key in ("restartCount", "imageID", "containerID") if before.get(key)}
        status["lastState"] = before.get("lastState") or {}
        if "terminated" in had:
            status["state"] = had
            if group is INIT and had["terminated"].get("exitCode") == 0 and not is_sidecar(container):
                status["ready"] = True
        elif "running" in had:
            if known.is_over:
                status["state"] = {"terminated": dict(_LOST)}
            else:
                text = "The container could not be located when the pod was deleted.  The container used to be Running"
                status["lastState"] = {"terminated": {**_LOST, "message": text}}
                status["restartCount"] = before.get("restartCount", 0) + 1
    return status | _volume_mounts(container, known)


def _initial(pod: Obj) -> str:
    return "PodInitializing" if pod["spec"].get("initContainers") else "ContainerCreating"


def _waiting(reason: str, message: str) -> Obj:
    return {"reason": reason, "message": message} if message else {"reason": reason}


def _state(seen: SeenContainer, known: StatusInputs, pod: Obj, container: Mapping[str, Any]) -> Obj:
    if seen.state == RUNNING:
        return {"running": {"startedAt": time_text(seen.started_at)}}
    if seen.state == EXITED:
        return _ended(seen, known)
    if seen.state == UNKNOWN:
        return {"terminated": {**_LOST, "containerID": f"{known.runtime}://{seen.id}"}}
    return {"waiting": _waiting(*known.reasons.get(container["name"], (_initial(pod), "")))}


def _ended(seen: SeenContainer, known: StatusInputs) -> Obj:
    state: Obj = {
        "exitCode": seen.exit_code,
        "reason": seen.reason or ("Completed" if seen.exit_code == 0 else "Error"),
        "startedAt": time_text(seen.started_at),
        "finishedAt": time_text(seen.finished_at),
        "containerID": f"{known.runtime}://{seen.id}",
    }
    if seen.message:
        state["message"] = seen.message
    return {"terminated": state}


def _started_and_ready(
    container: Mapping[str, Any], seen: SeenContainer, said: ProbeResults, group: ContainerGroup
) -> tuple[bool | None, bool]:
    if group is EPHEMERAL:
        return None, False
    if group is INIT and not is_sidecar(container):
        return seen.runs, seen.state == EXITED and seen.exit_code == 0
    if not seen.runs:
        return False, False
    started = said.startup is True if container.get("startupProbe") else True
    ready = started and (said.readiness is True if container.get("readinessProbe") else True)
    return started, ready


def _volume_mounts(container: Mapping[str, Any], known: StatusInputs) -> Obj:
    mounts = []
    for mount in container.get("volumeMounts") or ():
        entry: Obj = {"name": mount["name"], "mountPath": mount["mountPath"]}
        if mount.get("readOnly"):
            whole = known.recursive_read_only and (mount.get("recursiveReadOnly") or "Disabled") != "Disabled"
            entry |= {"readOnly": True, "recursiveReadOnly": "Enabled" if whole else "Disabled"}
        mounts.append(entry)
    return {"volumeMounts": mounts} if mounts else {}
