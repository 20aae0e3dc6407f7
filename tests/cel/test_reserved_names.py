"""Fields named by CEL's reserved words: rules may spell them as they are, since 1.31, or with underscores."""

from __future__ import annotations

from typing import Any

import pytest

from haru.cel.object_rules import ObjectRules
from haru.kube.custom.structural import parse

Obj = dict[str, Any]

REFERENCE: Obj = {"type": "object", "properties": {"name": {"type": "string"}, "namespace": {"type": "string"}}}


def schema(rule: str) -> Obj:
    properties = {
        "namespace": {"type": "string"},
        "package": {"type": "integer"},
        "ref": REFERENCE,
        "refs": {"type": "array", "items": REFERENCE},
    }
    spec = {"type": "object", "properties": properties, "x-kubernetes-validations": [{"rule": rule}]}
    return {"type": "object", "properties": {"spec": spec}}


@pytest.mark.parametrize(
    ("rule", "spec", "holds"),
    [
        ("self.namespace == 'a'", {"namespace": "a"}, True),
        ("self.namespace == 'a'", {"namespace": "b"}, False),
        ("self.__namespace__ == 'a'", {"namespace": "a"}, True),
        ("has(self.namespace)", {}, False),
        ("has(self.ref.namespace)", {"ref": {"namespace": ""}}, True),
        ("self.?namespace.orValue('x') == 'x'", {}, True),
        ("self.?namespace.orValue('x') == 'x'", {"namespace": "y"}, False),
        ("self.?ref.?namespace.hasValue()", {"ref": {"namespace": ""}}, True),
        ("self.package + self.__package__ == 4", {"package": 2}, True),
        ("self.refs.all(r, !has(r.namespace) || size(r.namespace) == 0)", {"refs": [{"name": "a"}]}, True),
        ("self.refs.all(r, !has(r.namespace) || size(r.namespace) == 0)", {"refs": [{"namespace": "a"}]}, False),
    ],
)
def test_field_named_by_a_reserved_word_can_be_used_in_rule(rule: str, spec: Obj, holds: bool) -> None:
    problems = [str(error) for error in ObjectRules(parse(schema(rule))).check({"spec": spec}, None)]
    assert problems == ([] if holds else [f"spec: Invalid value: failed rule: {rule}"])
