"""The plan of a run: which work is created when, how large it is, and when it is deleted. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final, Literal

from haru.kube.meta import Obj
from haru.kube.names import counted

WorkloadUnitKind = Literal["gang", "claim", "shared", "pod"]
KINDS: Final = ("gangs", "claims", "pods", "churn", "preemption")
UNIT_KINDS: Final[dict[str, tuple[WorkloadUnitKind, ...]]] = {
    "gangs": ("gang",),
    "claims": ("claim", "shared"),
    "pods": ("pod",),
}


class PlanError(ValueError):
    """Limits from which no plan can be made; the text names the flag and the fix."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much work there is, and how large one work may be."""

    units: int = 60
    seconds: float = 60.0
    """All works are created within this time."""
    gang_size: int = 8
    devices: int = 4
    """Devices that one pod asks for at most; 0: no claims."""
    kinds: tuple[str, ...] = ("gangs", "claims", "pods", "churn")


@dataclass(frozen=True, slots=True)
class WorkloadUnit:
    """One work: a gang, pods with a claim each, pods that share a claim, or plain pods."""

    name: str
    kind: WorkloadUnitKind
    at: float
    """Seconds after the start when it is created."""
    pods: int
    min_count: int
    milli_cpu: int
    mebibytes: int
    devices: int
    """Devices of each claim."""
    runs: float
    """Seconds from when all its pods run until it is deleted."""
    deleted_after: float | None = None
    """Seconds from its creation until it is deleted, whatever its state."""
    important: bool = False

    @property
    def claims(self) -> int:
        """How many claims it has."""
        return 0 if not self.devices else 1 if self.kind == "shared" else self.pods

    def covers(self, other: WorkloadUnit) -> bool:
        """Whether it asks for at least what the other one asks for: where it fits, the other one fits."""
        return (
            self.kind == other.kind
            and self.pods >= other.pods
            and self.milli_cpu >= other.milli_cpu
            and self.mebibytes >= other.mebibytes
            and self.devices >= other.devices
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run does to the cluster."""

    seed: int
    limits: Limits
    units: tuple[WorkloadUnit, ...]

    @property
    def pods(self) -> int:
        """All pods that are created."""
        return sum(unit.pods for unit in self.units)

    def as_dict(self) -> Obj:
        """The plan as `--plan -o json` prints it."""
        units = [asdict(unit) for unit in self.units]
        limits = {**asdict(self.limits), "kinds": list(self.limits.kinds)}
        return {
            "apiVersion": "haru.dev/v1alpha1",
            "kind": "StressPlan",
            "seed": self.seed,
            "limits": limits,
            "units": units,
        }

    def text(self) -> str:
        """One line for each work."""
        size = f"{counted(len(self.units), 'work')}, {counted(self.pods, 'pod')}"
        head = f"seed {self.seed}: {size}, within {self.limits.seconds:g} s"
        return "\n".join([head, *(_line(unit) for unit in self.units)])


def parse_kinds(text: str) -> tuple[str, ...]:
    """Read `gangs,claims,…`; raises PlanError."""
    kinds = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not set(kinds) & UNIT_KINDS.keys():
        raise PlanError(
            f'--kinds: Invalid value: "{text}": name some of {", ".join(KINDS)}, gangs, claims or pods among them'
        )
    return kinds


def _line(unit: WorkloadUnit) -> str:
    of = f" ({unit.min_count} of them at once)" if unit.kind == "gang" else ""
    claims = f"each of {unit.claims} claims" if unit.claims > 1 else "its claim"
    devices = f", {counted(unit.devices, 'device')} for {claims}" if unit.devices else ""
    early = f", deleted {unit.deleted_after:g} s after its creation" if unit.deleted_after is not None else ""
    important = ", preempts" if unit.important else ""
    each = " each" if unit.pods > 1 else ""
    size = f"{counted(unit.pods, 'pod')}{of}, {unit.milli_cpu}m cpu and {unit.mebibytes}Mi{each}{devices}"
    return f"{unit.at:8.3f} s  {unit.name}: {size}, runs {unit.runs:g} s{early}{important}"
