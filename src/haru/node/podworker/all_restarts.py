"""Restarting all containers of a pod in place, once one of them has ended as a rule of its own says. Pure.

Every start of each container is removed from the runtime, without grace and with no pause of a crash loop; the sandbox
and the volumes stay, and the pod begins anew with its init containers. The ends that ask for it are removed last: while
one is there, whoever comes goes on with the rest. Source: KEP-5532.
"""

from __future__ import annotations

from collections.abc import Iterable

from haru.kube.container_restarts import (
    ALL_RESTARTING,
    REMOVED,
    RESTART_ALL,
    matching_action,
    removed_state,
    restartable_containers,
)
from haru.kube.meta import Obj, get_condition
from haru.node.podworker.observed import EXITED, SeenContainer, SeenPod


def to_remove(pod: Obj, seen: SeenPod) -> tuple[SeenContainer, ...]:
    """The starts that are to be removed, in this order; none unless a container's last end asks for it."""
    rules = {container["name"]: container for container in restartable_containers(pod["spec"])}
    starts = [one for name in rules for one in reversed(seen.history(name))]
    asking = [
        one for one in starts if one.state == EXITED and matching_action(rules[one.name], one.exit_code) == RESTART_ALL
    ]
    if not any(seen.newest(one.name) == one for one in asking):
        return ()
    return (*(one for one in starts if one not in asking), *asking)


def tell_removed(pod: Obj, seen: SeenPod, statuses: Iterable[Obj], before: Iterable[Obj]) -> None:
    """Say in the statuses of containers that were removed why they wait; `before` are those that the pod had."""
    condition = get_condition(pod, ALL_RESTARTING) or {}
    if condition.get("status") != "True":
        return
    had = {one["name"]: one for one in before}
    for status in statuses:
        old = had.get(status["name"])
        if old is None or "waiting" in old["state"] or seen.newest(status["name"]) is not None:
            continue
        status["state"] = {"waiting": dict(REMOVED)}
        status["lastState"] = removed_state()
        status["restartCount"] = old.get("restartCount", 0) + 1
        status["ready"] = False
