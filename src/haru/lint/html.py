"""A report as HTML, for notebooks: one row a finding, with what to write instead."""

from __future__ import annotations

from haru.lint.findings import Finding, ReportData
from haru.lint.output import summary
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
