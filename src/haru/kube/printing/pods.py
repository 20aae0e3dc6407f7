"""Pods and nodes: the two whose status column is a small piece of logic of its own."""

from __future__ import annotations

from typing import Any

from haru.kube.meta import Obj
from haru.kube.printing.base import NONE, Age, age, condition, instant, meta, name, printer, since, spec, status

_ROLE = "node-role.kubernetes.io/"


class _Restarts:
    """How often containers were started again, and when last."""

    def __init__(self) -> None:
        self.count = 0
        self.last: str = ""

    def add(self, container: Obj) -> None:
        self.count += container.get("restartCount", 0)
        finished = ((container.get("lastState") or {}).get("terminated") or {}).get("finishedAt") or ""
        then, newest = instant(finished), instant(self.last)
        if then is not None and (newest is None or then > newest):
            self.last = finished

    def cell(self) -> Age | str:
        return since(self.last, f"{self.count} ({{}} ago)") if self.count and self.last else str(self.count)


def _ending(terminated: Obj) -> str:
    """Why a container ended: its reason, else its signal or exit status."""
    if terminated.get("reason"):
        return str(terminated["reason"])
    if terminated.get("signal"):
        return f"Signal:{terminated['signal']}"
    return f"ExitCode:{terminated.get('exitCode', 0)}"


def _pod(pod: Obj) -> list[Any]:
    pod_status = status(pod)
    reason = pod_status.get("reason") or pod_status.get("phase") or ""
    if condition(pod, "PodScheduled").get("reason") == "SchedulingGated":
        reason = "SchedulingGated"
    sidecars = {c.get("name") for c in spec(pod).get("initContainers") or () if c.get("restartPolicy") == "Always"}
    initializing, ready, restarts, sidecar_restarts = _init_containers(pod, sidecars)
    reason = initializing or reason
    if not initializing or condition(pod, "Initialized").get("status") == "True":
        restarts = sidecar_restarts
        reason, main_ready = _main_containers(pod, reason, restarts)
        ready += main_ready
    if meta(pod).get("deletionTimestamp"):
        if pod_status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif pod_status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    total = len(spec(pod).get("containers") or ()) + len(sidecars)
    return [name(pod), f"{ready}/{total}", reason, restarts.cell(), age(pod), *_pod_places(pod)]


def _init_containers(pod: Obj, sidecars: set[Any]) -> tuple[str, int, _Restarts, _Restarts]:
    """What initialization waits for (empty when for nothing), ready sidecars, restarts of all and of sidecars."""
    ready, restarts, sidecar_restarts = 0, _Restarts(), _Restarts()
    for position, container in enumerate(status(pod).get("initContainerStatuses") or ()):
        restarts.add(container)
        is_sidecar = container.get("name") in sidecars
        if is_sidecar:
            sidecar_restarts.add(container)
        state = container.get("state") or {}
        terminated, waiting = state.get("terminated"), (state.get("waiting") or {}).get("reason", "")
        if terminated is not None and terminated.get("exitCode", 0) == 0:
            continue
        if is_sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            return f"Init:{_ending(terminated)}", ready, restarts, sidecar_restarts
        if waiting and waiting != "PodInitializing":
            return f"Init:{waiting}", ready, restarts, sidecar_restarts
        total = len(spec(pod).get("initContainers") or ())
        return f"Init:{position}/{total}", ready, restarts, sidecar_restarts
    return "", ready, restarts, sidecar_restarts


def _main_containers(pod: Obj, reason: str, restarts: _Restarts) -> tuple[str, int]:
    """The reason as the main containers have it (the first one's counts most), and how many are ready."""
    ready = 0
    for container in reversed(status(pod).get("containerStatuses") or ()):
        restarts.add(container)
        state = container.get("state") or {}
        waiting, terminated = (state.get("waiting") or {}).get("reason"), state.get("terminated")
        if waiting:
            reason = str(waiting)
        elif terminated is not None:
            reason = _ending(terminated)
        elif container.get("ready") and state.get("running") is not None:
            ready += 1
    if reason == "Completed" and ready:
        reason = "Running" if condition(pod, "Ready").get("status") == "True" else "NotReady"
    return reason, ready


def _pod_places(pod: Obj) -> list[str]:
    pod_status = status(pod)
    addresses = pod_status.get("podIPs") or ()
    address = addresses[0].get("ip") if addresses else pod_status.get("podIP")
    gates = spec(pod).get("readinessGates") or ()
    passed = sum(condition(pod, gate.get("conditionType", "")).get("status") == "True" for gate in gates)
    return [
        address or NONE,
        spec(pod).get("nodeName") or NONE,
        pod_status.get("nominatedNodeName") or NONE,
        f"{passed}/{len(gates)}" if gates else NONE,
    ]


def _node(node: Obj) -> list[Any]:
    ready = condition(node, "Ready")
    words = ["Ready" if ready.get("status") == "True" else "NotReady"] if ready else ["Unknown"]
    if spec(node).get("unschedulable"):
        words.append("SchedulingDisabled")
    labels = meta(node).get("labels") or {}
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)} | {labels.get("kubernetes.io/role")}
    addresses = {a.get("type"): a.get("address") for a in reversed(status(node).get("addresses") or ())}
    info = status(node).get("nodeInfo") or {}
    architecture = f" ({info['architecture']})" if info.get("architecture") else ""
    return [
        name(node),
        ",".join(words),
        ",".join(sorted(role for role in roles if role)) or NONE,
        age(node),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP") or NONE,
        addresses.get("ExternalIP") or NONE,
        info.get("osImage") or "<unknown>",
        (info.get("kernelVersion") or "<unknown>") + architecture,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


_OVER = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}


def row_conditions(pod: Obj) -> list[Obj]:
    """What the row of a pod says beside its cells: that the pod is over."""
    phase = str(status(pod).get("phase"))
    if phase not in _OVER:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": _OVER[phase]}]


PRINTERS = {
    ("", "pods"): printer("Name Ready Status Restarts Age IP* Node* Nominated_Node* Readiness_Gates*", _pod),
    ("", "nodes"): printer(
        "Name Status Roles Age Version Internal-IP* External-IP* OS-Image* Kernel-Version* Container-Runtime*", _node
    ),
}
