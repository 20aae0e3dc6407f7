"""What rules are estimated to cost: the numbers of 1.36, which decide whether a definition is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from cel_reference import LOCAL, read_cases

from haru.cel.checked_rules import check_rules
from haru.cel.definition_rules import estimated_cost
from haru.cel.ranges import Steps
from haru.cel.schema_sizes import MAX_REQUEST_BYTES, sized
from haru.kube.custom.structural import parse

Obj = dict[str, Any]

TEXT: Obj = {"type": "string"}
BYTES: Obj = {"type": "string", "format": "byte"}
INTEGER: Obj = {"type": "integer"}
NUMBER: Obj = {"type": "number"}
BOOLEAN: Obj = {"type": "boolean"}
EITHER: Obj = {"x-kubernetes-int-or-string": True}
DATE, MOMENT, SPAN = ({"type": "string", "format": form} for form in ("date", "date-time", "duration"))
ANYTHING: Obj = {"x-kubernetes-preserve-unknown-fields": True}


def list_of(items: Obj, **more: Any) -> Obj:
    return {"type": "array", "items": items, **more}


def map_of(values: Obj, **more: Any) -> Obj:
    return {"type": "object", "additionalProperties": values, **more}


def an_object(needed: tuple[str, ...] = (), /, **properties: Obj) -> Obj:
    return {"type": "object", "properties": properties, **({"required": list(needed)} if needed else {})}


def keyed(key: str, items: Obj, **more: Any) -> Obj:
    return list_of(items, **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}, **more)


def cost(schema: Obj, rule: str) -> int:
    node = parse({**schema, "x-kubernetes-validations": [{"rule": rule}]})
    (checked,) = check_rules(node)
    values = sized(node)
    assert checked.tree is not None and values is not None, checked.problem
    return estimated_cost(checked.tree, values)


ONE_REQUIRED = an_object(("required",), required=TEXT, optional=TEXT)
ALL = "self.all(x, true)"


@pytest.mark.parametrize(
    ("schema", "rule", "free", "limit", "limited"),
    [
        (list_of(NUMBER), ALL, 4718591, {"maxItems": 10}, 32),
        (list_of(TEXT), ALL, 3145727, {"maxItems": 20}, 62),
        (list_of(BOOLEAN), ALL, 1887437, {"maxItems": 5}, 17),
        (list_of(EITHER), ALL, 4718591, {"maxItems": 10}, 32),
        (list_of(SPAN), ALL, 2359295, {"maxItems": 5}, 17),
        (list_of(DATE), ALL, 725936, {"maxItems": 15}, 47),
        (list_of(MOMENT), ALL, 428963, {"maxItems": 25}, 77),
        (list_of(list_of(NUMBER)), ALL, 3145727, {"maxItems": 100}, 302),
        (list_of(ONE_REQUIRED), ALL, 555128, {"maxItems": 50}, 152),
        (map_of(NUMBER), ALL, 1348169, {"maxProperties": 10}, 32),
        (map_of(TEXT), ALL, 1179647, {"maxProperties": 3}, 11),
        (map_of(BOOLEAN), ALL, 943718, {"maxProperties": 100}, 302),
        (map_of(EITHER), ALL, 1348169, {"maxProperties": 15}, 47),
        (map_of(SPAN), ALL, 1048577, {"maxProperties": 5}, 17),
        (map_of(DATE), ALL, 524288, {"maxProperties": 10}, 32),
        (map_of(MOMENT), ALL, 349526, {"maxProperties": 25}, 77),
        (map_of(ONE_REQUIRED), ALL, 428963, {"maxProperties": 20}, 62),
        (map_of(map_of(NUMBER)), ALL, 1179647, {"maxProperties": 10}, 32),
        (map_of(list_of(NUMBER)), ALL, 1179647, {"maxProperties": 25}, 77),
        (TEXT, "self.contains('test')", 314574, {"maxLength": 10}, 5),
        (TEXT, "self.startsWith('test')", 2, {"maxLength": 15}, 2),
        (TEXT, "size(self + 'hello') > size('hello')", 314578, {"maxLength": 4}, 7),
        (TEXT, "self.matches('x')", 314574, {"maxLength": 50}, 22),
        (TEXT, "''.matches('(((((((((())))))))))[0-9]')", 7, {"maxLength": 10}, 7),
        (TEXT, "self.matches('')", 1, {"maxLength": 100}, 1),
        (TEXT, "self == 'x'", 2, {"maxLength": 0}, 1),
        (BYTES, "self == b'x'", 2, {"maxLength": 0}, 1),
        (TEXT, "self.find('[0-9]+') == ''", 629147, {"maxLength": 10}, 11),
        (TEXT, "self.lowerAscii() == 'lower!'", 314575, {"maxLength": 10}, 6),
        (EITHER, "isQuantity(self)", 314574, {"maxLength": 20}, 9),
        ({**TEXT, "enum": ["A", "B", "LongValue"]}, "self.contains('A')", 2, {"maxLength": 1000}, 401),
        (list_of(NUMBER), "self[1] == 0.0", 2, {"maxItems": 5000}, 2),
        # The limit is one of the list; its texts have none.
        (list_of(TEXT), "self[1] == self[1]", 314577, {"maxItems": 8}, 314577),
        (list_of(NUMBER), "self.all(x, x == 0.0)", 6291454, {"maxItems": 3 * 1024 * 2048}, 25165826),
        (list_of(EITHER), "self[0] == 5", 3, {"maxItems": 10}, 3),
        (list_of(list_of(NUMBER)), "self[0][0] == -1.0", 3, {"maxItems": 51}, 3),
        (list_of(map_of(NUMBER)), "self.all(x, x.y == 25.2)", 6291452, {"maxItems": 12}, 74),
        (list_of(map_of(ONE_REQUIRED)), "self.all(x, x['y'].required == 'z')", 7340027, {"maxItems": 10}, 72),
        (list_of(MOMENT), "self[2].getMinutes() == 45", 4, {"maxItems": 99}, 4),
        (map_of(INTEGER), "oldSelf.size() == self.size()", 5, {"maxProperties": 10}, 5),
        (map_of(MOMENT), "self['a'] == self['b']", 8, {"maxProperties": 7}, 8),
        (map_of(SPAN), "self['c'] == self['d']", 8, {"maxProperties": 42}, 8),
    ],
)
def test_estimated_cost_uses_max_items_and_max_length(
    schema: Obj, rule: str, free: int, limit: Obj, limited: int
) -> None:
    assert (cost(schema, rule), cost({**schema, **limit}, rule)) == (free, limited)


TEN = {"maxItems": 10}
TEN_EACH = {"maxProperties": 10}
PAIR = an_object(k=TEXT, v=TEXT)
SCHEMAS: dict[str, Obj] = {
    "numbers": an_object(a=INTEGER, b=NUMBER, c=INTEGER, d=NUMBER),
    "texts": an_object(a=TEXT, b=TEXT, bytes=BYTES, span=SPAN, moment=MOMENT, date=DATE, flag=BOOLEAN, either=EITHER),
    "integers": an_object(a=list_of(INTEGER), b=list_of(INTEGER)),
    "sets": an_object(a=list_of(TEXT, **{"x-kubernetes-list-type": "set"}), b=list_of(TEXT)),
    "lists of pairs": an_object(objs=list_of(keyed("k", PAIR))),
    "maps": an_object(a=map_of(TEXT), b=map_of(TEXT), n=map_of(INTEGER)),
    "objects": an_object(objs=list_of(an_object(f1=TEXT, f2=TEXT)), a=an_object(b=INTEGER)),
    "triples": an_object(listMap=keyed("k", an_object(k=TEXT, v=TEXT, v2=TEXT))),
    "embedded": an_object(embedded={"type": "object", "x-kubernetes-embedded-resource": True, **ANYTHING}),
    "unknown": an_object(
        free={"type": "object", **ANYTHING},
        frees=list_of({"type": "object", **ANYTHING}),
        known={**an_object(known=INTEGER), **ANYTHING},
        some=list_of(an_object(any=ANYTHING)),
    ),
    "inside": an_object(
        mapOfMap=map_of(map_of(TEXT, **TEN_EACH), **TEN_EACH),
        mapOfListMap=map_of(keyed("k", PAIR, **TEN), **TEN_EACH),
        mapOfList=map_of(list_of(TEXT, **TEN), **TEN_EACH),
        listOfMap=list_of(map_of(TEXT, **TEN_EACH), **TEN),
        listOfListMap=list_of(keyed("k", PAIR, **TEN), **TEN),
        listMapOfObj=keyed("k", PAIR, **TEN),
    ),
    "optional": an_object(obj=an_object(field=TEXT), m=map_of(TEXT), l=list_of(TEXT)),
}


@pytest.mark.parametrize(
    ("schema", "rule", "expected"),
    [
        ("numbers", "self.a == self.c", 4),
        ("numbers", "double(self.a) < self.d", 6),
        ("numbers", "self.a == 9223372036854775807 && 9223372036854775807 == self.a && self.a == self.c", 8),
        ("texts", "self.a == 'Rook takes 👑' && 'Rook takes 👑' == self.a && self.a == self.b", 314585),
        ("texts", "self.a.matches('^[^0-9]*$')", 943721),
        ("texts", "self.a.indexOf('o') == 1", 314576),
        ("texts", "self.a.replace(' ', 'x') == 'Rookxtakesx👑'", 629150),
        ("texts", "self.a.split(' ') == ['Rook', 'takes', '👑']", 629159),
        ("texts", "self.a.substring(4, 10).trim() == 'takes'", 629149),
        ("texts", "self.a.lowerAscii() == self.a.lowerAscii()", 943723),
        ("texts", "self.bytes == self.bytes", 314577),
        ("texts", "bytes(self.a) == self.bytes", 629150),
        ("texts", "string(self.bytes) == self.a", 629150),
        ("texts", "duration(self.a) == self.span", 6),
        ("texts", "string(self.date) == self.a", 314578),
        ("texts", "type(self.either) == int ? self.either == 1 : self.either == '25%'", 7),
        ("texts", "self.either != ['anything']", 13),
        ("texts", r"type(self.either) == string && self.either.matches(r'(\d+(\.\d+)?%)')", 1258298),
        ("texts", "quantity(self.a).isLessThan(quantity(self.b))", 629151),
        ("integers", "1 in self.a", 1572865),
        ("integers", "self.b[0] in self.a", 1572868),
        ("integers", "self.a + self.b == [1, 2, 3, 1, 2, 3]", 16),
        ("integers", "self.a + [4, 5] == [1, 2, 3, 4, 5]", 24),
        ("integers", "self.a.all(k, size(self.a) > 0)", 11010044),
        ("integers", "self.a.exists_one(k, self.a == [2])", 23592949),
        ("integers", "size(self.a.filter(k, size(self.a) > 1)) == 1", 26738686),
        ("integers", "self.a.map(e, e * 20).filter(e, e > 50).exists(e, e == 60)", 53477367),
        ("sets", "self.a == ['c', 'b', 'a']", 13),
        ("sets", "self.a == self.b", 104862),
        ("sets", "!('x' in self.a)", 1048578),
        ("lists of pairs", "self.objs[0] + self.objs[2] == self.objs[2]", 104868),
        ("lists of pairs", "self.objs[2] + [self.objs[0][0], self.objs[0][1]] == self.objs[0]", 104883),
        ("lists of pairs", "self.objs[0].all(k, size(self.objs[0]) > 0)", 8388604),
        ("maps", "self.a == self.b", 39326),
        ("maps", "self.a == {'k1': 'a', 'k2': 'b'}", 33),
        ("maps", "'k1' in self.a", 3),
        ("maps", "self.n.all(k, self.n[k] > 0)", 3595115),
        ("objects", "self.objs[0] == self.objs[1]", 6),
        ("objects", "has(self.a.b)", 2),
        ("triples", "has(self.listMap[0].v)", 3),
        ("triples", "self.listMap.all(m, !has(m.v2) || m.v2 == 'z')", 8388603),
        ("triples", "self.listMap.exists(m, m.k == 'a1' && m.v == 'b1')", 10485753),
        ("triples", "self.listMap.map(m, m.v).exists(v, v == 'b1')", 19922939),
        ("triples", "self.listMap.map(m, has(m.v2) && m.v2 == 'z', m.v2).size() == 1", 18874365),
        ("triples", "self.listMap.filter(m, has(m.v2) && m.v2 == 'z').map(m, m.v2).size() == 1", 32505851),
        ("embedded", "self.embedded.metadata.generateName == 'pickItForMe'", 6),
        ("unknown", "has(self.free)", 1),
        ("unknown", "self.frees[0] != self.frees[1]", 6),
        ("unknown", "self.known.known == 1", 3),
        ("unknown", "self.some[1] == self.some[2]", 6),
        ("inside", "self.mapOfMap['x']['y'] == 'b'", 5),
        ("inside", "self.mapOfListMap['o'].exists(e, e.k == '1' && e.v == 'd')", 104),
        ("inside", "self.listMapOfObj.exists(e, e.k == '2' && e.v == 'f')", 103),
        ("inside", "self.mapOfListMap.map(k, k).map(k, k).size() == 1", 286),
        ("inside", "self.mapOfMap.map(k, self.mapOfMap[k].map(m, m)).size() == 1", 1585),
        ("inside", "self.listOfMap.map(e, e.map(m, m)).size() == 1", 1555),
        ("inside", "self.listOfListMap.map(e, e.map(e, e)).size() == 1", 1555),
        ("optional", "self.obj.?field.orValue('v') == 'a'", 5),
        ("optional", "self.l[?0].optMap(v, v == 'a').hasValue()", 22),
        ("optional", "optional.of([1, 2, 3, 4, 5]).optMap(v, v.size()).hasValue()", 38),
        ("optional", "self.m[?'k'] == optional.of('v')", 1844674407370955268),
    ],
)
def test_estimated_cost_of_rule_equals_reference(schema: str, rule: str, expected: int) -> None:
    assert cost(SCHEMAS[schema], rule) == expected


@pytest.mark.parametrize(
    ("schema", "rule", "expected"),
    [
        (list_of(TEXT), "self.join(' ') == 'aa bb'", 329853068905),
        (list_of({**TEXT, "maxLength": 10}, **TEN), "self.join(' ') == 'aa bb'", 43),
        (list_of(TEXT), "self.isSorted() == true", 329854432052),
        (list_of({**TEXT, "maxLength": 10}, **TEN), "self.isSorted() == true", 52),
        # Keys of maps are counted as nothing.
        (map_of(TEXT), "self.all(x, x.contains(self[x]))", 2752507),
        (map_of({**TEXT, "maxLength": 10}, **TEN_EACH), "self.all(x, x.contains(self[x]))", 72),
    ],
)
def test_estimated_cost_includes_sizes_of_list_items(schema: Obj, rule: str, expected: int) -> None:
    assert cost(schema, rule) == expected


@pytest.mark.parametrize("rule", ["self.all(x, self.all(y, true))", "self.all(x, self.all(y, self.all(z, true)))"])
def test_nested_loops_over_unlimited_list_exceed_cost_limit(rule: str) -> None:
    limited = cost(list_of(NUMBER, **TEN), rule)
    assert cost(list_of(NUMBER), rule) > 100_000_000
    assert limited == {1: 352, 2: 3552}[rule.count("self.all") - 1]


def test_estimate_shares_sizes_between_paths_as_cel_go_does() -> None:
    """What is selected last from a macro's variable decides the size of what was selected from it before."""
    items = list_of(an_object(a=list_of(TEXT, **TEN), b=list_of(TEXT, maxItems=100), n=INTEGER), **TEN)
    own, other, none = (cost(an_object(l=items), f"self.l.all(x, x.a.all(y, x.{name}))") for name in _CONDITIONS)
    assert own < other
    assert none < own
    # One step less, and each has its own.
    assert cost(items, "self.all(x, x.a.all(y, size(x.b) > 0))") == cost(
        items, "self.all(x, x.a.all(y, size(x.a) > 0))"
    )


