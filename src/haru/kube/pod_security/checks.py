"""What a check is, what it may find, and how several findings are told together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from haru.kube.meta import Obj


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a pod is not allowed: the kind of fault, and where it is."""

    reason: str
    detail: str


Look = Callable[[Obj, Obj], Finding | None]
"""From a pod's metadata and spec to what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Check:
    """A check and its revisions: from which minor version on each counts. `overrides`: checks that it stands for."""

    name: str
    revisions: Sequence[tuple[int, Look]]
    overrides: tuple[str, ...] = ()

    def at(self, minor: int) -> Look | None:
        """The revision at a version of the standards; None before the first."""
        found = [look for since, look in self.revisions if since <= minor]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The findings of all checks."""

    findings: tuple[Finding, ...]

    @property
    def allowed(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    @property
    def reasons(self) -> str:
        """The kinds of faults."""
        return ", ".join(finding.reason for finding in self.findings)

    @property
    def details(self) -> str:
        """The faults and where they are."""
        return ", ".join(f"{f.reason} ({f.detail})" if f.detail else f.reason for f in self.findings)


def context_of(holder: Obj) -> Obj:
    """The security context of a pod's spec or of a container."""
    return holder.get("securityContext") or {}


def quoted(names: Sequence[str]) -> str:
    """Names in quotes."""
    return ", ".join(f'"{name}"' for name in names)


def named(word: str, names: Sequence[str]) -> str:
    """`container "a"`, `containers "a", "b"`."""
    return f"{plural(word, names)} {quoted(names)}"


def plural(word: str, things: Sequence[Any]) -> str:
    """A word in its number."""
    return word if len(things) == 1 else f"{word}s"


def setters(pod: bool, containers: Sequence[str]) -> str:
    """Name those that set a field: the pod, containers, or both."""
    found = ["pod"] if pod else []
    return " and ".join(found + ([named("container", containers)] if containers else []))
