"""x-kubernetes-validations: rules over objects of a structural schema."""

from __future__ import annotations

from typing import Any

import pytest

from haru.cel import object_rules
from haru.cel.object_rules import ObjectRules
from haru.cel.objects import escaped
from haru.kube.custom.structural import parse

Obj = dict[str, Any]

WORDS: Obj = {"type": "object", "additionalProperties": {"type": "string"}}


def schema(rule: str, *, properties: Obj | None = None, **more: Any) -> Obj:
    """An object schema with one rule on `spec`."""
    spec = {
        "type": "object",
        "properties": {
            "replicas": {"type": "integer"},
            "limit": {"type": "integer"},
            "name": {"type": "string"},
            "when": {"type": "string", "format": "date-time"},
            "wait": {"type": "string", "format": "duration"},
            "share": {"type": "number"},
            "port": {"x-kubernetes-int-or-string": True},
            "labels": WORDS,
            "max-size": {"type": "integer"},
            "steps": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            **(properties or {}),
        },
        "x-kubernetes-validations": [{"rule": rule, **more}],
    }
    return {"type": "object", "properties": {"spec": spec}}


def broken(rule: str, spec: Obj, old: Obj | None = None, **more: Any) -> list[str]:
    before = None if old is None else {"spec": old}
    return [str(error) for error in ObjectRules(parse(schema(rule, **more))).check({"spec": spec}, before)]


@pytest.mark.parametrize(
    ("rule", "spec", "holds"),
    [
        ("self.replicas <= self.limit", {"replicas": 1, "limit": 2}, True),
        ("self.replicas <= self.limit", {"replicas": 3, "limit": 2}, False),
        ("!has(self.limit) || self.replicas <= self.limit", {"replicas": 3}, True),
        ("self.when > timestamp('2020-01-01T00:00:00Z')", {"when": "2026-01-01T00:00:00Z"}, True),
        ("self.wait < duration('1h')", {"wait": "59m"}, True),
        ("self.share == 1.0", {"share": 1}, True),
        ("type(self.port) == int ? self.port > 10 : self.port == 'http'", {"port": 80}, True),
        ("type(self.port) == int ? self.port > 10 : self.port == 'http'", {"port": "https"}, False),
        ("self.labels.all(key, key.startsWith('a'))", {"labels": {"ab": "1", "b": "2"}}, False),
        ("self.max__dash__size > 1", {"max-size": 2}, True),
        ("self.steps.all(step, step.name != '')", {"steps": [{"name": "a"}, {"name": ""}]}, False),
        ("has(self.free)", {"free": {"anything": 1}}, True),
        ("self.name.matches('^[a-z]+$')", {"name": "abc"}, True),
        ("self.?limit.orValue(5) == 5", {}, True),
    ],
)
def test_rule_holds_or_fails_for_object(rule: str, spec: Obj, holds: bool) -> None:
    assert bool(broken(rule, spec)) is not holds


def test_failed_rule_message_reason_and_field_path() -> None:
    spec = {"replicas": 3, "limit": 2}
    rule = "self.replicas <= self.limit"
    assert broken(rule, spec) == [f"spec: Invalid value: failed rule: {rule}"]
    assert broken(rule, spec, message="too many") == ["spec: Invalid value: too many"]
    computed = "'at most ' + string(self.limit)"
    assert broken(rule, spec, message="too many", messageExpression=computed) == ["spec: Invalid value: at most 2"]
    assert broken(rule, spec, fieldPath=".replicas", reason="FieldValueForbidden", message="no") == [
        "spec.replicas: Forbidden: no"
    ]
    assert broken(rule, {"limit": 2}) == [
        f'spec: Invalid value: "object": no such key: replicas evaluating rule: {rule}'
    ]


@pytest.mark.parametrize(
    ("path", "field"),
    [("['max-size']", "spec.max-size"), (".labels.x", "spec.labels[x]"), (".labels['a.b']", "spec.labels[a.b]")],
)
def test_field_path_of_a_rule_is_told_as_a_path(path: str, field: str) -> None:
    assert broken("false", {}, fieldPath=path, message="no") == [f"{field}: Invalid value: no"]


