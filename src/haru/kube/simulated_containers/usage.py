"""What the containers of simulated pods use, by their annotation `usage`. Pure.

It is a course of `cpu=AMOUNT memory=AMOUNT`, each a quantity or a percentage of what the container requests; what is
not given is as before, at the start zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

from haru.kube.meta import Obj
from haru.kube.names import parse_time
from haru.kube.quantity import parse_quantity
from haru.kube.simulated_containers.simulation import DOMAIN, USAGE, course, is_annotated, setting

_MEMBERS: Final = ("initContainers", "containers", "ephemeralContainers")
_NANO: Final = 1_000_000_000
_NAMES: Final = ("cpu", "memory")


class Used(NamedTuple):
    """What a container uses: billionths of a core, bytes, and the processor time since its start in nanoseconds."""

    nano_cores: int
    memory: int
    nano_seconds: int


class ContainerUsage(NamedTuple):
    """A container that runs, and what it uses."""

    name: str
    started: datetime
    used: Used


def pod_usage(pod: Obj, now: datetime) -> list[ContainerUsage]:
    """What the running containers of a pod use now; nothing for one whose annotation is malformed."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    containers = {one["name"]: one for member in _MEMBERS for one in spec.get(member) or ()}
    found = []
    for member in _MEMBERS:
        for one in status.get(f"{member[:-1]}Statuses") or ():
            running = (one.get("state") or {}).get("running")
            if running is not None and one["name"] in containers:
                started = parse_time(running["startedAt"])
                seconds = max(0.0, (now - started).total_seconds())
                found.append(ContainerUsage(one["name"], started, used_after(pod, containers[one["name"]], seconds)))
    return found


def sum_of(containers: Sequence[ContainerUsage]) -> Used:
    """What these containers use together."""
    every = [one.used for one in containers]
    return Used(
        sum(one.nano_cores for one in every), sum(one.memory for one in every), sum(one.nano_seconds for one in every)
    )


def used_after(pod: Obj, container: Mapping[str, Any], seconds: float) -> Used:
    """What a container uses so many seconds after its start."""
    text = setting(pod, container["name"], USAGE) if is_annotated(pod) else None
    if not text:
        return Used(0, 0, 0)
    try:
        entries = _parsed(text)
    except ValueError:
        return Used(0, 0, 0)
    cpu = memory = total = 0.0
    since = 0.0
    for at, amounts in entries:
        if at > seconds:
            break
        total += cpu * (at - since)
        since = at
        cpu = _amount(container, "cpu", amounts["cpu"]) if "cpu" in amounts else cpu
        memory = _amount(container, "memory", amounts["memory"]) if "memory" in amounts else memory
    total += cpu * (seconds - since)
    return Used(round(cpu * _NANO), round(memory), round(total * _NANO))


@lru_cache(maxsize=1024)
def _parsed(text: str) -> tuple[tuple[float, Mapping[str, str]], ...]:
    return tuple((entry.at, dict(_each(entry.value))) for entry in course(text))


def _each(value: str) -> Iterator[tuple[str, str]]:
    for part in value.replace(",", " ").split():
        name, _, amount = part.partition("=")
        number = amount.removesuffix("%")
        if name not in _NAMES or not number or parse_quantity(number).nano < 0:
            raise ValueError(f'annotation {USAGE} of {DOMAIN}: "{part}": write for example cpu=500m or memory=80%')
        yield name, amount


def _amount(container: Mapping[str, Any], name: str, text: str) -> float:
    if not text.endswith("%"):
        return parse_quantity(text).nano / _NANO
    resources = container.get("resources") or {}
    asked = (resources.get("requests") or {}).get(name) or (resources.get("limits") or {}).get(name) or "0"
    return parse_quantity(asked).nano / _NANO * parse_quantity(text[:-1]).nano / _NANO / 100
