"""Random structural schemas, and random values of them: valid ones, and some that are not."""

from __future__ import annotations

import copy
import random
from typing import Any

from haru.kube.custom.formats import FORMATS

Obj = dict[str, Any]

_NAMES = ["alpha", "beta", "count", "mode", "items", "limits", "port", "when", "x-y", "size", "type", "default"]
_TEXTS = ["a", "abc", "", "A_b", "b" * 20, "1", "true", "2026-01-02T03:04:05Z", "2026-01-02", "1h", "eA==", "1.2.3.4"]
_TEXTS += ["::1", "a@b.c", "https://e.io/x", "5d5a0d5c-1c1f-4c6a-9df5-2d8f0c2b1a11", "ü"]
_NUMBERS = [0, 1, 2, 3, 5, 8, -1, 10, 100, 2**31, 2**40, 2**64]
_FORMATS = [*sorted(FORMATS), "date-time", "k8s-short-name", "i-pv4", "x"]
_FORMATTED = [
    *("10.0.0.0/8", "10.0.0.0", "01.2.3.4", "fe80::1%e", "::ffff:1.2.3.4", "5 days", "1 month", "1x", "20260102"),
    *("2026-01-02T03:04:05+0100", "Bob <a@b.c>", "a..b@c", "a.b", "a.b.co", "http://a:x", "/a", "*", "mailto:a"),
    *("01:23:45:67:89:ab", "0123.4567.89ab", "4111111111111111", "978-0321751041", "0321751043", "123-45-6789"),
    *("#fff", "rgb(1,2,3)", "507f1f77bcf86cd799439011"),
]
"""Texts that have one of the formats, or nearly so."""
_OTHERS = [None, "x", 1, 1.5, True, [], {}, ["a"], {"a": 1}, "", 0, 1e20, "2026-01-02"]
_RULES = {
    "string": ["self.size() < 5", "self != 'abc'", "self.startsWith('a')", "self == oldSelf", "self.matches('^a')"],
    "integer": ["self > 1", "self >= oldSelf", "self % 2 == 0", "self < 100"],
    "number": ["self > 0.5", "self < 100.0"],
    "boolean": ["self", "!self || oldSelf"],
    "array": ["self.size() < 3", "self.all(x, x != self[0])", "oldSelf.size() <= self.size()", "self.exists(x, true)"],
    "object": ["has(self.alpha)", "!has(self.count) || self.count > 1", "size(self) < 3", "self == oldSelf", "false"],
}
_ODD_RULES = ["1 +", "self.nothing > 1", "'a'", "oldSelf.orValue(self) == self", "self", "dyn(self) == 1"]
_MESSAGES = ["'got ' + string(self)", "self.nothing", "'a\\nb'", "' '", "'ok'"]
_REASONS = ["FieldValueInvalid", "FieldValueForbidden", "FieldValueRequired", "FieldValueDuplicate", "x"]


