"""Admission policies that are at work, validating and mutating: random expressions, with their bindings."""

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
_CONFIGURATIONS = [
    *(
        "Object{metadata: Object.metadata{labels: {'m': 'x'}}}",
        "Object{metadata: Object.metadata{annotations: {'k': 'm'}}}",
    ),
    *(
        "Object{metadata: Object.metadata{labels: {'m': object.metadata.name}}}",
        "Object{}",
        "Object{spec: Object.spec{}}",
    ),
    *(
        "Object{metadata: Object.metadata{labels: {'a b': 'x'}}}",
        "Object{nothing: 1}",
        "Object{spec: Object.spec{x: 1}}",
    ),
    *(
        "Object{metadata: Object.metadata{finalizers: ['x.y/m']}}",
        "Object{metadata: Object.metadata{labels: {'n': string(variables.v)}}}",
    ),
    *("Object{metadata: Object.metadata{labels: {'p': params.data.k}}}", "Object{spec: Object.spec{replicas: 3}}"),
    *("has(object.metadata.labels) ? Object{} : Object{metadata: Object.metadata{labels: {'was': 'none'}}}", "1"),
    "Object{metadata: Object.metadata{name: 'other'}}",
]
_PATCHES = [
    *("[JSONPatch{op: 'add', path: '/metadata/labels/m', value: 'x'}]", "[]", "[JSONPatch{op: 'x', path: '/spec'}]"),
    *(
        "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'k': 'm'}}]",
        "[JSONPatch{op: 'remove', path: '/metadata/labels/a'}]",
    ),
    *("[JSONPatch{op: 'test', path: '/metadata/name', value: 'a'}]", "[JSONPatch{op: 'remove', path: '/none'}]"),
    *(
        "[JSONPatch{op: 'replace', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'x'}]",
        "[JSONPatch{op: 'add', path: '/spec/replicas', value: 2}]",
    ),
    *(
        "has(object.spec) ? [JSONPatch{op: 'copy', from: '/metadata/name', path: '/metadata/labels/c'}] : []",
        "[JSONPatch{op: 'add', path: '/unknown', value: Object.metadata{name: 'x'}}]",
    ),
    "[JSONPatch{op: 'add', path: '/metadata/labels', value: {'p': params.data.k}}]",
]
_REASONS = ["Invalid", "Forbidden", "Unauthorized", "RequestEntityTooLarge"]


class Policies:
    """The policies of one seed, about the resources that it is about."""

    def __init__(self, dice: random.Random, seed: int, namespace: str, resources: Sequence[Resource]) -> None:
        self.dice, self._namespace, self._name, self._resources = dice, namespace, f"live-{seed}", resources
        self.are_at_work = dice.random() < 0.5
        self._kind = dice.choice(["Validating", "Validating", "Mutating"])

    def objects(self) -> list[tuple[str, Obj]]:
        """What is created before the first request: paths of collections, and objects."""
        if not self.are_at_work:
            return []
        root = f"/apis/{_VERSION}"
        data = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "params"}, "data": {"k": "v"}}
        spec: Obj = {"policyName": self._name}
        if self._kind == "Validating":
            spec["validationActions"] = self._actions()
        if self.dice.random() < 0.5:
            spec["paramRef"] = {
                "name": self.dice.choice(["params", "params", "none"]),
                "namespace": self._namespace,
                "parameterNotFoundAction": self.dice.choice(["Allow", "Deny"]),
            }
        kind, plural = f"{self._kind}AdmissionPolicy", f"{self._kind.lower()}admissionpol"
        policy = {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": self._name}}
        binding = {"apiVersion": _VERSION, "kind": f"{kind}Binding", "metadata": {"name": self._name}}
        return [
            (f"/api/v1/namespaces/{self._namespace}/configmaps", data),
            (f"{root}/{plural}icies", policy | {"spec": self._policy("paramRef" in spec)}),
            (f"{root}/{plural}icybindings", binding | {"spec": spec}),
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
        many = range(r.choice([1, 1, 2, 3]))
        if self._kind == "Mutating":
            spec["reinvocationPolicy"] = "Never"
            spec["mutations"] = [self._mutation(has_params) for _ in many]
            for rule in rules:
                rule["operations"] = r.choice([["CREATE"], ["UPDATE"], ["CREATE", "UPDATE"]])
        else:
            spec["validations"] = [self._validation() for _ in many]
        spec["variables"] = [{"name": "v", "expression": r.choice(["1 + 1", "size(object.metadata.name)", "1 / 0"])}]
        if has_params:
            spec["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
        if r.random() < 0.3:
            spec["matchConditions"] = [{"name": "c", "expression": self._condition(("params", "variables"))}]
        if r.random() < 0.2 and self._kind == "Validating":
            spec["auditAnnotations"] = [{"key": "k", "valueExpression": r.choice(["'v'", "object.nothing", "null"])}]
        return spec

    def _mutation(self, has_params: bool) -> Obj:
        r = self.dice
        given = [*(("ApplyConfiguration", one) for one in _CONFIGURATIONS), *(("JSONPatch", one) for one in _PATCHES)]
        form, expression = r.choice([one for one in given if has_params or "params" not in one[1]])
        member = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}[form]
        return {"patchType": form, member: {"expression": expression}}

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
    """Policies about nothing, with a ConfigMap as parameter.

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
    metadata, root, found = {"name": "kept"}, f"/apis/{_VERSION}", []
    about = {name: one for name, one in spec.items() if name != "validations"}
    about |= {"reinvocationPolicy": "Never", "mutations": [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": "[JSONPatch{op: 'remove', path: '/x'}]"}}]}  # fmt: skip
    of = {name: one for name, one in bound.items() if name != "validationActions"}
    for kind, one, other in (("Validating", spec, bound), ("Mutating", about, of)):
        policy = {"apiVersion": _VERSION, "kind": f"{kind}AdmissionPolicy", "metadata": metadata, "spec": one}
        binding = {"apiVersion": _VERSION, "kind": f"{kind}AdmissionPolicyBinding", "metadata": metadata, "spec": other}
        plural = f"{root}/{kind.lower()}admissionpol"
        found += [(f"{plural}icies", policy), (f"{plural}icybindings", binding)]
    return found