_CONDITIONS = ("a.size() > 0", "b.size() > 0", "n > 0 && true")


def test_estimated_cost_of_random_rules_equals_cel_go() -> None:
    """Random rules of ours with cel-go's estimates of them; in 40 of the hundred, paths that share memory count."""
    cases = read_cases(LOCAL / "rule-costs.jsonl")
    found = [cost(case["schema"], case["rule"]) for case in cases]
    assert found == [case["cost"] for case in cases]
    assert len(found) == 100


def test_path_extended_twice_keeps_both_branches() -> None:
    path = Steps("a").then("b").then("c")
    first, second = path.then("d"), path.then("e")
    assert path.path() == ("a", "b", "c")
    assert (first.path(), second.path()) == (("a", "b", "c", "e"), ("a", "b", "c", "e"))
    third, fourth = second.then("f"), second.then("g")
    assert (third.path()[-1], fourth.path()[-1]) == ("f", "g")
    longer = third.then("h")
    third.then("i")
    assert longer.path() == ("a", "b", "c", "e", "f", "i")
    assert Steps().then("x").path() == ("x",)


@pytest.mark.parametrize(
    ("schema", "least"),
    [
        (an_object(), 2),
        (an_object(("name",), name=TEXT), 2 + 4 + 2 + 4),
        (an_object(("name",), name={**TEXT, "default": "a"}), 2),
        (an_object(("day",), day=DATE, other=TEXT), 2 + 3 + 12 + 4),
        (an_object(("inner",), inner=an_object(("n",), n=INTEGER)), 2 + 5 + (2 + 1 + 1 + 4) + 4),
        # No expression can name it, but it takes its room.
        (an_object(("0",), **{"0": BOOLEAN}), 2 + 1 + 4 + 4),
    ],
)
def test_smallest_encoded_value_gives_maximum_number_in_a_request(schema: Obj, least: int) -> None:
    values = sized(parse(schema))
    assert values is not None
    assert values.least_bytes == least
    assert values.most_in_a_request == MAX_REQUEST_BYTES // (least + 1)


@pytest.mark.parametrize("schema", [ANYTHING, list_of(ANYTHING), map_of(ANYTHING), list_of(map_of(ANYTHING))])
def test_schema_that_cel_cannot_see_has_no_size(schema: Obj) -> None:
    assert sized(parse(schema)) is None
