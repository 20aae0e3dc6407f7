"""Leases and who stands for them: coordinated leader election (KEP 4355).

Source: the validation of coordination.k8s.io, as behaviour.
"""

from __future__ import annotations

import re
from typing import Any

from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import immutable_member, label_key, part, positive

_OLDEST = "OldestEmulationVersion"
_NUMBER = r"(0|[1-9][0-9]{0,18})"
_VERSION = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?")
_ZERO: tuple[Any, ...] = (0, 0, 0, (1,))


def validate_lease(lease: Obj) -> list[FieldError]:
    """A Lease."""
    spec = part(lease, "spec")
    found = positive("spec.leaseDurationSeconds", spec.get("leaseDurationSeconds"), "0")
    transitions = spec.get("leaseTransitions")
    if transitions is not None and transitions < 0:
        found.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    if (strategy := spec.get("strategy")) is not None:
        found += _strategy(strategy)
    if spec.get("preferredHolder") and not strategy:
        found.append(forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"))
    return found


def validate_lease_candidate(candidate: Obj) -> list[FieldError]:
    """A LeaseCandidate: which lease, and of what versions it is."""
    spec = part(candidate, "spec")
    found = [] if spec.get("leaseName") else [required("spec.leaseName")]
    emulated, binary = (_version(spec.get(name) or "") for name in ("emulationVersion", "binaryVersion"))
    why = "must be a valid semantic version"
    if emulated is None:
        found.append(invalid("spec.emulationVersion", spec["emulationVersion"], why))
    if not spec.get("binaryVersion"):
        found.append(required("spec.binaryVersion"))
    elif binary is None:
        found.append(invalid("spec.binaryVersion", spec["binaryVersion"], why))
    if spec.get("binaryVersion") and spec.get("emulationVersion") and (binary or _ZERO) < (emulated or _ZERO):
        why = "must be greater than or equal to `emulationVersion`"
        found.append(invalid("spec.binaryVersion", spec["binaryVersion"], why))
    strategy = spec.get("strategy") or ""
    if not strategy:
        return [*found, required("spec.strategy")]
    if strategy == _OLDEST and (emulated or _ZERO) == _ZERO:
        found.append(required("spec.emulationVersion", f"must be specified when `strategy` is '{_OLDEST}'"))
    return found + _strategy(strategy)


def validate_lease_candidate_update(new: Obj, old: Obj) -> list[FieldError]:
    """A candidate stays one for its lease."""
    return validate_lease_candidate(new) + immutable_member(
        "spec", "leaseName", part(new, "spec"), part(old, "spec"), "coordination.v1beta1.LeaseCandidateSpec"
    )


def _strategy(strategy: str) -> list[FieldError]:
    """A strategy of the election: Kubernetes' own, or a name with a domain before it."""
    field = "spec.strategy.strategy"
    return label_key(field, strategy) if "/" in strategy else _own(field, strategy)


def _own(field: str, strategy: str) -> list[FieldError]:
    return [] if strategy == _OLDEST else [not_supported(field, strategy, (_OLDEST,))]


def _version(text: str) -> tuple[Any, ...] | None:
    """A semantic version as something to compare; that of an empty text is the lowest one, None for no version."""
    if not text:
        return _ZERO
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    major, minor, patch, before = found.groups()
    parts = before.split(".") if before else []
    if any(not each or (each.isdigit() and len(each) > 1 and each[0] == "0") for each in parts):
        return None
    ranks = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in parts)
    return (int(major), int(minor), int(patch), (0, *ranks) if parts else (1,))
