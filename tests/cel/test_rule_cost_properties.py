"""What a rule is estimated to cost is never less than what it does cost, for objects within their schema's limits.

Left out of the expressions is where 1.36 itself estimates too little: scalars that are compared for equality and keys
of maps count as nothing, a call whose operand fails is paid, `startsWith` counts by its argument (when it runs, by its
target), and loops over what is selected from the variable of another loop by what was selected last (see
`ranges.Steps`).
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from haru.cel.checked_rules import VARIABLES, check_rules
from haru.cel.definition_rules import estimated_cost
from haru.cel.objects import to_value
from haru.cel.program import MeteredProgram
from haru.cel.schema_sizes import sized
from haru.kube.custom.structural import parse
from haru.kube.custom.value_validation import judge

Obj = dict[str, Any]


def schema_of(rng: Random) -> Obj:
    """An object with texts, numbers, lists and a map, each with a limit of its own."""

    def text() -> Obj:
        return {"type": "string", "maxLength": rng.randrange(12)}

    pair = {"type": "object", "properties": {"k": text(), "v": text(), "n": {"type": "integer"}}}
    properties = {
        "name": text(),
        "other": {"type": "string", "enum": ["Safe", "Fast", "Very fast"]},
        "count": {"type": "integer"},
        "texts": {"type": "array", "items": text(), "maxItems": rng.randrange(6)},
        "numbers": {"type": "array", "items": {"type": "integer"}, "maxItems": rng.randrange(6)},
        "pairs": {"type": "array", "items": pair, "maxItems": rng.randrange(6)},
        "labels": {"type": "object", "additionalProperties": text(), "maxProperties": rng.randrange(6)},
    }
    return {"type": "object", "properties": properties}


def value_of(schema: Obj, rng: Random) -> Any:
    """A value within the limits, often at them."""
    if schema["type"] == "integer":
        return rng.randrange(-5, 5)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if schema["type"] == "string":
        return "".join(rng.choice("abcé👑") for _ in range(_amount(schema["maxLength"], rng)))
    if schema["type"] == "array":
        return [value_of(schema["items"], rng) for _ in range(_amount(schema["maxItems"], rng))]
    if "additionalProperties" in schema:
        names = [f"k{number}" for number in range(_amount(schema["maxProperties"], rng))]
        return {name: value_of(schema["additionalProperties"], rng) for name in names}
    return {name: value_of(inner, rng) for name, inner in schema["properties"].items()}


def _amount(most: int, rng: Random) -> int:
    return most if rng.random() < 0.6 else rng.randrange(most + 1)


class Maker:
    """Random rules. `texts` and `numbers` are what can be named where the rule is being written."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._texts = ["self.name", "self.other", "'ab'", "''"]
        self._numbers = ["self.count", "3"]
        self._variables = 0

    def rule(self, depth: int) -> str:
        rng, below = self._rng, depth - 1
        if depth <= 0 or rng.random() < 0.15:
            return self._plain()
        return rng.choice(
            (
                lambda: f"({self.rule(below)} && {self.rule(below)})",
                lambda: f"({self.rule(below)} || {self.rule(below)})",
                lambda: f"!({self.rule(below)})",
                lambda: f"({self.rule(below)} ? {self.rule(below)} : {self.rule(below)})",
                lambda: self._loop(below),
                lambda: self._loop(below),
            )
        )()

    def _plain(self) -> str:
        return self._rng.choice(
            (
                lambda: f"{self._number()} < {self._number()}",
                lambda: f"{self._text()} == {self._text()}",
                lambda: f"{self._text()}.contains({self._text()})",
                lambda: f"{self._text()}.matches('^[a-c]+$')",
                lambda: f"{self._text()} in self.texts",
                lambda: f"{self._text()}.replace('a', 'bcd').size() > 2",
                lambda: f"{self._text()}.split('b').size() < 3",
                lambda: "self.texts.join('-') < 'b'",
                lambda: "sets.contains(self.texts, ['a', 'b'])",
                lambda: "self.labels.all(k, self.labels[k] < 'b')",
                lambda: "has(self.labels.k0)",
            )
        )()

    def _text(self) -> str:
        chosen = self._rng.choice(self._texts)
        return self._rng.choice(
            (chosen, chosen, f"({chosen} + {self._rng.choice(self._texts)})", f"{chosen}.lowerAscii()")
        )

    def _number(self) -> str:
        chosen = self._rng.choice(self._numbers)
        return self._rng.choice((chosen, f"({chosen} + 1)", f"size({self._text()})", "self.pairs.size()"))

    def _loop(self, depth: int) -> str:
        name = f"x{self._variables}"
        self._variables += 1
        ranged, texts, numbers = self._rng.choice(
            (
                ("self.texts", [name], []),
                ("self.numbers", [], [name]),
                ("self.pairs", [f"{name}.k", f"{name}.v"], [f"{name}.n"]),
                ("self.labels", [f"self.labels[{name}]"], []),
                ("self.texts.map(t, t + 'a')", [], [f"size({name})"]),
                ("self.numbers.filter(n, n > 0)", [], [name]),
            )
        )
        kept = list(self._texts), list(self._numbers)
        self._texts += texts
        self._numbers += numbers
        inner = self.rule(depth)
        self._texts, self._numbers = kept
        macro = self._rng.choice(("all", "exists", "exists_one", "filter"))
        return f"{ranged}.{macro}({name}, {inner})" + (".size() < 3" if macro == "filter" else "")


@given(st.randoms(use_true_random=False))
def test_estimated_rule_cost_is_never_below_actual_cost(rng: Random) -> None:
    raw = schema_of(rng)
    rule = Maker(rng).rule(3)
    schema = parse({**raw, "x-kubernetes-validations": [{"rule": rule}]})
    (checked,) = check_rules(schema)
    values = sized(schema)
    assert checked.tree is not None and values is not None, (rule, checked.problem)
    most = estimated_cost(checked.tree, values)
    program = MeteredProgram(checked.tree, checked.environment, VARIABLES)
    for _ in range(3):
        value = value_of(raw, rng)
        assert judge(value, schema, "") == []
        found = program.measure(math.inf, to_value(value, schema), None)
        assert found.cost <= most, (rule, value)
