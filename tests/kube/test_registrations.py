"""What is refused in webhook configurations, admission policies and their bindings, and in which words."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.defaulting import apply_defaults
from haru.kube.errors import FieldError
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.kube.validation import validate_create, validate_status_update, validate_update

Obj = dict[str, Any]

GATES = FeatureGates()
VERSION = "admissionregistration.k8s.io/v1"


def judged(obj: Obj, old: Obj | None = None) -> list[str]:
    """The findings of an object as it is written, in the order in which they are told."""
    kind = known_kind(obj["apiVersion"], obj["kind"])

    def unasked(expression: str) -> None:
        raise AssertionError(expression)

    found: list[FieldError]
    if old is None:
        found = validate_create(apply_defaults(obj, kind, GATES), kind, GATES, unasked)
    else:
        found = validate_update(apply_defaults(obj, kind, GATES), old, kind, GATES, unasked)
    return [str(error) for error in found]


def rule(**changes: Any) -> Obj:
    return {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], **changes}


def hook(**changes: Any) -> Obj:
    made: Obj = {
        "name": "a.example.com",
        "clientConfig": {"url": "https://hooks.example.com/v"},
        "rules": [rule()],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **changes,
    }
    return {name: value for name, value in made.items() if value is not None}


def hooks(*made: Obj, kind: str = "Validating") -> Obj:
    return {
        "apiVersion": VERSION,
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": "c"},
        "webhooks": list(made),
    }


def service(**changes: Any) -> Obj:
    return {"clientConfig": {"service": {"name": "s", "namespace": "n", **changes}}}


FORM = "; desired format: https://host[/path]"
WEBHOOKS: list[tuple[Obj, list[str]]] = [
    ({}, []),
    ({"name": None}, ["name: Required value"]),
    (
        {"name": "a.b"},
        ['name: Invalid value: "a.b": should be a domain with at least three segments separated by dots'],
    ),
    ({"sideEffects": None}, ["sideEffects: Required value: must specify one of None, NoneOnDryRun"]),
    ({"sideEffects": "Some"}, ['sideEffects: Unsupported value: "Some": supported values: "None", "NoneOnDryRun"']),
    ({"timeoutSeconds": 31}, ["timeoutSeconds: Invalid value: 31: the timeout value must be between 1 and 30 seconds"]),
    ({"failurePolicy": ""}, ['failurePolicy: Unsupported value: "": supported values: "Fail", "Ignore"']),
    (
        {"clientConfig": {"url": "5%"}},
        [f'clientConfig.url: Required value: url must be a valid URL: parse "5%": invalid URL escape{FORM}'],
    ),
    ({"failurePolicy": "No"}, ['failurePolicy: Unsupported value: "No": supported values: "Fail", "Ignore"']),
    ({"matchPolicy": "No"}, ['matchPolicy: Unsupported value: "No": supported values: "Equivalent", "Exact"']),
    ({"admissionReviewVersions": None}, ["admissionReviewVersions: Required value: must specify one of v1, v1beta1"]),
    (
        {"admissionReviewVersions": ["v2", "v2"]},
        [
            'admissionReviewVersions[1]: Invalid value: "v2": duplicate version',
            'admissionReviewVersions: Invalid value: ["v2","v2"]: must include at least one of v1, v1beta1',
        ],
    ),
    ({"clientConfig": {}}, ["clientConfig: Required value: exactly one of url or service is required"]),
    (
        {"clientConfig": {"url": "http://u@h/x?y#z"}},
        [
            f"clientConfig.url: Invalid value: \"http\": 'https' is the only allowed URL scheme{FORM}",
            'clientConfig.url: Invalid value: "u": user information is not permitted in the URL',
            'clientConfig.url: Invalid value: "z": fragments are not permitted in the URL',
            'clientConfig.url: Invalid value: "y": query parameters are not permitted in the URL',
        ],
    ),
    ({"clientConfig": {"url": "https:///x"}}, [f'clientConfig.url: Invalid value: "": host must be specified{FORM}']),
    (service(name=""), ["clientConfig.service.namespace: Required value"]),
    (
        service(port=70000, path="a//b"),
        [
            "clientConfig.service.port: Invalid value: 70000: port is not valid: must be between 1 and 65535, "
            "inclusive",
            "clientConfig.service.path: Invalid value: \"a//b\": must start with a '/'",
            'clientConfig.service.path: Invalid value: "a//b": segment[0] may not be empty',
            'clientConfig.service.path: Invalid value: "a//b": segment[1] may not be empty',
        ],
    ),
    (service(path="/admit/"), []),
    ({"matchConditions": [{"name": "", "expression": " "}]}, ["matchConditions[0].expression: Required value"]),
    (
        {"matchConditions": [{"name": "x", "expression": "true"}, {"name": "x", "expression": "true"}]},
        ['matchConditions[1].name: Duplicate value: "x"'],
    ),
    ({"rules": [rule(operations=[])]}, ["rules[0].operations: Required value"]),
    (
        {"rules": [rule(operations=["*", "PATCH"])]},
        [
            'rules[0].operations: Invalid value: ["*","PATCH"]: if \'*\' is present, must not specify other operations',
            'rules[0].operations[1]: Unsupported value: "PATCH": supported values: "*", "CONNECT", "CREATE", "DELETE", '
            '"UPDATE"',
        ],
    ),
    (
        {"rules": [rule(apiGroups=["*", "apps"], apiVersions=[""], resources=[])]},
        [
            'rules[0].apiGroups: Invalid value: ["*","apps"]: if \'*\' is present, must not specify other API groups',
            "rules[0].apiVersions[0]: Required value",
            "rules[0].resources: Required value",
        ],
    ),
    (
        {"rules": [rule(resources=["pods/*", "pods/log", "*", "pods"], scope="All")]},
        [
            "rules[0].resources[1]: Invalid value: \"pods/log\": if 'pods/*' is present, must not specify pods/log",
            'rules[0].resources: Invalid value: ["pods/*","pods/log","*","pods"]: if \'*\' is present, must not '
            "specify other resources without subresources",
            'rules[0].scope: Unsupported value: "All": supported values: "*", "Cluster", "Namespaced"',
        ],
    ),
]


@pytest.mark.parametrize(("changes", "words"), WEBHOOKS)
def test_webhook_fields_are_validated(changes: Obj, words: list[str]) -> None:
    found = judged(hooks(hook(**changes)))
    assert [text for text in found if "matchConditions[0].name" not in text] == [
        f"webhooks[0].{each}" for each in words
    ]


def test_webhook_names_must_be_unique() -> None:
    assert judged(hooks(hook(), hook())) == ['webhooks[1].name: Duplicate value: "a.example.com"']
    mutating = hooks(hook(reinvocationPolicy="Always"), kind="Mutating")
    words = 'webhooks[0].reinvocationPolicy: Unsupported value: "Always": supported values: "IfNeeded", "Never"'
    assert judged(mutating) == [words]


def test_stored_invalid_webhooks_are_kept_on_update() -> None:
    old = hooks(hook(sideEffects="Some", admissionReviewVersions=["v0"]), hook(sideEffects="Some"))
    assert len(judged(old)) == 4
    assert judged(old, old) == []
    assert len(judged(old, hooks(hook()))) == 4


def policy(**changes: Any) -> Obj:
    spec: Obj = {"matchConstraints": {"resourceRules": [rule()]}, "validations": [{"expression": "true"}], **changes}
    return {
        "apiVersion": VERSION,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


def validation(**changes: Any) -> Obj:
    return {"validations": [{"expression": "true", **changes}]}


NEITHER = "validations or auditAnnotations must contain at least one item"
POLICIES: list[tuple[Obj, list[str]]] = [
    ({}, []),
    ({"matchConstraints": None}, ["matchConstraints: Required value"]),
    ({"matchConstraints": {}}, ["matchConstraints.resourceRules: Required value"]),
    (
        {"matchConstraints": {"resourceRules": [rule(resourceNames=["a", "a", "/"])]}},
        [
            'matchConstraints.resourceRules[0].resourceNames[1]: Duplicate value: "a"',
            "matchConstraints.resourceRules[0].resourceNames[2]: Invalid value: \"/\": may not contain '/'",
        ],
    ),
    ({"validations": None}, [f"{name}: Required value: {NEITHER}" for name in ("validations", "auditAnnotations")]),
    (validation(expression=" "), ["validations[0].expression: Required value: expression is not specified"]),
    (validation(message=" "), ['validations[0].message: Invalid value: " ": must be non-empty if specified']),
    (
        validation(message="a\nb"),
        ['validations[0].message: Invalid value: "a\\nb": must not contain line breaks'],
    ),
    (
        validation(messageExpression=" "),
        ['validations[0].messageExpression: Invalid value: " ": must be non-empty if specified'],
    ),
    (
        validation(reason="Gone"),
        [
            'validations[0].reason: Unsupported value: "Gone": supported values: "Forbidden", "Invalid", '
            '"RequestEntityTooLarge"'
        ],
    ),
    (
        {"variables": [{"name": "in", "expression": "1"}, {"name": "", "expression": ""}]},
        [
            'variables[0].name: Invalid value: "in": must be a valid CEL identifier',
            "variables[1].name: Required value: name is not specified",
            "variables[1].expression: Required value: expression is not specified",
        ],
    ),
    (
        {"auditAnnotations": [{"key": "a", "valueExpression": "'x'"}, {"key": "a", "valueExpression": ""}]},
        [
            "auditAnnotations[1].valueExpression: Required value: valueExpression is not specified",
            'auditAnnotations[1].key: Duplicate value: "a"',
        ],
    ),
    ({"paramKind": {}}, ["paramKind.apiVersion: Required value", "paramKind.kind: Required value"]),
    (
        {"paramKind": {"apiVersion": "a/b/c", "kind": "K"}},
        ['paramKind.apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c'],
    ),
]


@pytest.mark.parametrize(("changes", "words"), POLICIES)
def test_policy_fields_are_validated(changes: Obj, words: list[str]) -> None:
    assert judged(policy(**changes)) == [f"spec.{each}" for each in words]


def binding(**changes: Any) -> Obj:
    spec: Obj = {"policyName": "p", "validationActions": ["Deny"], **changes}
    return {
        "apiVersion": VERSION,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


BOTH = "name and selector are mutually exclusive"
BINDINGS: list[tuple[Obj, list[str]]] = [
    ({}, []),
    ({"policyName": None}, ["policyName: Required value"]),
    ({"validationActions": None}, ["validationActions: Required value: at least one validation action is required"]),
    (
        {"validationActions": ["Warn", "Warn", "Say"]},
        [
            'validationActions[1]: Duplicate value: "Warn"',
            'validationActions[2]: Unsupported value: "Say": supported values: "Audit", "Deny", "Warn"',
        ],
    ),
    (
        {"validationActions": ["Deny", "Warn"]},
        [
            'validationActions: Invalid value: ["Deny","Warn"]: must not contain both Deny and Warn (repeating the '
            "same validation failure information in the API response and headers serves no purpose)"
        ],
    ),
    (
        {"paramRef": {}},
        [
            "paramRef: Required value: one of name or selector must be specified",
            "paramRef.parameterNotFoundAction: Required value",
        ],
    ),
    (
        {"paramRef": {"name": "a", "selector": {}, "parameterNotFoundAction": "Allow"}},
        [f"paramRef.name: Forbidden: {BOTH}", f"paramRef.selector: Forbidden: {BOTH}"],
    ),
    ({"matchResources": {"objectSelector": {"matchLabels": {"a": "b c"}}}}, ["matchResources.objectSelector"]),
]


@pytest.mark.parametrize(("changes", "words"), BINDINGS)
def test_binding_fields_are_validated(changes: Obj, words: list[str]) -> None:
    found = judged(binding(**changes))
    assert len(found) == len(words)
    assert all(text.startswith(f"spec.{word}") for text, word in zip(found, words, strict=True)), found
    if not words or "matchResources" not in words[0]:
        assert found == [f"spec.{word}" for word in words]


def test_unchanged_match_conditions_are_not_validated_again() -> None:
    old = policy(matchConditions=[{"name": "bad name", "expression": "true"}])
    assert len(judged(old)) == 1
    assert judged(old, old) == []
    changed = policy(matchConditions=[{"name": "bad name", "expression": "false"}])
    assert len(judged(changed, old)) == 1


def test_type_checking_status_is_validated() -> None:
    kind = known_kind(VERSION, "ValidatingAdmissionPolicy")
    old = policy()
    new = {**old, "status": {"typeChecking": {"expressionWarnings": [{"fieldRef": "spec.x", "warning": ""}]}}}
    path = "status.typeChecking.expressionWarnings[0].warning"
    assert [str(error) for error in validate_status_update(new, old, kind, GATES)] == [f"{path}: Required value"]
