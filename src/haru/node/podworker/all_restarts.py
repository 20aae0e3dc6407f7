"""Restarting all containers of a pod in place, once one of them has ended as a rule of its own says. Pure.

Every start of each container is removed from the runtime, without grace and with no pause of a crash loop; the sandbox
and the volumes stay, and the pod begins anew with its init containers. The ends that ask for it are removed last: while
one is there, whoever comes goes on with the rest. Source: KEP-5532.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from haru.kube.container_restarts import RESTART_ALL, matching_action
from haru.kube.meta import Obj, get_condition
from haru.node.podworker.observed import EXITED, SeenContainer, SeenPod

RESTARTING: Final = "AllContainersRestarting"
"""The condition of a pod whose containers are being removed."""
_REMOVED: Final = {
    "reason": "RestartingAllContainers",
    "message": "The container is removed because RestartAllContainers in place",
}


def restartable_containers(pod: Obj) -> list[Obj]:
    """The containers that start again together; ephemeral ones run on."""
    return [*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or ())]


def may_restart_all(pod: Obj) -> bool:
    """Whether a container has such a rule, whatever its exit codes."""
    rules = (rule for one in restartable_containers(pod) for rule in one.get("restartPolicyRules") or ())
    return any(rule.get("action") == RESTART_ALL for rule in rules)


def to_remove(pod: Obj, seen: SeenPod) -> tuple[SeenContainer, ...]:
    """The starts that are to be removed, in this order; none unless a container's last end asks for it."""
    starts = [one for container in restartable_containers(pod) for one in reversed(seen.history(container["name"]))]
    rules = {container["name"]: container for container in restartable_containers(pod)}
    asking = [
        one for one in starts if one.state == EXITED and matching_action(rules[one.name], one.exit_code) == RESTART_ALL
    ]
    if not any(seen.newest(one.name) == one for one in asking):
        return ()
    return (*(one for one in starts if one not in asking), *asking)


def tell_removed(pod: Obj, seen: SeenPod, statuses: Iterable[Obj], before: Iterable[Obj]) -> None:
    """Say in the statuses of containers that were removed why they wait; `before` are those that the pod had."""
    condition = get_condition(pod, RESTARTING) or {}
    if condition.get("status") != "True":
        return
    had = {one["name"]: one for one in before}
    for status in statuses:
        old = had.get(status["name"])
        if old is None or "waiting" in old["state"] or seen.newest(status["name"]) is not None:
            continue
        status["state"] = {"waiting": dict(_REMOVED)}
        status["lastState"] = {"terminated": {**_REMOVED, "exitCode": 137}}
        status["restartCount"] = old.get("restartCount", 0) + 1
        status["ready"] = False


def was_removed(end: Obj) -> bool:
    """Whether a container ended since all were restarted, by the terminated state in its status."""
    return bool(end.get("reason") == _REMOVED["reason"])
