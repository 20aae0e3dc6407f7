"""Mutating admission policies and bindings when they are written: paths and words of what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from haru.apiserver.admission.dynamic.expressions import mutation_expression_errors
from haru.kube.errors import FieldError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.kube.validation import validate_create, validate_update

Obj = dict[str, Any]

RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"], "scope": "*"}
ABOUT = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [RULE]}
MUTATION = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}


def policy(**changes: Any) -> Obj:
    spec = {"failurePolicy": "Fail", "reinvocationPolicy": "Never", "matchConstraints": ABOUT, "mutations": [MUTATION]}
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "metadata": {"name": "p.example.com"},
        "spec": {**spec, **changes},
    }


def binding(**changes: Any) -> Obj:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "metadata": {"name": "b.example.com"},
        "spec": {"policyName": "p.example.com", **changes},
    }


def found(obj: Obj, old: Obj | None = None) -> list[str]:
    kind, gates = known_kind(obj["apiVersion"], obj["kind"]), FeatureGates()
    if old is not None:
        return list(map(str, validate_update(obj, old, kind, gates, lambda text: None)))
    return list(map(str, validate_create(obj, kind, gates, lambda text: None)))


def jsonpatch(expression: str) -> Obj:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


WRONG: list[tuple[Obj, list[str]]] = [
    ({}, []),
    ({"mutations": []}, ["spec.mutations: Required value: mutations must contain at least one item"]),
    ({"reinvocationPolicy": None}, ["spec.reinvocationPolicy: Required value"]),
    (
        {"reinvocationPolicy": "Always"},
        ['spec.reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"'],
    ),
    ({"failurePolicy": "Warn"}, ['spec.failurePolicy: Unsupported value: "Warn": supported values: "Fail", "Ignore"']),
    ({"matchConstraints": None}, ["spec.matchConstraints: Required value"]),
    ({"matchConstraints": {**ABOUT, "resourceRules": []}}, ["spec.matchConstraints.resourceRules: Required value"]),
    (
        {"matchConstraints": {**ABOUT, "resourceRules": [{**RULE, "operations": ["CREATE", "DELETE"]}]}},
        [
            'spec.matchConstraints.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", '
            '"CONNECT", "CREATE", "UPDATE"'
        ],
    ),
    (
        {"matchConstraints": {**ABOUT, "resourceRules": [{**RULE, "operations": ["PATCH"]}]}},
        [
            'spec.matchConstraints.resourceRules[0].operations[0]: Unsupported value: "PATCH": supported values: "*", '
            '"CONNECT", "CREATE", "DELETE", "UPDATE"',
            'spec.matchConstraints.resourceRules.operations: Unsupported value: "PATCH": supported values: "*", '
            '"CONNECT", "CREATE", "UPDATE"',
        ],
    ),
    ({"matchConstraints": {**ABOUT, "excludeResourceRules": [{**RULE, "operations": ["DELETE"]}]}}, []),
    ({"mutations": [{}]}, ["spec.mutations[0].patchType: Required value"]),
    (
        {"mutations": [{"patchType": "Merge"}]},
        [
            'spec.mutations[0].patchType: Unsupported value: "Merge": supported values: "ApplyConfiguration", '
            '"JSONPatch"'
        ],
    ),
    (
        {"mutations": [{"patchType": "JSONPatch"}]},
        ["spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch"],
    ),
    (
        {"mutations": [{**MUTATION, "patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]},
        [
            'spec.mutations[0].applyConfiguration: Invalid value: "{applyConfiguration}": must not be specified when '
            "patchType is JSONPatch"
        ],
    ),
    (
        {"mutations": [{"patchType": "ApplyConfiguration", "jsonPatch": {"expression": "[]"}}]},
        [
            "spec.mutations[0].applyConfiguration: Required value: must be specified when patchType is "
            "ApplyConfiguration",
            'spec.mutations[0].jsonPatch: Invalid value: "{jsonPatch}": must not be specified when patchType is '
            "ApplyConfiguration",
        ],
    ),
    (
        {"mutations": [jsonpatch(" ")]},
        ["spec.mutations[0].jsonPatch.expression: Required value"],
    ),
    (
        {"variables": [{"name": "no-name", "expression": "1"}]},
        ['spec.variables[0].name: Invalid value: "no-name": must be a valid CEL identifier'],
    ),
    (
        {"matchConditions": [{"name": "a", "expression": "true"}, {"name": "a", "expression": "true"}]},
        ['spec.matchConditions[1].name: Duplicate value: "a"'],
    ),
    (
        {"matchConditions": [{"name": f"c{n}", "expression": "true"} for n in range(65)]},
        ["spec.matchConditions: Too many: 65: must have at most 64 items"],
    ),
    ({"paramKind": {"kind": "ConfigMap"}}, ["spec.paramKind.apiVersion: Required value"]),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_invalid_mutating_policy_is_refused(changes: Obj, words: list[str]) -> None:
    assert found(policy(**changes)) == words


def test_later_of_two_variables_of_one_name_is_allowed() -> None:
    assert found(policy(variables=[{"name": "a", "expression": "1"}, {"name": "a", "expression": "2"}])) == []


BOUND: list[tuple[Obj, list[str]]] = [
    ({}, []),
    ({"policyName": ""}, ["spec.policyName: Required value"]),
    (
        {"paramRef": {"name": "x", "selector": {}, "parameterNotFoundAction": "Deny"}},
        [
            "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
            "spec.paramRef.selector: Forbidden: name and selector are mutually exclusive",
        ],
    ),
    (
        {"paramRef": {"parameterNotFoundAction": "Deny"}},
        ["spec.paramRef: Required value: one of name or selector must be specified"],
    ),
    ({"paramRef": {"name": "x"}}, ["spec.paramRef.parameterNotFoundAction: Required value"]),
    (
        {"matchResources": {**ABOUT, "resourceRules": [{**RULE, "operations": ["DELETE"]}]}},
        [
            'spec.matchResources.resourceRules.operations: Unsupported value: "DELETE": supported values: "*", '
            '"CONNECT", "CREATE", "UPDATE"'
        ],
    ),
    ({"matchResources": {**ABOUT, "resourceRules": []}}, []),
]


@pytest.mark.parametrize(("changes", "words"), BOUND)
def test_invalid_mutating_binding_is_refused(changes: Obj, words: list[str]) -> None:
    assert found(binding(**changes)) == words


def told(errors: list[FieldError]) -> list[tuple[str, str]]:
    return [(error.field, error.detail.split("\n")[0]) for error in errors]


EXPRESSIONS: list[tuple[Obj, list[tuple[str, str]]]] = [
    ({}, []),
    (
        {"mutations": [{**MUTATION, "applyConfiguration": {"expression": "'text'"}}]},
        [("spec.mutations[0].applyConfiguration.expression", "must evaluate to Object but got string")],
    ),
    (
        {"mutations": [{**MUTATION, "applyConfiguration": {"expression": "Object.spec{}"}}]},
        [("spec.mutations[0].applyConfiguration.expression", "must evaluate to Object but got Object.spec")],
    ),
    (
        {"mutations": [MUTATION, jsonpatch('JSONPatch{op: "add"}')]},
        [("spec.mutations[1].jsonPatch.expression", "must evaluate to list(JSONPatch) but got JSONPatch")],
    ),
    (
        {"mutations": [jsonpatch('[JSONPatch{where: "x"}]')]},
        [
            (
                "spec.mutations[0].jsonPatch.expression",
                "compilation failed: ERROR: <input>:1:17: undefined field 'where'",
            )
        ],
    ),
    (
        {"mutations": [jsonpatch("variables.later")], "variables": [{"name": "now", "expression": "variables.later"}]},
        [
            (
                "spec.variables[0].expression",
                "compilation failed: ERROR: <input>:1:10: undefined field 'later'",
            ),
            (
                "spec.mutations[0].jsonPatch.expression",
                "compilation failed: ERROR: <input>:1:10: undefined field 'later'",
            ),
        ],
    ),
    (
        {"variables": [{"name": "part", "expression": "Object{}"}]},
        [
            (
                "spec.variables[0].expression",
                "compilation failed: ERROR: <input>:1:7: undeclared reference to 'Object' (in container '')",
            )
        ],
    ),
    (
        {"matchConditions": [{"name": "a", "expression": "variables.x == 1"}]},
        [
            (
                "spec.matchConditions[0].expression",
                "compilation failed: ERROR: <input>:1:1: undeclared reference to 'variables' (in container '')",
            )
        ],
    ),
]


@pytest.mark.parametrize(("changes", "words"), EXPRESSIONS)
def test_invalid_mutation_expressions_are_refused(changes: Obj, words: list[tuple[str, str]]) -> None:
    assert told(mutation_expression_errors(policy(**changes), None)) == words


def test_stored_mutations_are_not_validated_again() -> None:
    wrong = {**MUTATION, "applyConfiguration": {"expression": "'text'"}}
    stored = policy(mutations=[wrong])
    labelled = {**stored, "metadata": {**stored["metadata"], "labels": {"a": "b"}}}
    assert told(mutation_expression_errors(labelled, stored)) == []
    more = policy(mutations=[wrong, {**MUTATION, "applyConfiguration": {"expression": "1"}}])
    assert [field for field, _ in told(mutation_expression_errors(more, stored))] == [
        "spec.mutations[1].applyConfiguration.expression"
    ]
    conditions = [{"name": "", "expression": "true"}]
    assert found(policy(matchConditions=conditions), policy(matchConditions=conditions)) == []
    assert found(policy(matchConditions=conditions), policy()) != []
