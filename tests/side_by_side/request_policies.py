"""Admission policies that are at work: random expressions about the objects of a seed, with their bindings."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from request_parts import Resource

Obj = dict[str, Any]
_VERSION = "admissionregistration.k8s.io/v1"
_CONDITIONS = [
    *(
        "object.metadata.name != 'a'",
        "has(object.spec)",
        "!has(object.metadata.labels)",
        "size(object.metadata.name) > 3",
    ),
    *(
        "object.metadata.labels.a == 'b'",
        "object.spec.replicas < 5",
        "oldObject == null",
        "request.operation == 'CREATE'",
    ),
    *("params.data.k == 'v'", "params == null", "variables.v > 1", "request.userInfo.username == 'jane'"),
    *("request.dryRun", "namespaceObject.metadata.name.startsWith('n')", "object.metadata.annotations['k'] == 'v'"),
    *("authorizer.group('').resource('pods').check('get').allowed()", "1 / 0 > 1", "dyn(object).nothing == 1"),
    *("object == oldObject", "object.metadata.?labels.x.orValue('') == ''", "'a' in object.metadata.labels"),
]
_MESSAGES = ["'no ' + object.metadata.name", "object.spec.nothing", "''", "' '", "'a\\nb'", "string(params.data.k)"]
_REASONS = ["Invalid", "Forbidden", "Unauthorized", "RequestEntityTooLarge"]


class Policies:
    """The policies of one seed, about the resources that it is about."""

    def __init__(self, dice: random.Random, seed: int, namespace: str, resources: Sequence[Resource]) -> None:
        self.dice, self._namespace, self._name, self._resources = dice, namespace, f"live-{seed}", resources
        self.are_at_work = dice.random() < 0.4

    def objects(self) -> list[tuple[str, Obj]]:
        """What is created before the first request: paths of collections, and objects."""
        if not self.are_at_work:
            return []
        root = f"/apis/{_VERSION}"
        data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "params"}, "data": {"k": "v"}}
        spec: Obj = {"policyName": self._name, "validationActions": self._actions()}
        if self.dice.random() < 0.5:
            spec["paramRef"] = {
                "name": self.dice.choice(["params", "params", "none"]),
                "namespace": self._namespace,
                "parameterNotFoundAction": self.dice.choice(["Allow", "Deny"]),
            }
        policy = {"apiVersion": _VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": self._name}}
        binding = {"apiVersion": _VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": self._name}}
        return [
            (f"/api/v1/namespaces/{self._namespace}/configmaps", data),
            (f"{root}/validatingadmissionpolicies", policy | {"spec": self._policy("paramRef" in spec)}),
            (f"{root}/validatingadmissionpolicybindings", binding | {"spec": spec}),
        ]

    def _actions(self) -> list[str]:
        return self.dice.choice([["Deny"], ["Deny"], ["Warn"], ["Audit"], ["Deny", "Audit"], ["Warn", "Audit"]])

    def _policy(self, has_params: bool) -> Obj:
        r = self.dice
        rules = [
            {
                "operations": r.choice([["*"], ["CREATE"], ["UPDATE"], ["CREATE", "UPDATE"], ["DELETE"]]),
                "apiGroups": [of.group],
                "apiVersions": ["*"],
                "resources": r.choice([[of.plural], [of.plural, f"{of.plural}/status"], [f"{of.plural}/*"]]),
            }
            for of in self._resources
        ]
        match: Obj = {"resourceRules": rules, "namespaceSelector": {"matchLabels": {
            "kubernetes.io/metadata.name": self._namespace}}}  # fmt: skip
        spec: Obj = {"matchConstraints": match, "failurePolicy": r.choice(["Fail", "Fail", "Ignore"])}
        spec["validations"] = [self._validation() for _ in range(r.choice([1, 1, 2, 3]))]
        spec["variables"] = [{"name": "v", "expression": r.choice(["1 + 1", "size(object.metadata.name)", "1 / 0"])}]
        if has_params:
            spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
        if r.random() < 0.3:
            spec["matchConditions"] = [{"name": "c", "expression": self._condition(("params", "variables"))}]
        if r.random() < 0.2:
            spec["auditAnnotations"] = [{"key": "k", "valueExpression": r.choice(["'v'", "object.nothing", "null"])}]
        return spec

    def _condition(self, without: tuple[str, ...] = ()) -> str:
        return self.dice.choice([one for one in _CONDITIONS if not any(word in one for word in without)])

    def _validation(self) -> Obj:
        r, made = self.dice, Obj(expression=self._condition())
        if r.random() < 0.3:
            made["message"] = r.choice(["no", "a b"])
        if r.random() < 0.4:
            made["messageExpression"] = r.choice(_MESSAGES)
        if r.random() < 0.3:
            made["reason"] = r.choice(_REASONS)
        return made


def of_params() -> list[tuple[str, Obj]]:
    """A policy about nothing, with a ConfigMap as parameter.

    Of a kind of parameters that no policy has any more kube-apiserver learns nothing again, whoever comes to use it.
    """
    rule = {"operations": ["*"], "apiGroups": ["none.io"], "apiVersions": ["*"], "resources": ["nones"]}
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "true"}],
    }
    bound = {"policyName": "kept", "validationActions": ["Deny"], "paramRef": {
        "name": "kept", "namespace": "default", "parameterNotFoundAction": "Allow"}}  # fmt: skip
    metadata, root = {"name": "kept"}, f"/apis/{_VERSION}/validatingadmissionpol"
    policy = {"apiVersion": _VERSION, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": spec}
    binding = {"apiVersion": _VERSION, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": bound}
    return [(f"{root}icies", policy), (f"{root}icybindings", binding)]
