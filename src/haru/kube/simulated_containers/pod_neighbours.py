"""The containers of a pod that run before another one and beside it, and when they begin. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from haru.kube.container_restarts import is_sidecar
from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.pod_containers import statuses_of

_LATER: Final = 0.001
"""After how many seconds one begins that begins after another one in the same second."""


class Neighbour(NamedTuple):
    """A container that begins so many seconds after another one of its pod; `lasts` is None while it runs."""

    container: Mapping[str, Any]
    begins: float
    lasts: float | None


def has_shared_volume(pod: Obj) -> bool:
    """Whether containers of the pod can write what others read."""
    kinds = ("emptyDir", "ephemeral", "persistentVolumeClaim", "hostPath")
    return any(kind in volume for volume in (pod.get("spec") or {}).get("volumes") or () for kind in kinds)


def neighbours_before(pod: Obj, container: Mapping[str, Any]) -> Iterator[Neighbour]:
    """The init containers that have ended before this container begins."""
    for one in (pod.get("spec") or {}).get("initContainers") or ():
        if one["name"] == container["name"]:
            return
        if not is_sidecar(one):
            yield Neighbour(one, _seconds_between(pod, container, one) or 0.0, None)


def neighbours_beside(pod: Obj, container: Mapping[str, Any]) -> Iterator[Neighbour]:
    """The containers that have begun and run while this one does, if that has not ended before them."""
    spec = pod.get("spec") or {}
    init, main = spec.get("initContainers") or (), spec.get("containers") or ()
    place = next((number for number, one in enumerate(init) if one["name"] == container["name"]), len(init))
    ends_first = place < len(init) and not is_sidecar(container)
    before = next((number for number, one in enumerate(main) if one["name"] == container["name"]), len(main))
    others = [(one, number < place) for number, one in enumerate(init) if is_sidecar(one) or number > place]
    others += [(one, place == len(init) and number < before) for number, one in enumerate(main)]
    for one, is_earlier in others:
        if one["name"] == container["name"] or (ends_first and not is_earlier):
            continue
        seconds = _seconds_between(pod, container, one)
        if seconds is not None:
            began, ended = _ran(pod, one["name"])
            lasted = (ended - began).total_seconds() if began is not None and ended is not None else None
            yield Neighbour(one, seconds if is_earlier or seconds else _LATER, lasted)


def restarts_of(pod: Obj, name: str) -> int:
    """How often a container has been restarted."""
    return int((statuses_of(pod).get(name) or {}).get("restartCount") or 0)


def began_at(pod: Obj, name: str) -> datetime | None:
    """When the last run of a container began, as its status says."""
    return _ran(pod, name)[0]


def ended_at(pod: Obj, name: str) -> datetime | None:
    """When the last run of a container ended, as its status says; None while it runs."""
    return _ran(pod, name)[1]


def _seconds_between(pod: Obj, container: Mapping[str, Any], other: Mapping[str, Any]) -> float | None:
    """How long after the container the other one begins; None if it has not begun."""
    own, (began, _) = _ran(pod, container["name"])[0], _ran(pod, other["name"])
    if own is None:
        return 0.0
    return None if began is None else (began - own).total_seconds()


def _ran(pod: Obj, name: str) -> tuple[datetime | None, datetime | None]:
    """When the last run of a container began, and when it ended, as its status says."""
    found = statuses_of(pod).get(name) or {}
    state = found.get("state") or {}
    if "running" in state:
        return parse_time(state["running"]["startedAt"]), None
    ended = state.get("terminated") or (found.get("lastState") or {}).get("terminated")
    if not ended or not ended.get("startedAt"):  # a container that was removed tells no times
        return None, None
    return parse_time(ended["startedAt"]), parse_time(ended["finishedAt"])
