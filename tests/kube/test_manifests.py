"""Manifests with the faults of published examples: which stage of the API refuses which, and in which words.

tests/data/manifests/expect.jsonl has one line for each finding; the stages `semantic` and `ok` are accepted here.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kube_cases import ALL, NOW, Obj

from haru.cel.device import compile_device_selector
from haru.cel.errors import CompileError
from haru.kube import decoding, validation, yaml
from haru.kube.defaulting import apply_defaults
from haru.kube.kinds import by_kind
from haru.kube.validation.types import SelectorProblem

DATA = Path(__file__).parent.parent / "data" / "manifests"
EXPECTED: list[Obj] = [json.loads(line) for line in (DATA / "expect.jsonl").read_text().splitlines()]
REFUSED = ("schema", "validation")


def check_selector(expression: str) -> SelectorProblem | None:
    try:
        selector = compile_device_selector(expression)
    except CompileError as error:
        return SelectorProblem("invalid", str(error))
    return SelectorProblem("too-complex") if selector.max_cost > 1_000_000 else None


def objects_of(name: str) -> list[Obj]:
    return yaml.load_all((DATA / name).read_text())


def findings(obj: Obj) -> list[tuple[str, str]]:
    """(stage, text) for everything that the API says about an object."""
    kind = by_kind(obj["apiVersion"], obj["kind"])
    if kind is None:
        return [("kind", f"no matches for kind {obj['kind']!r} in version {obj['apiVersion']!r}")]
    obj, unknown = decoding.strict_decode(obj, kind)
    if kind.namespaced:
        obj = {**obj, "metadata": {"namespace": "default", **obj["metadata"]}}
    obj = apply_defaults(obj, kind, ALL, NOW)
    errors = validation.validate_create(obj, kind, ALL, check_selector)
    return [*(("schema", text) for text in unknown), *(("validation", str(error)) for error in errors)]


@pytest.mark.parametrize("case", EXPECTED, ids=lambda c: f"{c['file']}-{c.get('path', '')}")
def test_expected_finding_is_reported(case: Any) -> None:
    if case["stage"] == "yaml":
        with pytest.raises(ValueError, match=case["message"]):
            objects_of(case["file"])
        return
    kind, name = case["object"].split("/")
    (obj,) = [o for o in objects_of(case["file"]) if o["kind"] == kind and o["metadata"]["name"] == name]
    found = findings(obj)
    if case["stage"] in ("semantic", "ok"):
        assert found == []
        return
    texts = [text for stage, text in found if stage == case["stage"]]
    assert any(case.get("path", "") in text and case["message"] in text for text in texts), found


def test_no_other_object_is_refused() -> None:
    expected = {(case["file"], case["object"]) for case in EXPECTED if case["stage"] in (*REFUSED, "kind")}
    refused = set()
    for path in sorted(DATA.glob("*.yaml")):
        if path.name.startswith("a4"):
            continue
        for obj in objects_of(path.name):
            if findings(obj):
                refused.add((path.name, f"{obj['kind']}/{obj['metadata']['name']}"))
    assert refused == expected
