"""Pressure on the pods that hold devices, from the kubelets of their nodes: behind an idle card is often a starved pod.

It is the kernel's pressure stall information in the Summary API (`/stats/summary`). Kernels may lack it, and simulated
nodes have no kubelet: it is unknown there. Source: KEP-4205, the kubelet's stats/v1alpha1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from haru.accounting.device_states import HoldingPod
from haru.kube.meta import Obj

Uid = str

_AVERAGES = ("avg10", "avg60", "avg300")


class SummaryError(ValueError):
    """A summary is invalid; the message names the field."""


@dataclass(frozen=True, slots=True)
class Stall:
    """Stall time: percentages of the last 10, 60 and 300 seconds, and microseconds in total."""

    total: int
    avg10: float
    avg60: float
    avg300: float

    def as_dict(self) -> Obj:
        """PSIData of the Summary API."""
        return {"total": self.total, "avg10": self.avg10, "avg60": self.avg60, "avg300": self.avg300}


@dataclass(frozen=True, slots=True)
class Pressure:
    """`some`: at least one task was stalled; `full`: all of them at once."""

    some: Stall
    full: Stall

    def as_dict(self) -> Obj:
        """PSIStats of the Summary API."""
        return {"full": self.full.as_dict(), "some": self.some.as_dict()}


@dataclass(frozen=True, slots=True)
class PodPressure:
    """What is known of one pod; None is unknown."""

    memory: Pressure | None = None
    io: Pressure | None = None

    def as_dict(self) -> Obj:
        """The fields of the Summary API's PodStats that are known."""
        found = {"memory": self.memory, "io": self.io}
        return {name: {"psi": pressure.as_dict()} for name, pressure in found.items() if pressure is not None}


NOTHING_KNOWN = PodPressure()


@dataclass(frozen=True, slots=True)
class Pressures:
    """Pressure by the UIDs of pods, and the errors of kubelets by node."""

    pods: Mapping[Uid, PodPressure]
    failed: Mapping[str, str]


def pressures_of(summary: Mapping[str, Any]) -> dict[Uid, PodPressure]:
    """Read the pressure of the pods in a `Summary`. Raises SummaryError."""
    pods = summary.get("pods")
    if not isinstance(pods, list):
        raise SummaryError(f"pods: expected a list, found {pods!r:.80}")
    found: dict[Uid, PodPressure] = {}
    for number, pod in enumerate(pods):
        where = f"pods[{number}]"
        uid = _member(_known(pod, where), "podRef", where).get("uid")
        told = PodPressure(_pressure(pod, "memory", where), _pressure(pod, "io", where))
        if uid and told != NOTHING_KNOWN:
            found[str(uid)] = told
    return found


def highest(
    holders: Iterable[HoldingPod], known: Mapping[Uid, PodPressure], resource: str
) -> tuple[HoldingPod, Pressure] | None:
    """Find the pod that was stalled most in the last minute for `memory` or `io`; None if none is known."""
    best: tuple[HoldingPod, Pressure] | None = None
    for holder in holders:
        found: Pressure | None = getattr(known.get(holder.uid, NOTHING_KNOWN), resource)
        if found is not None and (best is None or _order(found) > _order(best[1])):
            best = holder, found
    return best


def _order(pressure: Pressure) -> tuple[float, float]:
    return pressure.some.avg60, pressure.full.avg60


def _pressure(pod: Mapping[str, Any], resource: str, where: str) -> Pressure | None:
    where = f"{where}.{resource}"
    psi = _known(pod.get(resource) or {}, where).get("psi")
    if psi is None:
        return None
    lines = [_member(_known(psi, f"{where}.psi"), kind, f"{where}.psi") for kind in ("some", "full")]
    return Pressure(*(_stall(line, f"{where}.psi.{kind}") for line, kind in zip(lines, ("some", "full"), strict=True)))


def _stall(line: Mapping[str, Any], where: str) -> Stall:
    numbers = {name: line.get(name, 0) for name in ("total", *_AVERAGES)}
    for name, value in numbers.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
            raise SummaryError(f"{where}.{name}: expected a number that is not negative, found {value!r:.80}")
    return Stall(int(numbers["total"]), *(float(numbers[name]) for name in _AVERAGES))


def _member(obj: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    return _known(obj.get(name), f"{where}.{name}")


def _known(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise SummaryError(f"{where}: expected an object, found {value!r:.80}")
    return value
