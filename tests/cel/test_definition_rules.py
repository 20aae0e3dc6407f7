"""Which rules a CustomResourceDefinition may have: they compile, and are not too expensive by their estimate."""

from __future__ import annotations

from typing import Any

import pytest

from haru.cel.definition_rules import rule_problems
from haru.kube.custom.structural import parse

Obj = dict[str, Any]

HINT = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, maps, and strings are "
    "declared)"
)
SHARE = "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
TEXT: Obj = {"type": "string"}


def told(schema: Obj) -> list[str]:
    return [str(error) for error in rule_problems(parse(schema), "s")]


def ruled(schema: Obj, *rules: str, **more: Any) -> Obj:
    return {**schema, "x-kubernetes-validations": [{"rule": rule, **more} for rule in rules]}


def an_object(**properties: Obj) -> Obj:
    return {"type": "object", "properties": properties}


def list_of(items: Obj, **more: Any) -> Obj:
    return {"type": "array", "items": items, **more}


def map_of(values: Obj, **more: Any) -> Obj:
    return {"type": "object", "additionalProperties": values, **more}


def over(what: str, times: str) -> str:
    return f"Forbidden: {what} exceeds budget by factor of {times}x {HINT}"


SPEC: Obj = an_object(name=TEXT, free={"type": "object", "x-kubernetes-preserve-unknown-fields": True})


@pytest.mark.parametrize(
    ("rule", "more", "where", "why"),
    [
        ("self.nothing > 1", {}, "rule", "compilation failed: ERROR: <input>:1:5: undefined field 'nothing'"),
        ("self.free.any == 1", {}, "rule", "compilation failed: ERROR: <input>:1:10: undefined field 'any'"),
        ("cel.bind(a, 1, a == 1)", {}, "rule", "compilation failed: ERROR: <input>:1:1: undeclared reference to 'cel'"),
        ("self.name", {}, "rule", "cel expression must evaluate to a bool"),
        (
            "duration('1') == duration('1s')",
            {},
            "rule",
            "compilation failed: ERROR: <input>:1:10: invalid duration arg",
        ),
        ("true", {"messageExpression": "1"}, "messageExpression", "messageExpression must evaluate to a string"),
        ("true", {"messageExpression": "x"}, "messageExpression", "messageExpression compilation failed: ERROR: "),
        ("true", {"optionalOldSelf": True}, "optionalOldSelf", "may not be set if oldSelf is not used in rule"),
    ],
)
def test_invalid_rule_is_reported_at_its_field(rule: str, more: Obj, where: str, why: str) -> None:
    (found,) = told(an_object(spec=ruled(SPEC, rule, **more)))
    assert found.startswith(f"s.properties[spec].x-kubernetes-validations[0].{where}: Invalid value: ")
    assert why in found


def test_transition_rule_below_uncorrelatable_list_is_refused() -> None:
    item = ruled(an_object(name=TEXT), "self == oldSelf")
    lost = "oldSelf cannot be used on the uncorrelatable portion of the schema within s.properties[list]"
    (found,) = told(an_object(list=list_of(item, maxItems=5)))
    assert found.endswith(lost)
    keyed = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    assert told(an_object(list=list_of(item, maxItems=5, **keyed))) == []
    assert told({**an_object(inner=item), "x-kubernetes-map-type": "atomic"}) == []


def test_rule_on_schema_without_visible_fields_is_reported() -> None:
    open_list = ruled(list_of({"x-kubernetes-preserve-unknown-fields": True}), "true")
    (found,) = told(an_object(list=open_list))
    assert found == (
        "s.properties[list].x-kubernetes-validations: Internal error: internal error: failed to construct type "
        "information for x-kubernetes-validations rules: unable to convert structural schema to CEL declarations"
    )


@pytest.mark.parametrize(
    ("schema", "times"),
    [
        # 1,572,863 items of 5 units each, then of 8 and of 12; and 2 for the list.
        (an_object(list=ruled(list_of({"type": "integer"}), "self.all(x, x > 0)")), None),
        (an_object(list=ruled(list_of({"type": "integer"}), "self.all(x, x > 0 && x < 9 && x != 5)")), "1.258291"),
        (an_object(list=ruled(list_of({"type": "integer"}), "self.all(x, x > 0 && x * x * x * 5 < 9)")), "1.9"),
        (an_object(list=ruled(list_of(TEXT), "self.all(x, x.contains('a'))")), "more than 100"),
        (an_object(list=ruled(list_of({**TEXT, "maxLength": 10}, maxItems=100), "self.all(x, x.contains('a'))")), None),
        (an_object(name=ruled(TEXT, "self.matches('^[a-z]+([a-z0-9]*)$')")), None),
    ],
)
def test_estimated_rule_cost_over_limit_is_reported_with_factor(schema: Obj, times: str | None) -> None:
    found = [line for line in told(schema) if ".rule: " in line and "contributed" not in line]
    where = "s.properties[name]" if "name" in schema["properties"] else "s.properties[list]"
    wanted = f"{where}.x-kubernetes-validations[0].rule: {over('estimated rule cost', str(times))}"
    assert found == ([] if times is None else [wanted])


