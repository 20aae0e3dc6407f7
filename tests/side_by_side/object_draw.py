"""Random changes of objects: members of their schema that come, go, or get values that are valid, odd or wrong."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from request_custom import CustomKind

from haru.kube import yaml
from haru.kube.kinds import by_kind
from haru.kube.schema import Field, MessageType, message_type

Obj = dict[str, Any]

DEPTH = 4
UID = "5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11"
"""One that nobody made."""
_INTEGERS = [0, 1, 2, 5, 30, 443, 65535, 65536, -1, 2**31 - 1, 2**31, 1000, 100000]
_TIMES = [
    *("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.123456Z", "2026-01-02T03:04:05+01:00", "x", ""),
    "2026-13-01T00:00:00Z",
]
_BY_TYPE: dict[str, list[Any]] = {
    "bool": [True, False, True, False, True, False, "true", None],
    "double": [0.5, 1, -1],
    "quantity": ["1", "100m", "1Gi", "0", "-1", "1.5", "0.5m", "1e3", "2Ki", "x", "", 3, 1.5],
    "intOrString": [1, 0, "50%", "25%", "a", "", "101%", -1, 80, 65536, "-1%"],
    "time": _TIMES,
    "microTime": _TIMES,
    "json": [{"a": 1}, {}, "x", 1, None, [1], {"apiVersion": "v1", "kind": "ConfigMap"}],
    "fieldsV1": [{"f:spec": {}}, {}],
    "stringList": [["a"], [], ["x", "y"]],
}
_OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": UID}
_ENTRY = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
_METADATA: dict[str, list[Any]] = {
    "labels": [{"a": "b", "x": "y"}, {"a": "c"}, {}, None, {"a b": "x"}, {"a": "b c"}, {"a": 1}, {"x.y/z": "A" * 64}],
    "annotations": [{"k": "v"}, {"k": "w", "l": ""}, {}, None, {"a b": ""}, {"k": "x" * 300000}, {"K.io/A_b": "x"}],
    "finalizers": [
        ["x.y/z"],
        [],
        ["x"],
        ["a b"],
        ["foregroundDeletion"],
        ["x.y/z"] * 2,
        ["orphan", "foregroundDeletion"],
    ],
    "ownerReferences": [
        *([_OWNER], [_OWNER, _OWNER], [_OWNER | {"controller": True}] * 2, [{"kind": "x"}], [_OWNER | {"uid": ""}]),
        *([_OWNER | {"apiVersion": "v1/x/y"}], [_OWNER | {"kind": "Event"}]),
    ],
    "generateName": ["g-", "g-", "x" * 80],
    "namespace": ["NAMESPACE", "other", ""],
    "generation": [7, -1, "x"],
    "creationTimestamp": ["2026-01-02T03:04:05Z", None, "x"],
    "deletionTimestamp": ["2026-01-02T03:04:05Z"],
    "deletionGracePeriodSeconds": [5],
    "selfLink": ["/x"],
    "clusterName": ["x"],
    "managedFields": [
        [],
        [{}],
        [_ENTRY | {"fieldsV1": {"f:metadata": {"f:labels": {}}}}],
        [_ENTRY | {"operation": "x"}],
    ],
}


def _values() -> list[tuple[re.Pattern[str], list[str]]]:
    """Texts by a pattern of the name of the member that may have them."""
    read = yaml.load((Path(__file__).parent / "request_values.yaml").read_text())
    many = re.compile(r"(.)×(\d+)")
    return [
        (re.compile(pattern), [many.sub(lambda found: found[1] * int(found[2]), str(one)) for one in values])
        for pattern, values in read.items()
    ]


_VALUES = _values()


class Place(NamedTuple):
    """A member of an object: what holds it, its key there, and its field, as far as the schema knows it."""

    parent: Any
    key: Any
    field: Field | None


def places(value: Any, message: MessageType | None, above: Field | None = None) -> Iterator[Place]:
    """All members of a value, from outside in."""
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield Place(value, number, above)
            yield from places(one, message)
    if not isinstance(value, dict):
        return
    is_map = above is not None and above.container == "map"
    for key, one in list(value.items()):
        field = above if is_map else message.fields.get(key) if message else None
        yield Place(value, key, field)
        inner = message if is_map else message_type(field.type) if field and field.is_message else None
        yield from places(one, inner, field if field is not None and field.container != "one" and not is_map else None)


class ObjectDraw:
    """Draws values and changes from one source of randomness."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.custom: CustomKind | None = None

    def changed(self, obj: Obj, most: int = 3) -> Obj:
        """A copy with one to `most` changes."""
        made = copy.deepcopy(obj)
        if self.custom and self.custom.knows(obj) and self.dice.random() < 0.7:
            return self.custom.changed(made)
        kind = by_kind(str(obj.get("apiVersion")), str(obj.get("kind")))
        message = kind.message_type if kind else None
        for _ in range(self.dice.randint(1, most)):
            self._change(made, message)
        return made

    def _change(self, obj: Obj, message: MessageType | None) -> None:
        choice, r = self.dice.random(), self.dice
        if choice < 0.15:
            self._metadata(obj)
            return
        found = [one for one in places(obj, message) if one.key not in ("apiVersion", "kind", "metadata")]
        found = [one for one in found if not self._is_ours(obj, one)]
        if choice < 0.55 and message:
            self._add(obj, message)
        elif not found:
            obj[r.choice(["spec", "status", "data"])] = r.choice([{}, None, {"a": "b"}])
        else:
            self._bend(r.choice(found))

    @staticmethod
    def _is_ours(obj: Obj, place: Place) -> bool:
        metadata = obj.get("metadata")
        return place.parent is metadata or (isinstance(metadata, dict) and place.key in ("uid", "resourceVersion"))

    def _bend(self, place: Place) -> None:
        parent, key, field = place
        r, old = self.dice, place.parent[place.key]
        what = r.random()
        if what < 0.25:
            del parent[key]
        elif what < 0.4 and isinstance(parent, list):
            parent.append(copy.deepcopy(old))
        elif what < 0.45 and isinstance(parent, dict):
            parent[r.choice(["unknown", key.upper() + "x", "spec"])] = r.choice([1, "x", {}, None])
        elif what < 0.5:
            parent[key] = None
        elif what < 0.55:
            parent[key] = r.choice([[], {}, "", 0])
        elif what < 0.58:
            parent[key] = r.choice([1, "x", True, [1], {"x": "y"}, -1, 1.5])
        elif field is not None:
            one = self._one(field, 2)
            parent[key] = one if isinstance(parent, list) or field.container != "list" else [one]
        elif isinstance(old, str):
            parent[key] = r.choice(_VALUES[-1][1])
        elif isinstance(old, int) and not isinstance(old, bool):
            parent[key] = r.choice(_INTEGERS)

    def _add(self, obj: Obj, message: MessageType) -> None:
        """Set a member that the schema knows, somewhere."""
        homes = [(obj, message)]
        for parent, key, field in places(obj, message):
            value = parent[key]
            if field is not None and field.is_message and isinstance(value, dict):
                if field.container == "one" or isinstance(parent, list):
                    homes.append((value, message_type(field.type)))
                elif field.container == "map" and all(isinstance(one, dict) for one in value.values()):
                    homes += [(one, message_type(field.type)) for one in value.values()]
        homes = [(one, of) for one, of in homes if of.short_name not in ("ObjectMeta", "ManagedFieldsEntry")]
        home, of = self.dice.choice(homes)
        fields = [one for one in of.fields.values() if one.name not in ("apiVersion", "kind", "metadata")]
        if fields:
            field = self.dice.choice(fields)
            home[field.name] = self.value(field, DEPTH)

    # -- values -------------------------------------------------------------------------------------------------------

    def value(self, field: Field, depth: int) -> Any:
        """A value of a field: one, or a list or map of them."""
        r = self.dice
        if field.container == "list":
            return [self._one(field, depth) for _ in range(r.choice([0, 1, 1, 1, 2, 3]))]
        if field.container == "map":
            keys = ["a", "x.y/z", "cpu", "memory", "storage", "nvidia.com/gpu", "k", "A_b", "a b"]
            return {r.choice(keys): self._one(field, depth) for _ in range(r.choice([0, 1, 1, 2]))}
        return self._one(field, depth)

    def _one(self, field: Field, depth: int) -> Any:
        r = self.dice
        if field.is_message:
            return self._message(message_type(field.type), depth)
        if field.enum and r.random() < 0.9:
            return r.choice(field.enum)
        if field.type in ("string", "bytes"):
            return self._text(field)
        if field.type in ("int32", "int64"):
            return r.choice(_INTEGERS[:7] if r.random() < 0.7 else _INTEGERS)
        return r.choice(_BY_TYPE[field.type])

    def _text(self, field: Field) -> Any:
        r = self.dice
        values = next(values for pattern, values in _VALUES if pattern.fullmatch(field.name))
        return values[0] if r.random() < 0.4 else r.choice(values)

    def _message(self, message: MessageType, depth: int) -> Obj:
        r, made = self.dice, Obj()
        fields = list(message.fields.values())
        if depth <= 0:
            return made
        for field in fields:
            if field.required and r.random() < 0.95:
                made[field.name] = self.value(field, depth - 1)
        for field in r.sample(fields, min(len(fields), r.choice([0, 1, 1, 2, 3]))):
            made.setdefault(field.name, self.value(field, depth - 1))
        return made

    def _metadata(self, obj: Obj) -> None:
        r = self.dice
        metadata = obj.get("metadata")
        if not isinstance(metadata, dict):
            return
        key = r.choice(list(_METADATA))
        metadata[key] = copy.deepcopy(r.choice(_METADATA[key]))
