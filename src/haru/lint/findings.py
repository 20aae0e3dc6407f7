"""What lint says: findings, notices, and the edits that would mend the text.

A `Finding` is a fault (error) or a likely mistake (warning); a notice is neither, but worth knowing. Checks yield
`Draft`s: a check's id, a path as the API writes it, and texts; `findings` are drafts that know file, line and object.
Edits speak of the same paths, so that one finding can be mended whatever else changes around it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Stage = Literal["yaml", "kind", "schema", "validation", "semantic"]
Severity = Literal["error", "warning", "notice"]
STAGES: tuple[Stage, ...] = ("yaml", "kind", "schema", "validation", "semantic")


@dataclass(frozen=True, slots=True)
class Replace:
    """Another value for what is at `path`; `parts` are the pieces of the text that differ, to keep its form."""

    path: str
    value: Any
    parts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Rename:
    """Another key for the entry at `path`."""

    path: str
    key: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Without the entry at `path`."""

    path: str


@dataclass(frozen=True, slots=True)
class Insert:
    """A new entry in the mapping at `path`, which is made if need be; in a list, a new last item (`key` is empty)."""

    path: str
    key: str
    value: Any


@dataclass(frozen=True, slots=True)
class Wrap:
    """The entries `keys` of the mapping at `path` move below a new entry `key`."""

    path: str
    keys: tuple[str, ...]
    key: str


@dataclass(frozen=True, slots=True)
class Unwrap:
    """The entries of the mapping at `path` move up beside it, and it goes."""

    path: str


Edit = Replace | Rename | Remove | Insert | Wrap | Unwrap


@dataclass(frozen=True, slots=True)
class Draft:
    """A finding as a check makes it. `reason` says why it matters, `suggestion` what to write instead."""

    check: str
    path: str
    message: str
    reason: str = ""
    suggestion: str = ""
    edits: tuple[Edit, ...] = ()
    severity: Severity | None = None
    """Where it departs from the check's own."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a finding is."""

    file: str
    document: int
    """From one; 0 for the file as a whole."""
    line: int
    object: str
    """`Kind/name`, or empty where nobody can tell."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding with its place."""

    check: str
    stage: Stage
    severity: Severity
    place: Place
    path: str
    message: str
    reason: str
    suggestion: str
    edits: tuple[Edit, ...] = field(default=(), compare=False)

    @property
    def fixable(self) -> bool:
        """Whether `--fix` can mend it."""
        return bool(self.edits)

    def to_json(self) -> Mapping[str, Any]:
        """The finding as `-o json` prints it; empty texts are left out."""
        texts = {"path": self.path, "message": self.message, "reason": self.reason, "suggestion": self.suggestion}
        return {
            "check": self.check,
            "stage": self.stage,
            "severity": self.severity,
            "file": self.place.file,
            "document": self.place.document,
            "line": self.place.line,
            **({"object": self.place.object} if self.place.object else {}),
            **{name: text for name, text in texts.items() if text},
            "fixable": self.fixable,
        }


@dataclass(frozen=True, slots=True)
class ReportData:
    """All that was found, in the order of the files; `unchecked` names objects of kinds that are not Kubernetes'."""

    findings: tuple[Finding, ...]
    notices: tuple[Finding, ...]
    objects: int
    unchecked: tuple[str, ...] = ()

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(finding.severity == "error" for finding in self.findings)
