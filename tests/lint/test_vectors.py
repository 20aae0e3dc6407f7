"""Published faults, the same corrected, and the examples of this project."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lint_faults import DATA

from haru.lint import Finding, fix_texts, lint_texts, to_json, to_text

MANIFESTS = DATA / "manifests"
EXAMPLES = Path(__file__).parents[2] / "examples"
EXPECTED = [json.loads(line) for line in (MANIFESTS / "expect.jsonl").read_text().splitlines()]
VALID = sorted((DATA / "lint" / "valid").iterdir())


def _meets(finding: Finding, expected: dict[str, Any]) -> bool:
    return (
        finding.stage == expected["stage"]
        and finding.place.object == expected.get("object", finding.place.object)
        and finding.path == expected.get("path", finding.path)
        and expected.get("message", "") in finding.message
        and expected.get("suggest", "") in finding.suggestion
    )


@pytest.mark.parametrize("expected", EXPECTED, ids=lambda e: f"{e['file']} {e.get('path', '')}")
def test_every_expected_finding_of_vectors_is_reported(expected: dict[str, Any]) -> None:
    report = lint_texts({expected["file"]: (MANIFESTS / expected["file"]).read_text()})
    if expected["stage"] == "ok":
        assert report.findings == ()
        assert report.objects == 1
    else:
        assert any(_meets(finding, expected) for finding in report.findings), to_text(report)


def test_findings_have_no_earlier_stage_than_expected() -> None:
    """No fault at an earlier stage than the first that is expected, and none at all where nothing is."""
    order = ["yaml", "kind", "schema", "validation", "semantic", "ok"]
    for path in sorted(MANIFESTS.glob("*.yaml")):
        first = min(order.index(e["stage"]) for e in EXPECTED if e["file"] == path.name)
        found = lint_texts({path.name: path.read_text()}).findings
        assert min((order.index(f.stage) for f in found), default=order.index("ok")) == first, path.name


@pytest.mark.parametrize("path", VALID, ids=lambda path: path.name)
def test_corrected_manifest_has_no_findings(path: Path) -> None:
    report = lint_texts({path.name: path.read_text()})
    assert report.findings == (), to_text(report)


def test_corrected_manifests_and_examples_have_no_findings_together() -> None:
    paths = [*VALID, *EXAMPLES.rglob("*.yaml")]
    report = lint_texts({str(path): path.read_text() for path in paths if path.name != "d-sockets.yaml"})
    assert report.findings == (), to_text(report)
    assert sum("not a kind" in line for line in to_text(report).splitlines()) >= 2


@pytest.mark.parametrize("path", sorted(EXAMPLES.rglob("*.yaml")), ids=lambda path: path.name)
def test_example_manifest_has_no_findings(path: Path) -> None:
    assert lint_texts({path.name: path.read_text()}).findings == ()


@pytest.mark.parametrize("path", sorted(MANIFESTS.glob("*.yaml")), ids=lambda path: path.name)
def test_fixed_vector_manifest_has_no_more_findings_than_before(path: Path) -> None:
    before = lint_texts({path.name: path.read_text()})
    mended, _, after = fix_texts({path.name: path.read_text()})
    assert after.errors <= before.errors
    assert lint_texts(mended) == after
    assert fix_texts(mended)[0] == mended
    text = mended[path.name]
    if not any(finding.stage == "yaml" for finding in before.findings):
        assert "v1beta1" not in text or "ResourceClass\n" in text


MENDED = {
    "a2-template-old-model.yaml": 0,
    "a3-pod-source.yaml": 1,
    "c1-class-quantity-operator.yaml": 0,
    "c2-slice-basic-in-v1.yaml": 0,
    "c3-claim-quantity-operator.yaml": 0,
    "d1-claim-unpublished-attribute.yaml": 0,
    "d2-pod-template-is-claim.yaml": 0,
    "d6-template-hyphen-attribute.yaml": 0,
    "e4-typo.yaml": 0,
}


@pytest.mark.parametrize("name", MENDED)
def test_fixable_vector_findings_are_fixed(name: str) -> None:
    assert fix_texts({name: (MANIFESTS / name).read_text()})[2].errors == MENDED[name]


def test_json_report_has_expected_fields() -> None:
    name = "e4-typo.yaml"
    report = to_json(lint_texts({name: (MANIFESTS / name).read_text()}))
    assert (report["apiVersion"], report["kind"]) == ("haru.dev/v1alpha1", "LintReport")
    assert report["summary"] == {"objects": 1, "errors": 1, "warnings": 0, "notices": 0}
    assert report["findings"] == [
        {
            "check": "field-unknown",
            "stage": "schema",
            "severity": "error",
            "file": name,
            "document": 1,
            "line": 10,
            "object": "ResourceClaim/typo",
            "path": "spec.devices.requests[0].exactly.deviceClasName",
            "message": 'unknown field "spec.devices.requests[0].exactly.deviceClasName"',
            "suggestion": 'did you mean "deviceClassName"?',
            "fixable": True,
        }
    ]
