"""Whatever decodes can be defaulted, judged and converted: no object makes the rules fall over."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from kube_cases import ALL, DEFAULT, NOW, Obj, any_selector

from haru.kube import decoding, strategy, validation
from haru.kube.conversion import convert
from haru.kube.defaulting import apply_defaults
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, all_kinds
from haru.kube.schema import Field, message_type, type_of

TEXTS = ("", "a", "A b", "true", "1Gi", "RollingUpdate", "Exists", "In", "All", "50%", "a/b", "x" * 70)
SCALARS: dict[str, tuple[Any, ...]] = {
    "bool": (True, False),
    "int32": (0, 1, -1, 2**31 - 1),
    "int64": (0, 1, -1, 2**31),
    "double": (0.5,),
    "bytes": ("", "e30="),
    "quantity": ("1", "0", "-1", "500m", "1Gi", 3),
    "intOrString": (0, 3, "25%", "http", ""),
    "time": (NOW,),
    "microTime": ("2026-01-01T00:00:00.000000Z",),
    "fieldsV1": ({},),
    "stringList": (["a"], []),
    "json": ({}, {"a": 1}, [1], "x", 3),
}


def some_value(field: Field, chance: random.Random, depth: int) -> Any:
    if field.container == "list":
        return [one_value(field, chance, depth) for _ in range(chance.randrange(3))]
    if field.container == "map":
        return {
            chance.choice(("a", "cpu", "a/b", "A b")): one_value(field, chance, depth)
            for _ in range(chance.randrange(3))
        }
    return one_value(field, chance, depth)


def one_value(field: Field, chance: random.Random, depth: int) -> Any:
    if field.is_message:
        return some_object(field.type, chance, depth + 1)
    return chance.choice(TEXTS) if field.type == "string" else chance.choice(SCALARS[field.type])


def some_object(name: str, chance: random.Random, depth: int) -> Obj:
    """An object with a few of its fields; deeper ones have fewer."""
    density = 0.8 if depth < 3 else 0.35 if depth < 7 else 0.1
    fields = message_type(name).fields.values()
    return {f.name: some_value(f, chance, depth) for f in fields if chance.random() < density}


def some(kind: Kind, chance: random.Random) -> Obj:
    obj = some_object(type_of(kind).name, chance, 0)
    metadata = {"name": "one", "uid": "u", **({"namespace": "team"} if kind.namespaced else {})}
    return {
        **obj,
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {**obj.get("metadata", {}), **metadata},
    }


KINDS = [kind for kind in all_kinds() if not kind.virtual]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_random_objects_never_crash_defaulting_validation_and_conversion(kind: Kind) -> None:
    chance = random.Random(str(kind))
    old: Obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "one"}}
    for gates in (ALL, DEFAULT) * 4:
        try:
            obj, unknown = decoding.strict_decode(some(kind, chance), kind)
        except StatusError:
            continue
        assert unknown == []
        before = copy.deepcopy(obj)
        new = apply_defaults(obj, kind, gates, NOW)
        new = strategy.prepare_for_create(new, kind, gates, NOW)
        validation.validate_create(new, kind, gates, any_selector)
        updated = strategy.prepare_for_update(new, old, kind, gates, NOW)
        validation.validate_update(updated, old, kind, gates, any_selector)
        written = strategy.prepare_for_status_update(new, old, kind, gates)
        validation.validate_status_update(written, old, kind, gates)
        for other in all_kinds():
            if (other.group, other.kind) == (kind.group, kind.kind):
                there = convert(new, other)
                assert there["apiVersion"] == other.api_version
                convert(there, kind)
        assert obj == before
        old = new
