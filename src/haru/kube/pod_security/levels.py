"""Levels, the versions of the standards, and what the labels of a namespace make of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from haru.kube.errors import FieldError, invalid

Level = Literal["privileged", "baseline", "restricted"]
Mode = Literal["enforce", "audit", "warn"]
LEVELS: tuple[Level, ...] = ("privileged", "baseline", "restricted")
MODES: tuple[Mode, ...] = ("enforce", "audit", "warn")
LATEST = 10**9
"""The minor version that `latest` is: newer than any."""
PREFIX = "pod-security.kubernetes.io/"
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]*)", re.ASCII)


class Standard(NamedTuple):
    """A level at a version of the standards (the minor version of 1.x)."""

    level: Level
    minor: int = LATEST

    @property
    def version(self) -> str:
        """As it is written."""
        return "latest" if self.minor == LATEST else f"v1.{self.minor}"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"


_ANYTHING = Standard("privileged")


@dataclass(frozen=True, slots=True)
class Policy:
    """The standards of a namespace: what is refused, what the audit log notes, and what is warned of."""

    enforce: Standard = _ANYTHING
    audit: Standard = _ANYTHING
    warn: Standard = _ANYTHING

    @property
    def is_privileged(self) -> bool:
        """Whether everything is allowed, and nothing told."""
        return self.enforce.level == self.audit.level == self.warn.level == "privileged"


def strictness(level: Level) -> int:
    """Levels in their order."""
    return LEVELS.index(level)


def parse_level(text: str) -> Level:
    """Raises ValueError for what is no level."""
    for level in LEVELS:
        if text == level:
            return level
    raise ValueError(f"must be one of {', '.join(LEVELS)}")


def parse_version(text: str) -> int:
    """The minor version. Raises ValueError for what is neither `latest` nor `v1.x`."""
    if text == "latest":
        return LATEST
    match = _VERSION.fullmatch(text)
    if match is None:
        raise ValueError('must be "latest" or "v1.x"')
    return int(match[1])


def policy_of(labels: Mapping[str, str], defaults: Policy) -> tuple[Policy, list[FieldError]]:
    """Return the policy of labels and defaults, and the errors in the labels.

    A wrong level to enforce counts as restricted; to audit or warn by, as privileged. Who enforces without a word on
    warnings is warned by the same standard if it is the stricter one.
    """
    errors: list[FieldError] = []
    found = {mode: _standard(mode, labels, getattr(defaults, mode), errors) for mode in MODES}
    policy = Policy(**found)
    enforced = labels.get(f"{PREFIX}enforce")
    if (
        f"{PREFIX}warn" not in labels
        and enforced in LEVELS
        and strictness(policy.enforce.level) > strictness(policy.warn.level)
    ):
        minor = policy.warn.minor if f"{PREFIX}warn-version" in labels else policy.enforce.minor
        policy = replace(policy, warn=Standard(policy.enforce.level, minor))
    return policy, errors


def _standard(mode: Mode, labels: Mapping[str, str], default: Standard, errors: list[FieldError]) -> Standard:
    level, minor = default
    name = f"{PREFIX}{mode}"
    if name in labels:
        try:
            level = parse_level(labels[name])
        except ValueError as error:
            errors.append(invalid(_label(name), labels[name], str(error)))
            level = "restricted" if mode == "enforce" else "privileged"
    name = f"{PREFIX}{mode}-version"
    if name in labels:
        try:
            minor = parse_version(labels[name])
        except ValueError as error:
            errors.append(invalid(_label(name), labels[name], str(error)))
            minor = LATEST
    return Standard(level, minor)


def _label(name: str) -> str:
    return f"metadata.labels[{name}]"
