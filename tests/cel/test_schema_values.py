"""Lists that a schema calls sets and maps, and objects with members that it does not declare, in rules."""

from __future__ import annotations

from typing import Any

import pytest

from haru.cel.object_rules import ObjectRules
from haru.kube.custom.structural import parse

Obj = dict[str, Any]
TEXT: Obj = {"type": "string"}
INTEGER: Obj = {"type": "integer"}
ANYTHING: Obj = {"x-kubernetes-preserve-unknown-fields": True}


def an_object(**properties: Obj) -> Obj:
    return {"type": "object", "properties": properties}


def a_set(items: Obj) -> Obj:
    return {"type": "array", "items": items, "x-kubernetes-list-type": "set"}


def keyed(items: Obj, *keys: str) -> Obj:
    return {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}


PAIR = an_object(k=TEXT, v=TEXT)
ODD = {"type": "object", "properties": {"k.": TEXT, "k!": TEXT, "v": TEXT}}
ATOMIC = {**PAIR, "x-kubernetes-map-type": "atomic"}
SPEC = an_object(
    plain={"type": "array", "items": TEXT},
    s1=a_set(TEXT),
    s2=a_set(TEXT),
    numbers=a_set({"type": "number"}),
    times=a_set({"type": "string", "format": "date-time"}),
    mixed=a_set({"x-kubernetes-int-or-string": True}),
    atoms=a_set(ATOMIC),
    m={"type": "array", "items": keyed(PAIR, "k")},
    two=keyed(an_object(a=TEXT, b=INTEGER, v=TEXT), "a", "b"),
    odd=keyed(ODD, "k.", "k!"),
    sets={"type": "array", "items": a_set(TEXT)},
    box=an_object(inner=a_set(TEXT), rows=keyed(PAIR, "k")),
    boxes={"type": "object", "additionalProperties": a_set(TEXT)},
    o={"type": "array", "items": {**an_object(a=INTEGER, n={**TEXT, "nullable": True}), **ANYTHING}},
    free={"type": "array", "items": {"type": "object", **ANYTHING}},
    part={"type": "array", "items": an_object(any=ANYTHING)},
)


def holds(rule: str, old: Obj | None = None, **spec: Any) -> bool:
    schema = {**SPEC, "x-kubernetes-validations": [{"rule": rule}]}
    found = ObjectRules(parse(an_object(spec=schema))).check({"spec": spec}, None if old is None else {"spec": old})
    errors = [str(error) for error in found]
    assert all("failed rule" in error and "evaluating" not in error for error in errors), errors
    return not errors


