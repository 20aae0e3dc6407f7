"""Return the findings as Python programs get them: the data, its text, its JSON and its HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from haru.lint.findings import ReportData
from haru.lint.html import to_html
from haru.lint.output import to_json, to_text


@dataclass(frozen=True, slots=True)
class Report(ReportData):
    """All that was found, in the order of the files; `ReportData` explains the fields."""

    def as_dict(self) -> dict[str, Any]:
        """The LintReport object of haru.dev/v1alpha1, as `haru lint -o json` prints it."""
        return to_json(self)

    def __str__(self) -> str:
        return to_text(self)

    def _repr_html_(self) -> str:
        return to_html(self)