class SchemaDraw:
    """Draws schemas and values from one source of randomness; one schema in `oddness` parts has something wrong."""

    def __init__(self, dice: random.Random, oddness: float = 0.0) -> None:
        self.dice, self._oddness = dice, oddness

    def schema(self, depth: int) -> Obj:
        """A schema of a random type."""
        r = self.dice
        kinds = ["string", "integer", "number", "boolean", "any"] + (["object", "array", "map"] * 2 if depth else [])
        kind = r.choice(kinds)
        made: Obj = {
            "string": self._string, "integer": self._number, "number": self._number, "boolean": self._boolean,
            "any": self._any, "object": self.object, "array": self._array, "map": self._map,
        }[kind](depth, kind)  # fmt: skip
        if r.random() < 0.15:
            made["nullable"] = True
        if r.random() < 0.15:
            made["description"] = "Some text."
        if made.get("type") and r.random() < 0.2:
            made["x-kubernetes-validations"] = [self._rule(made["type"]) for _ in range(r.choice([1, 1, 2]))]
        if r.random() < 0.25:
            made["default"] = self.value(made)
        if r.random() < self._oddness:
            key, value = r.choice([
                ("type", "x"), ("pattern", "["), ("minLength", -1), ("uniqueItems", True), ("default", {"a": [1]}),
                ("x-kubernetes-list-type", "map"), ("x-kubernetes-embedded-resource", True), ("oneOf", [{"type": "x"}]),
                ("additionalProperties", False), ("$ref", "#/x"), ("format", "int32"), ("not", {"minimum": 1}),
                ("x-kubernetes-map-type", "atomic"), ("x-kubernetes-preserve-unknown-fields", False),
            ])  # fmt: skip
            made[key] = value
        return made

    def object(self, depth: int, kind: str = "object") -> Obj:
        """A schema with properties."""
        r = self.dice
        names = r.sample(_NAMES, r.choice([1, 2, 3, 4]))
        made: Obj = {"type": "object", "properties": {name: self.schema(depth - 1) for name in names}}
        if r.random() < 0.3:
            made["required"] = r.sample(names, 1)
        if r.random() < 0.1:
            made["x-kubernetes-preserve-unknown-fields"] = True
        if r.random() < 0.1:
            made[r.choice(["oneOf", "anyOf", "allOf"])] = [{"required": [name]} for name in names[:2]]
        if r.random() < 0.05:
            made["not"] = {"required": [names[0]]}
        if r.random() < 0.05:
            made[r.choice(["minProperties", "maxProperties"])] = 1
        if r.random() < 0.1:
            made["x-kubernetes-map-type"] = r.choice(["atomic", "granular"])
        return made

    def _string(self, depth: int, kind: str) -> Obj:
        r, made = self.dice, Obj(type="string", maxLength=self.dice.choice([3, 10, 64]))
        for key, values in (
            ("minLength", [1, 2]), ("pattern", ["^[a-z]+$", "b", "^.{1,3}$"]), ("format", _FORMATS),
            ("enum", [["a", "abc"], ["abc", "", "1"]]),
        ):  # fmt: skip
            if r.random() < 0.15:
                made[key] = r.choice(values)
        return made

    def _number(self, depth: int, kind: str) -> Obj:
        r, made = self.dice, Obj(type=kind)
        for key, values in (
            ("minimum", [0, 1]), ("maximum", [5, 100]), ("exclusiveMinimum", [True, False]), ("multipleOf", [2, 0.5]),
            ("format", ["int32", "int64"] if kind == "integer" else ["float", "double"]), ("enum", [[1, 2, 5]]),
        ):  # fmt: skip
            if r.random() < 0.15 and (key != "exclusiveMinimum" or "minimum" in made):
                made[key] = 2 if kind == "integer" and key == "multipleOf" else r.choice(values)
        return made

    def _boolean(self, depth: int, kind: str) -> Obj:
        return {"type": "boolean"}

    def _any(self, depth: int, kind: str) -> Obj:
        return self.dice.choice([
            {"x-kubernetes-int-or-string": True}, {"x-kubernetes-preserve-unknown-fields": True},
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            {"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True},
            {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
        ])  # fmt: skip

    def _array(self, depth: int, kind: str) -> Obj:
        r, made = self.dice, Obj(type="array", maxItems=self.dice.choice([2, 3, 5]))
        form = r.choice(["", "", "atomic", "set", "map"])
        if form == "map":
            inner = self.object(depth - 1)
            inner["properties"]["name"] = {"type": "string", "maxLength": 10}
            inner["required"] = sorted({*inner.get("required", ()), "name"})
            for key in ("nullable", "default"):
                inner.pop(key, None)
            made |= {"items": inner, "x-kubernetes-list-map-keys": ["name"]}
        elif form == "set":
            made["items"] = {"type": r.choice(["string", "integer"])} | r.choice([{}, {"maxLength": 10}])
        else:
            made["items"] = self.schema(depth - 1)
        if form:
            made["x-kubernetes-list-type"] = form
        if r.random() < 0.15:
            made["minItems"] = 1
        return made

    def _map(self, depth: int, kind: str) -> Obj:
        return {"type": "object", "maxProperties": 3, "additionalProperties": self.schema(depth - 1)}

    def _rule(self, of: str) -> Obj:
        r = self.dice
        made = Obj(rule=r.choice(_ODD_RULES if r.random() < self._oddness else _RULES.get(of, ["true"])))
        for key, values in (("message", ["no", "a b"]), ("messageExpression", _MESSAGES), ("reason", _REASONS[:4])):
            if r.random() < 0.25:
                made[key] = r.choice(values)
        if "oldSelf" in made["rule"] and r.random() < 0.2:
            made["optionalOldSelf"] = True
        if of == "object" and r.random() < 0.1:
            made["fieldPath"] = r.choice([".alpha", ".count", ".nothing"])
        return made

    # -- values -------------------------------------------------------------------------------------------------------

    def value(self, schema: Obj, wrong: float = 0.05) -> Any:
        """A value of a schema, more or less."""
        r = self.dice
        if r.random() < wrong:
            return copy.deepcopy(r.choice(_OTHERS))
        if schema.get("enum") and r.random() < 0.9:
            return r.choice(schema["enum"])
        kind = schema.get("type")
        if kind == "object":
            return self._object_value(schema, wrong)
        if kind == "array":
            most = min(schema.get("maxItems", 3), 3)
            return [self.value(schema.get("items") or {}, wrong) for _ in range(r.randint(0, most))]
        if kind == "integer":
            return r.choice(_NUMBERS[:6] if r.random() < 0.8 else _NUMBERS)
        if kind == "number":
            return r.choice([0, 0.5, 1, 2.5, 5, 1e3, -1, 1e20])
        if kind == "boolean":
            return r.random() < 0.5
        if kind == "string" and schema.get("format") and r.random() < 0.6:
            return r.choice(_FORMATTED)
        if kind == "string":
            return r.choice(_TEXTS[:2] if r.random() < 0.6 else _TEXTS)
        return copy.deepcopy(r.choice(_OTHERS))

    def _object_value(self, schema: Obj, wrong: float) -> Any:
        r, made = self.dice, Obj()
        for name, inner in (schema.get("properties") or {}).items():
            if name in schema.get("required", ()) or r.random() < 0.6:
                made[name] = self.value(inner, wrong)
        if isinstance(schema.get("additionalProperties"), dict):
            for name in r.sample(["a", "b", "c/d", ""], r.choice([0, 1, 1, 2])):
                made[name] = self.value(schema["additionalProperties"], wrong)
        if schema.get("x-kubernetes-embedded-resource"):
            made |= r.choice([{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}, {"kind": "Pod"}])
        if r.random() < 0.05:
            made["unknown"] = r.choice([1, {"a": {}}, None])
        return made
