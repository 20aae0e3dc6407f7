"""A report as people read it, and as programs do (LintReport, haru.dev/v1alpha1)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from haru.kube.names import counted
from haru.lint.findings import Finding, ReportData

_INDENT = "    "


def to_json(report: ReportData, fixed: Sequence[Any] = ()) -> dict[str, Any]:
    """`findings` are faults, `notices` are worth knowing; `fixed` is what `--fix` changed."""
    counts = {"objects": report.objects, "errors": report.errors, "warnings": len(report.findings) - report.errors}
    found: dict[str, Any] = {
        "apiVersion": "haru.dev/v1alpha1",
        "kind": "LintReport",
        "summary": {**counts, "notices": len(report.notices)},
        "findings": [dict(finding.to_json()) for finding in report.findings],
        "notices": [dict(finding.to_json()) for finding in report.notices],
    }
    if report.unchecked:
        found["unchecked"] = list(report.unchecked)
    if fixed:
        found["fixed"] = [one.to_json() for one in fixed]
    return found


def to_text(report: ReportData) -> str:
    """One paragraph a finding, then a line that counts."""
    parts = [_paragraph(finding) for finding in (*report.findings, *report.notices)]
    parts += [f"{name}: not a kind of Kubernetes, so not checked" for name in report.unchecked]
    return "\n".join([*parts, summary(report)])


def _paragraph(finding: Finding) -> str:
    place = finding.place
    head = f"{place.file}:{place.line}: {finding.severity}: "
    head += f"{place.object}: " if place.object else ""
    head += f"{finding.path}: " if finding.path else ""
    lines = [f"{head}{finding.message} [{finding.check}]"]
    if finding.reason:
        lines.append(textwrap.indent(finding.reason, _INDENT))
    if finding.suggestion:
        mark = " (--fix does it)" if finding.fixable else ""
        lines.append(textwrap.indent(f"=> {finding.suggestion}{mark}", _INDENT))
    return "\n".join(lines)


def summary(report: ReportData) -> str:
    """The counts, in one line."""
    warnings = len(report.findings) - report.errors
    fixable = sum(finding.fixable for finding in (*report.findings, *report.notices))
    text = f"{counted(report.objects, 'object')}: {counted(report.errors, 'error')}, {counted(warnings, 'warning')}"
    return text + (f"; --fix can mend {fixable}" if fixable else "")