def test_key_of_a_map_with_a_rule_is_told_behind_a_dot() -> None:
    words = {**WORDS, "x-kubernetes-validations": [{"rule": "false", "fieldPath": ".x", "message": "no"}]}
    rules = ObjectRules(parse(schema("true", properties={"labels": words})))
    (error,) = rules.check({"spec": {"labels": {"x": "y"}}}, None)
    assert error.field == "spec.labels.[x]"


def test_transition_rule_compares_with_old_object() -> None:
    rule = "self.replicas >= oldSelf.replicas"
    assert broken(rule, {"replicas": 1}) == []
    assert broken(rule, {"replicas": 1}, {"replicas": 1}) == []
    assert broken(rule, {"replicas": 1}, {"replicas": 2}) != []
    optional = "oldSelf.hasValue() || self.replicas == 1"
    assert broken(optional, {"replicas": 2}, optionalOldSelf=True) != []
    assert broken(optional, {"replicas": 2}, {"replicas": 1}, optionalOldSelf=True) == []


def test_unchanged_value_is_not_validated_again() -> None:
    rule = "self.replicas < 3"
    assert broken(rule, {"replicas": 5}, {"replicas": 5}) == []
    assert broken(rule, {"replicas": 6}, {"replicas": 5}) != []
    warnings: list[str] = []
    assert ObjectRules(parse(schema(rule))).check({"spec": {"replicas": 5}}, {"spec": {"replicas": 5}}, warnings) == []
    assert warnings == ["spec: Invalid value: failed rule: self.replicas < 3"]


def test_rule_that_a_value_of_another_type_breaks_is_an_error_although_python_takes_it_for_the_same() -> None:
    assert broken("self.replicas < 3", {"replicas": 5.0}, {"replicas": 5}) != []


def test_rule_that_an_object_with_undeclared_members_breaks_is_an_error() -> None:
    open_spec = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
        "properties": {"a": {"type": "integer"}},
    }
    open_spec["x-kubernetes-validations"] = [{"rule": "self.a > 4"}]
    rules = ObjectRules(parse({"type": "object", "properties": {"spec": open_spec}}))
    same: dict[str, Any] = {"spec": {"a": 1}}
    warnings: list[str] = []
    assert rules.check(same, same, warnings) == [] and len(warnings) == 1
    same["spec"]["z"] = 1
    assert [error.field for error in rules.check(same, same)] == ["spec"]


def test_rule_of_the_object_itself_is_never_passed_over() -> None:
    rules = ObjectRules(parse({"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name == 'b'"}]}))
    assert rules.check({"metadata": {"name": "a"}}, {"metadata": {"name": "a"}}) != []


def test_rule_that_cannot_be_answered_for_an_unchanged_value_is_an_error() -> None:
    (told,) = broken("self.replicas < 3", {"limit": 5}, {"limit": 5})
    assert "no such key: replicas evaluating rule" in told


def test_rule_about_changes_judges_what_did_not_change() -> None:
    assert broken("self.replicas != oldSelf.replicas", {"replicas": 5}, {"replicas": 5}) != []
    optional = "!oldSelf.hasValue() || self.replicas != oldSelf.value().replicas"
    assert broken(optional, {"replicas": 5}, {"replicas": 5}, optionalOldSelf=True) != []