@pytest.mark.parametrize(
    ("wrap", "times"),
    [
        (lambda rule: rule, 1),
        (lambda rule: list_of(rule, maxItems=10), 10),
        (lambda rule: list_of(list_of(rule, maxItems=5), maxItems=10), 50),
        (lambda rule: map_of(list_of(rule, maxItems=5), maxProperties=4), 20),
        (lambda rule: map_of(an_object(a=rule), maxProperties=7), 7),
        (lambda rule: list_of(rule, maxItems=0), 0),
        # Nothing limits one of them: as many as fit into a request, an empty text and a comma each.
        (lambda rule: list_of(rule), 3 * 1024 * 1024 // 3),
        (lambda rule: list_of(map_of(rule, maxProperties=2)), 3 * 1024 * 1024 // 3),
        (lambda rule: map_of(list_of(rule, maxItems=2)), 3 * 1024 * 1024 // 3),
    ],
)
def test_estimated_cost_is_multiplied_by_list_and_map_sizes(wrap: Any, times: int) -> None:
    alone = 1 + 314_573 * 2  # the name; a tenth of the longest text, and a quarter of the pattern, rounded up
    rule = ruled(TEXT, "self.matches('abcdef')")
    total = alone * times
    found = told(an_object(a=wrap(rule)))
    assert bool(found) is (total > 10_000_000)
    if found:
        (first, *_) = found
        factor = total / 10_000_000
        shown = "more than 100" if factor > 100 else f"{factor:f}" if factor < 1.5 else f"{factor:.1f}"
        assert first.endswith(over("estimated rule cost", shown))


def test_cost_factor_is_shown_exactly_when_close_to_the_limit() -> None:
    rule = ruled({**TEXT, "maxLength": 30_000}, "self.matches('abcdef')")  # 24,003 each
    assert told(an_object(a=list_of(rule, maxItems=416))) == []
    (found,) = told(an_object(a=list_of(rule, maxItems=417)))
    where = "s.properties[a].items.x-kubernetes-validations[0].rule"
    assert found == f"{where}: {over('estimated rule cost', '1.000925')}"


def test_message_expression_cost_is_estimated_too() -> None:
    expensive = ruled(
        list_of({"type": "integer"}), "size(self) < 5", messageExpression="string(self.map(x, x * 2).size())"
    )
    where = "s.properties[a].x-kubernetes-validations[0].messageExpression"
    (found,) = told(an_object(a=expensive))
    assert found == f"{where}: {over('estimated messageExpression cost', '2.2')}"
    # How often it could be told does not count.
    once = ruled({**TEXT, "maxLength": 1000}, "true", messageExpression="'a' + self")
    assert told(an_object(a=list_of(once))) == []


def test_total_cost_of_all_rules_is_limited_and_four_most_expensive_are_named() -> None:
    """Twelve rules of nine million each: none is too expensive, all of them are; the four most expensive are named."""
    big, small = ({**TEXT, "maxLength": length} for length in (30_000, 300))
    lists = {f"l{number:02}": list_of(ruled(big, "self.matches('abcdef')"), maxItems=390) for number in range(11)}
    lists["most"] = list_of(ruled(big, "self.matches('abcdef')"), maxItems=400)
    lists["small"] = list_of(ruled(small, "self.matches('abcdef')"), maxItems=10)
    found = told(an_object(**lists))
    total = (24_003 * 390 * 11 + 24_003 * 400 + 243 * 10) / 100_000_000
    what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema"
    assert found[0] == f"s.properties[most].items.x-kubernetes-validations[0].rule: Forbidden: {SHARE}"
    assert [SHARE in line for line in found] == [True] * 4 + [False]
    assert found[-1] == f"s: {over(what, f'{total:f}')}"
    assert told(an_object(**{name: lists[name] for name in list(lists)[:9]})) == []


def test_rules_at_wrong_places_are_neither_told_nor_counted_and_the_total_is_told_beside() -> None:
    costly = ruled(list_of(TEXT), "self.all(x, x.contains('a'))")
    schema = parse(an_object(list=costly, other=ruled(TEXT, "self.nothing")))
    *_, total = rule_problems(schema, "s", lambda place: place == "s.properties[other]")
    assert total.field == "s" and "cost total for entire OpenAPIv3 schema exceeds budget" in total.detail
    assert [error.field for error in rule_problems(schema, "s", lambda place: place == "s.properties[list]")] == [
        "s.properties[other].x-kubernetes-validations[0].rule"
    ]