def pairs(text: str) -> list[Obj]:
    """`a1 b2` as a list of `k` and `v`."""
    return [{"k": word[0], "v": word[1:]} for word in text.split()]


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("self.s1 == self.s2", True),
        ("self.s1 != self.s2", False),
        ("self.s1 == ['c', 'a', 'b']", True),
        ("self.s1 == ['a', 'b']", False),
        ("self.s1 == ['a', 'b', 'd']", False),
        ("self.s1 == self.plain", True),
        # What stands on the left decides.
        ("self.plain == self.s1", False),
        ("['c', 'a', 'b'] == self.s1", False),
        ("self.s1[0] == 'b' && self.s1[2] == 'a'", True),
        ("(self.s1 + ['d', 'c', 'd']).map(x, x) == ['b', 'c', 'a', 'd']", True),
        ("self.s1 + self.s2 == ['a', 'b', 'c']", True),
        ("(['z'] + self.s1).size() == 4 && (['z'] + self.s1) == ['z', 'b', 'c', 'a']", True),
        ("(self.s1 + ['a']) + ['a'] == self.s2", True),
        ("(self.s1 + self.s2).size() == 3 && self.s1.size() == 3", True),
        ("'b' in self.s1 && !('z' in self.s1)", True),
        ("self.s1.all(x, x in self.s2) && self.s1.exists(x, x == 'a')", True),
        ("type(self.s1) == list && self.s1.join('') == 'bca' && !self.s1.isSorted()", True),
        ("'%s'.format([self.s1]) == '%s'.format([['b', 'c', 'a']])", True),
        ("sets.equivalent(self.s1, self.s2) && self.s1.filter(x, x > 'a').size() == 2", True),
        ("self.s1.indexOf('a') == 2", True),
        ("self.numbers == [2.0, 1.0] && self.numbers == self.numbers", True),
        ("self.times == [timestamp('2026-01-02T00:00:00Z'), timestamp('2026-01-01T00:00:00Z')]", True),
        ("self.mixed == [dyn(1), dyn('1')]", True),
        ("self.mixed == [dyn('1'), dyn(true)]", False),
        ("self.mixed + [dyn('x'), dyn(1)] == [dyn('1'), dyn('x'), dyn(1)]", True),
        ("self.atoms == [self.atoms[1], self.atoms[0]]", True),
        ("self.atoms == [self.atoms[1], self.atoms[1]]", True),
        ("(self.atoms + [self.atoms[1]]).size() == 2", True),
    ],
)
def test_set_lists_compare_without_order(rule: str, wanted: bool) -> None:
    found = holds(
        rule,
        plain=["a", "b", "c"],
        s1=["b", "c", "a"],
        s2=["a", "b", "c"],
        numbers=[1, 2.0],
        times=["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"],
        mixed=["1", 1],
        atoms=pairs("a1 b2"),
    )
    assert found is wanted


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("self.m[0] == self.m[1]", False),
        ("self.m[0] + self.m[1] == self.m[1] + [self.m[0][1]]", True),
        ("(self.m[0] + self.m[1]).map(x, x.k + x.v) == ['a9', 'b2', 'c3']", True),
        ("(self.m[1] + self.m[0]).map(x, x.k + x.v) == ['a1', 'c3', 'b2']", True),
        ("self.m[0] == [self.m[0][1], self.m[0][0]]", True),
        ("[self.m[0][1], self.m[0][0]] == self.m[0]", False),
        ("self.m[0] == [self.m[0][1]]", False),
        ("self.m[0] == [self.m[0][1], self.m[1][0]]", False),
        ("self.m[0][0] in self.m[0] && !(self.m[1][0] in self.m[0])", True),
        ("self.m[0] == dyn([1, 2])", False),
        ("self.two == [self.two[2], self.two[0], self.two[1]]", True),
        ("(self.two + [self.two[1]]).size() == 3", True),
        ("self.odd == [self.odd[1], self.odd[0]]", True),
        ("(self.odd + [self.odd[1]]).size() == 2 && self.odd[0].k__dot__ == '1'", True),
    ],
)
def test_map_lists_compare_by_key(rule: str, wanted: bool) -> None:
    two = [{"a": "x", "b": 1, "v": "1"}, {"a": "x", "b": 2, "v": "2"}, {"a": "y", "b": 1, "v": "3"}]
    odd = [{"k.": "1", "k!": "1", "v": "a"}, {"k.": "1", "k!": "2", "v": "b"}]
    assert holds(rule, m=[pairs("a1 b2"), pairs("a9 c3")], two=two, odd=odd) is wanted


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("self.box == oldSelf.box", True),
        ("self.boxes == oldSelf.boxes", True),
        ("self == oldSelf || self.s1 == oldSelf.s1", False),
        ("self.sets == oldSelf.sets", True),
        ("oldSelf.sets[0] in self.sets && ['b', 'a'] in self.sets", True),
    ],
)
def test_nested_values_compare_as_their_schema_says(rule: str, wanted: bool) -> None:
    old = {
        "box": {"inner": ["a", "b"], "rows": pairs("a1 b2")},
        "boxes": {"x": ["a", "b"]},
        "sets": [["a", "b"], ["c"]],
    }
    new = {
        "box": {"inner": ["b", "a"], "rows": pairs("b2 a1")},
        "boxes": {"x": ["b", "a"]},
        "sets": [["b", "a"], ["c"]],
    }
    assert holds(rule, {**old, "s1": ["a"]}, **new, s1=["b"]) is wanted


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("self.o[0] == self.o[1]", False),
        ("self.o[0] == self.o[2] && self.o[3] == self.o[4]", True),
        ("self.o[2] == self.o[3] || self.o[3] == self.o[2]", False),
        ("self.free[0] == self.free[1] || self.free[1] == self.free[2] || self.free[2] == self.free[1]", False),
        ("self.free[0] == self.free[3]", True),
        ("self.part[0] == self.part[1]", False),
        ("self == oldSelf", False),
        # A null is as good as no value.
        ("!has(self.o[3].n) && has(self.o[5].n)", True),
    ],
)
def test_undeclared_fields_take_part_in_comparison(rule: str, wanted: bool) -> None:
    spec = {
        "o": [
            {"a": 1, "x": {"y": [1]}},
            {"a": 1, "x": 2},
            {"a": 1, "x": {"y": [1]}},
            {"a": 1, "n": None},
            {"a": 1},
            {"n": ""},
        ],
        "free": [{"x": 1}, {"x": 2}, {}, {"x": 1}],
        "part": [{"any": [1, {"a": 2}]}, {"any": [1, {"a": 3}]}],
    }
    assert holds(rule, {**spec, "s1": []}, **spec) is wanted


def test_sets_of_20000_items_compare_in_linear_time() -> None:
    names = [{"k": f"n{number}", "v": ""} for number in range(20_000)]
    words = [pair["k"] for pair in names]
    assert holds("self.s1 == self.s2 && self.m[0] == self.m[1]", s1=words, s2=words[::-1], m=[names, names[::-1]])
    assert holds("(self.atoms + self.atoms).size() == 20000", atoms=names)
