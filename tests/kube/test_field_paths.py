"""The `fieldPath` of validation rules, and what keys of lists may be, in definitions."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.custom.field_paths import is_field_path
from haru.kube.custom.schema_checks import check_schema

Obj = dict[str, Any]


def an_object(**properties: Obj) -> Obj:
    return {"type": "object", "properties": properties}


NUMBER: Obj = {"type": "number"}
INNER = {"foo's": NUMBER, "test\a": NUMBER, "bb[b": NUMBER, "bbb": an_object(c=NUMBER, **{"34": NUMBER})}
SCHEMA = an_object(
    foo={"type": "object", "additionalProperties": an_object(sub=NUMBER)},
    a=an_object(**INNER, **{"bbb.c": an_object(**{"a-b.3'4": NUMBER})}),
    list={"type": "array", "items": an_object(a=NUMBER)},
    open={"type": "object", "additionalProperties": True},
    **{"white space": NUMBER, "'foo'bar": NUMBER},
)


@pytest.mark.parametrize(
    ("path", "valid"),
    [
        (".a", True),
        (".white space", True),
        ("['white space']", True),
        (r"['\'foo\'bar']", True),
        (r".\'foo\'bar", False),
        (". a", False),
        (".a.bb[b", False),
        (".a['bb[b']", True),
        (".a['bbb.c']", True),
        (r".a['bbb.c']['a-b.3\'4']", True),
        (".a['bbb.c'", False),
        (".a['bbb.c", False),
        (".", False),
        (".foo.any", True),
        (".foo['any'].sub", True),
        (".foo.any.other", False),
        (".a.foo's", True),
        (r".a['foo\'s']", True),
        (r".a['test\a']", True),
        (r".a['test\q']", False),
        (".a.bbb[0]", False),
        (".a.bbb.34", True),
        (".list", True),
        (".list[0]", False),
        (".list['a']", False),
        (".list.a", False),
        (".open.x", False),
        ("a", False),
        (".c", False),
        (".a..b", False),
        ("['a']x", False),
        ("['']", False),
        ("[", False),
    ],
)
def test_field_path_is_valid_or_not(path: str, valid: bool) -> None:
    assert is_field_path(path, SCHEMA) is valid


def test_rule_with_unknown_field_path_is_refused() -> None:
    spec = {**an_object(a=NUMBER), "x-kubernetes-validations": [{"rule": "true", "fieldPath": ".b"}]}
    assert [str(error) for error in check_schema(an_object(spec=spec), "s")] == [
        's.properties[spec].x-kubernetes-validations[0].fieldPath: Invalid value: ".b": must be a valid path'
    ]


@pytest.mark.parametrize(
    ("kind", "items", "where"),
    [
        ("set", {"type": "string", "nullable": True}, "items.nullable: Forbidden: cannot be nullable when x-kuber"),
        (
            "map",
            {**an_object(k=NUMBER), "nullable": True},
            "items.nullable: Forbidden: cannot be nullable when x-kuber",
        ),
        (
            "map",
            an_object(k={**NUMBER, "nullable": True}),
            "items.properties[k].nullable: Forbidden: this property is in x-kubernetes-list-map-keys, so it cannot be",
        ),
    ],
)
def test_list_keys_must_not_be_nullable(kind: str, items: Obj, where: str) -> None:
    if kind == "map":
        items = {**items, "required": ["k"]}
    keys = {"x-kubernetes-list-map-keys": ["k"]} if kind == "map" else {}
    raw = an_object(list={"type": "array", "items": items, "x-kubernetes-list-type": kind, **keys})
    (found,) = check_schema(raw, "s")
    assert str(found).startswith(f"s.properties[list].{where}")
