"""Return the findings as Python programs get them: the data, its text, its JSON and its HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from haru.lint.findings import Finding, ReportData
from haru.lint.output import summary, to_json, to_text
from haru.markup import Child, Html, section, table, tag


def to_html(report: ReportData) -> Html:
    """A region with a table of the findings and notices."""
    columns = ("where", "severity", "what is wrong", "what to write instead")
    return section(
        f"Lint: {summary(report)}",
        table("Findings", columns, map(_row, (*report.findings, *report.notices))),
        [tag("p", f"{name}: not a kind of Kubernetes, so not checked") for name in report.unchecked],
    )


def _row(finding: Finding) -> tuple[Child, ...]:
    place = finding.place
    where = f"{place.file}:{place.line}" + (f" {place.object}" if place.object else "")
    path = (tag("code", finding.path), ": ") if finding.path else ""
    reason = tag("small", f" {finding.reason}") if finding.reason else None
    return where, finding.severity, (path, finding.message, " ", tag("code", finding.check), reason), finding.suggestion


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
