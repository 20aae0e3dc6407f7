from __future__ import annotations

import re
from pathlib import Path

import pytest
from lint_faults import DATA, Fault, faults

from haru.lint import fix_texts, lint_texts
from haru.lint.checks import CHECKS

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "lint.md"
TOO_LARGE = {"yaml-size"}


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: f"{fault.check} {fault.path}")
def test_a_planted_fault_is_found(fault: Fault) -> None:
    report = lint_texts({"file.yaml": fault.text})
    found = [f for f in (*report.findings, *report.notices) if (f.check, f.path) == (fault.check, fault.path)]
    listed = [(f.check, f.path, f.suggestion) for f in (*report.findings, *report.notices)]
    assert found, listed
    assert fault.suggestion in found[0].suggestion, listed
    assert found[0].stage == CHECKS[fault.check].stage
    if CHECKS[fault.check].stage == "semantic":
        assert not [f for f in report.findings if f.stage != "semantic"], listed


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: f"{fault.check} {fault.path}")
def test_fix_removes_fault_and_second_fix_changes_nothing(fault: Fault) -> None:
    before = lint_texts({"file.yaml": fault.text})
    planted = [f for f in (*before.findings, *before.notices) if (f.check, f.path) == (fault.check, fault.path)]
    mended, fixed, after = fix_texts({"file.yaml": fault.text})
    assert after.errors <= before.errors
    if planted[0].fixable:
        assert fixed
        assert (fault.check, fault.path) not in {(f.check, f.path) for f in (*after.findings, *after.notices)}
    else:
        assert bool(fixed) == (mended["file.yaml"] != fault.text)
    again, fixed_again, _ = fix_texts(mended)
    assert (again, fixed_again) == (mended, [])


def test_every_check_has_a_case_and_a_documentation_section() -> None:
    assert {fault.check for fault in faults()} | TOO_LARGE == set(CHECKS)
    documented = re.findall(r"^### `([a-z-]+)`", DOCS.read_text(), re.MULTILINE)
    assert documented == list(CHECKS)


def test_job_with_gang_annotation_false_has_no_gang_finding() -> None:
    (nearly,) = [fault.text for fault in faults() if (fault.check, fault.path) == ("job-no-gang", "spec")]
    text = nearly.replace("{name: a}", '{name: a, annotations: {haru.dev/gang: "false"}}')
    assert text != nearly
    assert "job-no-gang" not in {finding.check for finding in lint_texts({"file.yaml": text}).findings}


def test_too_large_or_deep_document_has_yaml_size_finding() -> None:
    deep = "a: " + "[" * 300 + "]" * 300
    many = "a: [" + "1," * 300_000 + "1]"
    for text in (deep, many):
        report = lint_texts({"file.yaml": text})
        assert [finding.check for finding in report.findings] == ["yaml-size"], text[:20]


def test_every_planted_fault_case_is_read() -> None:
    assert (DATA / "lint" / "faults.txt").read_text().count("\n=== ") == len(faults()) >= 80


@pytest.mark.parametrize("address", ["None", "10.0.0.10"])
def test_service_with_a_cluster_ip_alone_has_no_finding(address: str) -> None:
    spec = f"{{clusterIP: {address}, ports: [{{port: 80}}]}}"
    text = f"{{apiVersion: v1, kind: Service, metadata: {{name: s}}, spec: {spec}}}"
    assert lint_texts({"file.yaml": text}).findings == ()
