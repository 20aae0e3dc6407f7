"""Feature gates: the switches of Kubernetes 1.36 that this code honours, with their stage and default there.

A `FeatureGates` is immutable. What is not overridden has its default; a gate whose requirement is off is off as well,
and turning it on explicitly without the requirement is an error. `AllAlpha` and `AllBeta` stand for a whole stage;
a gate named beside them wins. The table (`gate_table`) has every version whose place may be taken: 1.36 is meant
unless another one is said. Source: the feature tables of the KEPs that each gate belongs to.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from haru.kube.gate_table import NAMES, NEWEST, Gate, Stage, gates_of

__all__ = ["FeatureGates", "Gate", "parse_overrides"]

_STAGES: dict[str, Stage] = {"AllAlpha": "ALPHA", "AllBeta": "BETA"}

# What `haru up` turns on beyond the defaults: everything about accelerators and gangs.
_ACCELERATOR = (
    "DRADeviceTaintRules",
    "DRAListTypeAttributes",
    "DRANodeAllocatableResources",
    "DRAResourcePoolStatus",
    "DRAWorkloadResourceClaims",
    "GangScheduling",
    "GenericWorkload",
    "SchedulerPreEnqueuePodStatus",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
    "WorkloadWithJob",
)

_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_FALSE = frozenset({"0", "f", "F", "false", "FALSE", "False"})


class FeatureGates:
    """Which gates are on in version 1.`minor`. Equal states in one version are equal gates."""

    __slots__ = ("_enabled", "_overrides", "_table", "minor")

    def __init__(self, overrides: Mapping[str, bool] | None = None, minor: int = NEWEST) -> None:
        self._overrides = dict(overrides or {})
        self._table = gates_of(minor)
        self.minor = minor
        for name, value in self._overrides.items():
            _check(name, value, minor)
        # What came after the version does not exist there: it is off, and can not be asked for.
        self._enabled = dict.fromkeys(NAMES, False)
        for gate in self._table.values():
            self._enabled[gate.name] = self._wanted(gate)
        for gate in self._table.values():
            self._apply_requirements(gate)

    @classmethod
    def parse(cls, text: str, minor: int = NEWEST) -> FeatureGates:
        """From `A=true,B=false`, the form of `--feature-gates`; ValueError names the gate and the remedy."""
        return cls(parse_overrides(text, minor), minor)

    @classmethod
    def accelerator_defaults(cls, overrides: Mapping[str, bool] | None = None) -> FeatureGates:
        """The gates of `haru up`: those of accelerators and gangs on; what depends on a gate turned off is off too."""
        given = dict(overrides or {})
        preset = {name: True for name in _ACCELERATOR if name not in given}
        off = {name for name, value in given.items() if not value}
        while True:
            lost = {name for name in preset if off & set(gates_of()[name].requires)}
            if not lost:
                return cls({**preset, **given})
            off |= lost
            preset = {name: True for name in preset if name not in lost}

    @staticmethod
    def known(minor: int = NEWEST) -> tuple[Gate, ...]:
        """Every gate that version 1.`minor` has, in the order of names."""
        return tuple(gates_of(minor).values())

    def told(self) -> list[tuple[str, str, bool]]:
        """Name, stage and state of the gates that the version has, as `kubernetes_feature_enabled` tells them.

        The stage of what is generally available is empty there. `AllAlpha` and `AllBeta` are gates as well.
        """
        states = [
            (gate.name, "" if gate.stage == "GA" else gate.stage, self._enabled[gate.name]) for gate in self.gates
        ]
        return sorted([*states, *((name, stage, self._overrides.get(name, False)) for name, stage in _STAGES.items())])

    def exposition(self) -> list[str]:
        """`told` as lines of Prometheus' text form."""
        return [
            "# HELP kubernetes_feature_enabled Feature gates by stage (none: generally available); 1 is on.",
            "# TYPE kubernetes_feature_enabled gauge",
            *(f'kubernetes_feature_enabled{{name="{name}",stage="{stage}"}} {on:d}' for name, stage, on in self.told()),
        ]

    @property
    def gates(self) -> tuple[Gate, ...]:
        """The gates that the version has, in the order of names."""
        return tuple(self._table.values())

    @property
    def overrides(self) -> Mapping[str, bool]:
        """Return the gates that were set explicitly."""
        return dict(self._overrides)

    def enabled(self, name: str) -> bool:
        """Whether the gate is on; KeyError for a name that is not in the table."""
        return self._enabled[name]

    def all(self) -> Mapping[str, bool]:
        """Every gate's state, by name."""
        return dict(self._enabled)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FeatureGates) and (other.minor, other._enabled) == (self.minor, self._enabled)

    def __hash__(self) -> int:
        return hash(tuple(self._enabled.items()))

    def __repr__(self) -> str:
        listed = ",".join(f"{name}={str(value).lower()}" for name, value in sorted(self._overrides.items()))
        return f"FeatureGates({listed})"

    def _wanted(self, gate: Gate) -> bool:
        if gate.name in self._overrides:
            return self._overrides[gate.name]
        for group, stage in _STAGES.items():
            if gate.stage == stage and group in self._overrides:
                return self._overrides[group]
        return gate.default

    def _apply_requirements(self, gate: Gate) -> None:
        """Turn the gate off when something it needs is off; refuse when it was asked for by name."""
        for need in gate.requires:
            self._apply_requirements(self._table[need])
            if self._enabled[gate.name] and not self._enabled[need]:
                if self._overrides.get(gate.name):
                    raise ValueError(
                        f"feature gate {gate.name} needs {need}, which is off: add {need}=true or drop {gate.name}=true"
                    )
                self._enabled[gate.name] = False


def _check(name: str, value: bool, minor: int) -> None:
    if name in _STAGES:
        return
    if name not in NAMES:
        raise ValueError(f"unrecognized feature gate: {name}{_did_you_mean(name, [*NAMES, *_STAGES])}")
    gate = gates_of(minor).get(name)
    if gate is None:
        raise ValueError(
            f"cannot set feature gate {name} to {str(value).lower()}, feature is PreAlpha at emulated version "
            f"1.{minor}: drop {name} from --feature-gates"
        )
    if gate.locked and value != gate.default:
        locked = str(gate.default).lower()
        raise ValueError(
            f"cannot set feature gate {name} to {str(value).lower()}, feature is locked to {locked}: drop {name} "
            f"from --feature-gates"
        )


def _did_you_mean(name: str, candidates: Iterable[str]) -> str:
    folded = {c.lower(): c for c in candidates}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f" (did you mean {folded[close[0]]}?)" if close else ""


def parse_overrides(text: str, minor: int = NEWEST) -> dict[str, bool]:
    """`A=true,B=false` as a mapping; the last of equal names wins, blanks and empty items are passed over."""
    overrides: dict[str, bool] = {}
    for item in text.split(","):
        pair = item.strip()
        if not pair:
            continue
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for feature gate {name}: write {name}=true or {name}=false")
        if value not in _TRUE and value not in _FALSE:
            raise ValueError(f"invalid value of {name}={value}: write {name}=true or {name}=false")
        _check(name, value in _TRUE, minor)
        overrides[name] = value in _TRUE
    return overrides
