"""What counts as unchanged in an update of a custom resource, as kube-apiserver 1.36.2 has it."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.custom.ratcheting import is_unchanged
from haru.kube.custom.structural import parse
from haru.kube.custom.value_validation import judge

NUMBER: dict[str, Any] = {"type": "number"}
LIST = {"type": "array", "items": NUMBER}
PAIR = {"type": "object", "properties": {"k": NUMBER, "v": NUMBER}}
KEYED = {"type": "array", "items": PAIR, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"k": NUMBER}}
A, B = {"k": 1, "v": 1}, {"k": 2, "v": 1}


def of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {"it": schema}}


CASES: list[tuple[dict[str, Any], Any, Any, bool]] = [
    (NUMBER, 1, 1, True),
    (NUMBER, 1.0, 1, False),
    (NUMBER, True, 1, False),
    (NUMBER, None, None, True),
    (NUMBER, 1, None, False),
    (LIST, [1, 2], [1, 2], True),
    (LIST, [2, 1], [1, 2], False),
    (LIST, [1.0, 2], [1, 2], False),
    (LIST | {"x-kubernetes-list-type": "set"}, [2, 1], [1, 2], False),
    (KEYED, [A, B], [A, B], True),
    (KEYED, [B, A], [A, B], True),
    (KEYED, [B, A | {"v": 2}], [A, B], False),
    (KEYED, [B, A | {"k": 1.0}], [A, B], False),
    (KEYED, [A], [A, B], False),
    (KEYED, [{"v": 1}], [{"v": 1}], True),
    (KEYED, [{"v": 1}, A], [A, {"v": 1}], False),
    (PAIR, {"v": 1, "k": 1}, A, True),
    (PAIR, {"k": 1}, A, False),
    (FREE, {"k": 1}, {"k": 1}, True),
    (FREE, {"k": 1, "z": 1}, {"k": 1, "z": 1}, False),
    ({"type": "object", "additionalProperties": KEYED}, {"x": [B, A]}, {"x": [A, B]}, True),
    ({"type": "object", "additionalProperties": NUMBER}, {"x": 1}, {"y": 1}, False),
    ({"type": "object"}, {}, {}, True),
]


@pytest.mark.parametrize(("schema", "new", "old", "expected"), CASES)
def test_value_is_unchanged_if_it_means_the_same_by_its_schema(
    schema: dict[str, Any], new: Any, old: Any, expected: bool
) -> None:
    assert is_unchanged(new, old, parse(schema)) is expected
    assert is_unchanged({"it": new}, {"it": old}, parse(of(schema))) is expected


def test_value_of_another_type_that_python_takes_for_equal_is_judged() -> None:
    schema = parse(of({"type": "integer"}))
    assert judge({"it": 1}, schema, "", {"it": 1}) == []
    assert [error.field for error in judge({"it": True}, schema, "", {"it": 1})] == ["it"]


def test_reordered_items_with_keys_are_no_reason_to_judge_their_list() -> None:
    schema = parse(of(KEYED | {"minItems": 3}))
    assert judge({"it": [B, A]}, schema, "", {"it": [A, B]}) == []
    assert judge({"it": [B]}, schema, "", {"it": [A, B]}) != []