def test_item_of_map_list_is_correlated_by_key() -> None:
    items: Obj = {
        "type": "object",
        "properties": {"id": {"type": "string"}, "count": {"type": "integer"}},
        "x-kubernetes-validations": [{"rule": "self.count >= oldSelf.count"}],
    }
    keyed = {"type": "array", "items": items, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id"]}
    rules = ObjectRules(parse({"type": "object", "properties": {"list": keyed}}))
    old = {"list": [{"id": "a", "count": 1}, {"id": "b", "count": 5}]}
    new = {"list": [{"id": "b", "count": 4}, {"id": "a", "count": 2}]}
    assert [error.field for error in rules.check(new, old)] == ["list[0]"]


def test_rule_over_call_cost_limit_fails() -> None:
    rule = "self.steps.all(a, self.steps.all(b, self.steps.all(c, a.name != b.name + c.name)))"
    found = broken(rule, {"steps": [{"name": f"n{number}"} for number in range(200)]})
    why = "'operation cancelled: actual cost limit exceeded': no further validation rules will be run"
    assert found == [f'spec: Invalid value: "object": {why} due to call cost exceeds limit for rule: {rule}']


def test_rules_after_one_over_cost_limit_are_not_evaluated() -> None:
    costly = "self.l.all(a, self.l.all(b, self.l.all(c, a != b + c)))"
    rules = [{"rule": rule, "message": rule[:5]} for rule in (costly, "false")]
    inner = {"type": "string", "x-kubernetes-validations": [{"rule": "false"}]}
    listed: Obj = {"type": "array", "items": inner}
    raw = {"type": "object", "properties": {"l": listed}, "x-kubernetes-validations": rules}
    found = ObjectRules(parse({"type": "object", "properties": {"spec": raw}})).check(
        {"spec": {"l": ["n"] * 200}}, None
    )
    assert [str(error)[-5:] for error in found] == ["self."]


def test_total_cost_budget_of_an_object_is_enforced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_rules, "OBJECT_LIMIT", 1_000)
    nearly = "self.all(a, self.all(b, a != '' || b != ''))"
    listed = {"type": "array", "items": {"type": "string"}, "x-kubernetes-validations": [{"rule": nearly}] * 5}
    words = ["n" * 10] * 8
    found = ObjectRules(parse({"type": "object", "properties": {"l": listed}})).check({"l": words}, None)
    why = "validation failed due to running out of cost budget, no further validation rules will be run"
    assert [str(error) for error in found] == [f'l: Invalid value: "array": {why}']


def test_message_expression_over_cost_limit_falls_back_to_message() -> None:
    costly = "string(self.steps.all(a, self.steps.all(b, self.steps.all(c, a.name != b.name + c.name))))"
    steps = [{"name": f"n{number}"} for number in range(200)]
    (found,) = broken("false", {"steps": steps}, messageExpression=costly)
    why = "no further validation rules will be run due to call cost exceeds limit for messageExpression"
    assert found == f'spec: Invalid value: "object": {why}: "{costly}"'
    assert broken("false", {}, messageExpression="self.name", message="no") == ["spec: Invalid value: no"]


def test_value_of_undeclared_type_fails_with_no_matching_overload() -> None:
    (found,) = broken("self.port.startsWith('a')", {"port": 1})
    assert found.startswith('spec: Invalid value: "object": \'no such overload')
    assert found.endswith(
        "': call arguments did not match a supported operator, function or macro signature for rule: "
        "self.port.startsWith('a')"
    )


def test_field_of_atomic_object_is_correlated_with_old_value() -> None:
    inner = {"type": "integer", "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]}
    raw = {"type": "object", "properties": {"n": inner}, "x-kubernetes-map-type": "atomic"}
    rules = ObjectRules(parse({"type": "object", "properties": {"spec": raw}}))
    assert [error.field for error in rules.check({"spec": {"n": 1}}, {"spec": {"n": 2}})] == ["spec.n"]


@pytest.mark.parametrize("rule", ["self.free.anything == 1", "cel.bind(a, 1, a == 1)"])
def test_stored_rule_that_does_not_compile_rejects_object(rule: str) -> None:
    (found,) = broken(rule, {"free": {"anything": 1}})
    assert found.startswith('spec: Invalid value: "object": rule compile error: compilation failed: ')


def test_rule_on_whole_object_can_read_metadata_name() -> None:
    raw = {"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('x')"}]}
    rules = ObjectRules(parse(raw))
    assert rules.check({"metadata": {"name": "xa"}}, None) == []
    (found,) = rules.check({"metadata": {"name": "a"}}, None)
    assert str(found).startswith("<nil>: Invalid value")


@pytest.mark.parametrize(
    ("name", "spelled"),
    [
        ("plain", "plain"),
        ("a-b", "a__dash__b"),
        ("a.b/c", "a__dot__b__slash__c"),
        ("a__b", "a__underscores__b"),
        ("in", "__in__"),
        ("1a", None),
    ],
)
def test_property_name_is_escaped_for_cel(name: str, spelled: str | None) -> None:
    assert escaped(name) == spelled
