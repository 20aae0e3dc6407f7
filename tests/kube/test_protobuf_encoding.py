"""Protobuf encoding: decoding returns the same object, for every kind that is served."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

from haru.kube.kinds import Kind, all_kinds
from haru.kube.schema import Field, MessageType, message_type, type_of
from haru.kube.wire import MAGIC, decode_protobuf
from haru.kube.wire_out import encode_event, encode_protobuf, has_protobuf
from protobuf_wire import fields

Obj = dict[str, Any]
CAPTURED = Path(__file__).parent.parent / "data" / "wire"
KINDS = [kind for kind in all_kinds() if has_protobuf(kind)]
DEPTH = 6


@pytest.mark.parametrize("name", sorted(path.stem for path in CAPTURED.glob("*.bin")))
def test_encoded_bodies_equal_kubectl_except_zero_values(name: str) -> None:
    """But for the zeroes that Go writes: the envelope is the same, and what it says."""
    obj = json.loads((CAPTURED / "expected.json").read_text())[name]
    sent, written = (CAPTURED / f"{name}.bin").read_bytes(), encode_protobuf(obj)
    assert written is not None and written.startswith(MAGIC)
    assert decode_protobuf(written) == obj
    ours, theirs = dict(fields(written[4:])), dict(fields(sent[4:]))
    assert ours.keys() == theirs.keys() == {1, 2, 3, 4}
    assert {key: value for key, value in ours.items() if key != 2} == {
        key: value for key, value in theirs.items() if key != 2
    }


class Maker:
    """Objects with anything that their types allow and that the wire can tell."""

    def __init__(self, source: random.Random) -> None:
        self._r = source

    def message(self, target: MessageType, depth: int = 0) -> Obj:
        made: Obj = {}
        for field in target.by_number.values():
            if self._r.random() < (0.6 if depth < 2 else 0.25) and (depth < DEPTH or not field.is_message):
                made[field.name] = self._value(field, depth)
        for name in target.embedded.values():
            made.update(self.message(message_type(name), depth + 1))
        return made

    def _value(self, field: Field, depth: int) -> Any:
        r = self._r
        if field.container == "list":
            return [self._one(field, depth) for _ in range(r.randint(1, 3))]
        if field.container == "map":
            return {r.choice(["", "a", "b/c", "ü"]): self._one(field, depth) for _ in range(r.randint(1, 3))}
        # Absence and zero are the same for what is no pointer.
        has_zero = field.pointer or field.required
        while not (made := self._one(field, depth)) and not has_zero and not field.is_message:
            pass
        return made

    def _one(self, field: Field, depth: int) -> Any:
        if field.is_message:
            return self.message(message_type(field.type), depth + 1)
        return getattr(self, f"_{field.type}")()

    def _string(self) -> str:
        return self._r.choice(["", "a", "ü\n", "x" * 300, "\0"])

    def _bool(self) -> bool:
        return self._r.random() < 0.5

    def _int32(self) -> int:
        return self._r.choice([0, 1, -1, 2**31 - 1, -(2**31), 300])

    def _int64(self) -> int:
        return self._r.choice([0, 1, -1, 2**63 - 1, -(2**63), 300])

    def _double(self) -> float:
        return self._r.choice([0.0, 1.5, -1e300])

    def _bytes(self) -> str:
        return base64.b64encode(self._r.randbytes(self._r.choice([0, 1, 300]))).decode()

    def _quantity(self) -> str:
        return self._r.choice(["1", "100m", "1Gi", "-3"])

    def _intOrString(self) -> int | str:
        return self._r.choice([0, 1, -5, 2**31 - 1, "", "25%"])

    def _time(self) -> str:
        return self._r.choice(["2026-11-23T01:02:03Z", "1969-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])

    def _microTime(self) -> str:
        return self._r.choice(["2026-11-23T01:02:03.000004Z", "1960-01-01T00:00:00.999999Z"])

    def _json(self) -> Any:
        return self._r.choice([{"a": [1, None, "ü", 1.5]}, [1], "x", 7, True, {"apiVersion": "v1", "kind": "X"}])

    def _fieldsV1(self) -> Obj:
        return {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}}

    def _stringList(self) -> list[str]:
        return [self._string() for _ in range(self._r.randint(1, 3))]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.api_version} {kind.kind}")
def test_every_kind_round_trips_through_protobuf(kind: Kind) -> None:
    for seed in range(30):
        source = random.Random(f"{kind.api_version} {kind.kind} {seed}")
        obj = {"kind": kind.kind, "apiVersion": kind.api_version, **Maker(source).message(type_of(kind))}
        written = encode_protobuf(obj)
        assert written is not None
        assert decode_protobuf(written) == obj, f"seed {seed}"


def _inside(written: bytes | None) -> tuple[str, str, list[tuple[int, Any]]]:
    """apiVersion, kind and fields of what is in an envelope."""
    assert written is not None and written[:4] == b"k8s\0"
    outer = dict(fields(written[4:]))
    named: dict[int, Any] = dict(fields(outer[1]))  # type: ignore[arg-type]
    return named[1].decode(), named[2].decode(), list(fields(outer[2]))  # type: ignore[arg-type]


def test_list_has_metadata_and_items_fields() -> None:
    """By the numbers of `PodList`: metadata 1 (resourceVersion 2, continue 3, remainingItemCount 4), items 2."""
    metadata = {"resourceVersion": "7", "continue": "c", "remainingItemCount": 0}
    pods = [{"metadata": {"name": name}} for name in ("a", "b")]
    for kind in ("Pod", "PartialObjectMetadata"):
        version = "v1" if kind == "Pod" else "meta.k8s.io/v1"
        listed = {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata, "items": pods}
        got_version, got_kind, parts = _inside(encode_protobuf(listed))
        assert (got_version, got_kind) == (version, f"{kind}List")
        assert [number for number, _ in parts] == [1, 2, 2]
        assert list(fields(parts[0][1])) == [(2, b"7"), (3, b"c"), (4, 0)]
        assert [list(fields(item)) for _, item in parts[1:]] == [[(1, b"\n\x01a")], [(1, b"\n\x01b")]]
    assert _inside(encode_protobuf({"kind": "PodList", "apiVersion": "v1", "items": []}))[2] == [(1, b"")]


def test_status_has_published_field_numbers() -> None:
    """Status: status 2, message 3, reason 4, details 5 (name 1, group 2, kind 3, causes 4), code 6."""
    cause = {"reason": "FieldValueInvalid", "message": "m", "field": "spec.x"}
    status = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "reason": "Invalid",
        "details": {"name": "a", "kind": "pods", "causes": [cause]}, "code": 422,
    }  # fmt: skip
    _, kind, parts = _inside(encode_protobuf(status))
    told = dict(parts)
    assert kind == "Status" and told[6] == 422
    assert (told[1], told[2], told[3], told[4]) == (b"", b"Failure", b"no", b"Invalid")
    details = dict(fields(told[5]))
    assert (details[1], details[3]) == (b"a", b"pods")
    assert dict(fields(details[4])) == {1: b"FieldValueInvalid", 2: b"m", 3: b"spec.x"}  # type: ignore[arg-type]


def test_watch_event_has_length_type_and_object() -> None:
    """Four bytes of length, then type 1 and object 2, whose raw 1 is an envelope again."""
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "a"}}
    event = encode_event("ADDED", pod)
    assert int.from_bytes(event[:4], "big") == len(event) - 4
    told = dict(fields(event[4:]))
    assert told[1] == b"ADDED"
    assert decode_protobuf(dict(fields(told[2]))[1]) == pod  # type: ignore[arg-type]


def test_kinds_without_protobuf_form_return_none() -> None:
    custom = {"kind": "Training", "apiVersion": "example.com/v1"}
    assert encode_protobuf(custom) is None
    assert encode_protobuf({**custom, "kind": "TrainingList", "items": []}) is None
    assert encode_protobuf({**custom, "kind": "TrainingList", "items": [custom]}) is None
    assert encode_protobuf({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "rows": []}) is None
    assert list(all_kinds()) == KINDS


SCHEMAS = [
    {"type": "array", "items": {"type": "string", "maxLength": 0}, "x-kubernetes-list-type": "set"},
    {"items": [{"type": "string"}, {"type": "integer"}]},
    {"additionalProperties": {"type": "number", "minimum": 0.5}},
    {"additionalProperties": True, "additionalItems": False},
    {"properties": {"a": {"default": {"b": [1]}, "enum": ["x", 2, None], "nullable": True}}, "required": ["a"]},
    {"dependencies": {"a": {"type": "object"}, "b": ["c", "d"]}},
    {"anyOf": [{"minimum": 0}, {}], "not": {"pattern": "x"}, "$ref": "#/a", "$schema": "s"},
    {"x-kubernetes-validations": [{"rule": "self > 0", "optionalOldSelf": False}], "x-kubernetes-int-or-string": True},
]


@pytest.mark.parametrize("schema", SCHEMAS)
def test_schema_of_a_definition_survives_protobuf(schema: Obj) -> None:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    version["subresources"] = {"status": {}, "scale": {"specReplicasPath": ".a", "statusReplicasPath": ".b"}}
    spec = {"group": "example.com", "names": {"plural": "a", "kind": "A"}, "scope": "Namespaced", "versions": [version]}
    definition = {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1", "spec": spec}
    written = encode_protobuf(definition)
    assert written is not None and decode_protobuf(written) == definition


def test_members_of_a_schema_have_the_numbers_of_kubernetes() -> None:
    """By hand: items (24) has a schema in 1; additionalProperties (30) has allows in 1, a schema in 2."""
    schema = {"items": {"type": "a"}, "additionalProperties": {"type": "b"}, "minimum": 0}
    version = {"schema": {"openAPIV3Schema": schema}}
    definition = {"kind": "CustomResourceDefinition", "apiVersion": "apiextensions.k8s.io/v1"}
    written = encode_protobuf({**definition, "spec": {"versions": [version]}})
    assert written is not None
    type_a, type_b = b"\x2a\x01a", b"\x2a\x01b"
    items = b"\xc2\x01\x05\x0a\x03" + type_a
    more = b"\xf2\x01\x07\x08\x01\x12\x03" + type_b
    assert b"\x59" + bytes(8) + items + more in written
