"""Requests from a grammar to what extends the API: custom resources, admission policies, subresources."""

from __future__ import annotations

import json
from typing import Any

from custom_objects import SPEC, TRAININGS, definition, training, with_schema
from odd_words import ATOMS, CALLS, OPERATORS, TIMES
from patch_grammar import PatchGrammar
from request_fuzzer import FuzzedRequest
from sample_objects import path_of

Obj = dict[str, Any]


class ExtensionGrammar(PatchGrammar):
    """Custom resources, policies and subresources, from one source of randomness."""

    def _custom(self) -> FuzzedRequest:
        r = self.random
        value: Any = json.loads(json.dumps(training(r.choice(["t", f"t{r.randrange(9)}"]))))
        for field in r.sample(sorted(SPEC["properties"]), 3):
            value["spec"][field] = r.choice([self._value(), 1, "a", [], {}, [{"name": "a"}, {"name": "a"}]])
        if r.random() < 0.4:
            value["metadata"]["managedFields"] = self._managed()
        if r.random() < 0.5:
            value["status"] = r.choice(
                [{"replicas": self._value(), "selector": self._value()}, {"conditions": self._value()}]
            )
        path = f"{TRAININGS}/t" + r.choice(["", "", "/status", "/scale", "/x"])
        form = r.choice(
            ["", "", "merge-patch+json", "apply-patch+yaml", "json-patch+json", "strategic-merge-patch+json"]
        )
        if form:
            value = self._patch(value) if form.startswith("json-patch") else value
            return self._ask(
                "PATCH",
                path,
                "fieldManager=m1&force=true"[: None if "apply" in form else 15],
                f"application/{form}",
                self.texts.json(value),
            )
        method, path = r.choice([("POST", TRAININGS), ("PUT", path)])
        return self._ask(method, path, body=self.texts.json(value))

    def _custom_definition(self) -> FuzzedRequest:
        """A definition whose schema is bent, or has rules, patterns and defaults of all sorts."""
        r = self.random
        schema: Obj = {"type": "object", "properties": {"spec": json.loads(json.dumps(SPEC))}}
        spec: Obj = schema["properties"]["spec"]
        for _ in range(r.choice([0, 1, 2])):
            self._bend(spec)
        for name in ("model", "zones", "labels", "rate"):
            inner = spec.get("properties", {}).get(name) if isinstance(spec.get("properties"), dict) else None
            if isinstance(inner, dict) and r.random() < 0.5:
                keyword = r.choice(
                    [
                        "pattern",
                        "default",
                        "format",
                        "x-kubernetes-validations",
                        "enum",
                        "type",
                        "items",
                        "multipleOf",
                        "minimum",
                    ]
                )
                rules = [
                    {
                        "rule": self.expression(),
                        "message": "m",
                        "messageExpression": self.expression(),
                        "fieldPath": r.choice([".a", "x", "", "["]),
                    }
                ]
                values = {
                    "pattern": r.choice(["(a+)+$", "[", "(?=a)", "\\p{L}", "a{1,9999}", "(?i)x"]),
                    "x-kubernetes-validations": rules,
                }
                inner[keyword] = values.get(keyword, self._value())
        if r.random() < 0.4:
            spec["x-kubernetes-validations"] = [{"rule": self.expression()}]
        return self._defined(with_schema(schema))

    def _definition_bent(self) -> FuzzedRequest:
        value = json.loads(json.dumps(definition()))
        for _ in range(self.random.choice([1, 2, 3])):
            self._bend(value)
        return self._defined(value)

    def _defined(self, value: Obj) -> FuzzedRequest:
        r = self.random
        path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        if r.random() < 0.5:
            return self._ask(
                "PATCH",
                f"{path}/trainings.ml.example.com",
                kind="application/merge-patch+json",
                body=self.texts.json(value),
            )
        names = value.get("spec", {}).get("names") if isinstance(value.get("spec"), dict) else None
        if isinstance(names, dict) and isinstance(value.get("metadata"), dict) and r.random() < 0.7:
            plural = f"things{r.randrange(99)}"
            names.update(plural=plural, kind=plural.capitalize(), singular=plural)
            names.pop("shortNames", None)
            value["metadata"]["name"] = f"{plural}.{value['spec'].get('group')}"
        return self._ask("POST", path, body=self.texts.json(value))

    def expression(self, depth: int = 3) -> str:
        """Something like CEL."""
        r = self.random
        if depth <= 0 or r.random() < 0.25:
            return r.choice(ATOMS)
        if r.random() < 0.02:
            return r.choice(
                [
                    "(" * 300,
                    "!" * 5000 + "true",
                    "[" * 300 + "]" * 300,
                    "a." * 3000 + "b",
                    "'" + "x" * 20_000 + "'",
                    "1+" * 4000 + "1",
                    "\x00",
                ]
            )
        if r.random() < 0.6:
            form = r.choice(CALLS)
            return form % tuple(self.expression(depth - 1) for _ in range(form.replace("%%", "").count("%s")))
        operator = r.choice(OPERATORS)
        text = f"{self.expression(depth - 1)}{operator}{self.expression(depth - 1)}"
        return text + ("]" if operator == "[" else f" : {self.expression(depth - 1)}" if operator == " ? " else "")

    def _policy(self) -> FuzzedRequest:
        """A policy or its binding with expressions of all sorts, or a write that policies judge."""
        r = self.random
        group, name = "admissionregistration.k8s.io/v1", r.choice(["a", "p1", "p2"])
        what = r.random()
        if what < 0.3:
            maps = "/api/v1/namespaces/default/configmaps"
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": f"c{r.randrange(999)}"},
                "data": {"a": "b", "n": "1"},
            }
            return self._ask("POST", maps, body=json.dumps(body).encode())
        if what < 0.5:
            spec: Obj = {"policyName": name, "validationActions": r.choice([["Warn"], ["Audit"], ["Deny"], [], ["x"]])}
            return self._stored("ValidatingAdmissionPolicyBinding", group, f"b{r.randrange(9)}", spec)
        rules = [
            {
                "operations": ["*"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": [r.choice(["configmaps", "*", "pods/*", ""])],
            }
        ]
        spec = {"matchConstraints": {"resourceRules": rules}, "failurePolicy": r.choice(["Fail", "Ignore"])}
        if r.random() < 0.5:
            spec["variables"] = [{"name": r.choice(["x", "y", "", "x.y"]), "expression": self.expression()}]
        if r.random() < 0.4:
            spec["matchConditions"] = [{"name": "c", "expression": self.expression()}]
        if what < 0.8:
            spec["validations"] = [
                {
                    "expression": self.expression(),
                    "messageExpression": self.expression(),
                    "reason": r.choice(["Invalid", "x", ""]),
                }
            ]
            spec["auditAnnotations"] = [{"key": "k", "valueExpression": self.expression()}] if r.random() < 0.3 else []
            return self._stored("ValidatingAdmissionPolicy", group, name, spec)
        patch = r.choice(
            [
                "Object{metadata: Object.metadata{labels: {'a': %s}}}",
                "%s",
                "[JSONPatch{op: 'add', path: '/data/x', value: %s}]",
            ]
        )
        form, key = r.choice([("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")])
        spec["mutations"] = [{"patchType": form, key: {"expression": patch % self.expression()}}]
        spec["reinvocationPolicy"] = r.choice(["Never", "IfNeeded", ""])
        if r.random() < 0.4:
            return self._stored("MutatingAdmissionPolicyBinding", group, name, {"policyName": name})
        return self._stored("MutatingAdmissionPolicy", group, name, spec)

    def _stored(self, kind: str, api_version: str, name: str, spec: Obj) -> FuzzedRequest:
        """Apply, which makes or changes it."""
        r = self.random
        obj = {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}
        if r.random() < 0.2:
            self._bend(spec)
        query, form = "fieldManager=p&force=true", "application/apply-patch+yaml"
        return self._ask("PATCH", f"{path_of(obj)}/{name}", query, form, json.dumps(obj).encode())

    def _subresource(self) -> FuzzedRequest:
        r = self.random
        seed = r.choice([s for s in self.stored if self._kind(s).subresources])
        name = r.choice(self._kind(seed).subresources)
        bodies: list[Any] = [
            {
                "apiVersion": "autoscaling/v1",
                "kind": "Scale",
                "metadata": {"name": "a"},
                "spec": {"replicas": self._value()},
            },
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": seed["metadata"]["name"]},
                "target": {"kind": "Node", "name": self._value()},
            },
            {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": seed["metadata"]["name"]},
                "deleteOptions": self._value(),
            },
            {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "spec": {"audiences": self._value(), "expirationSeconds": self._value()},
            },
            {**seed, "status": self._value()},
            {
                **seed,
                "status": {
                    "conditions": [{"type": "Ready", "status": self._value(), "lastTransitionTime": r.choice(TIMES)}]
                },
            },
            self._value(),
        ]
        value = json.loads(json.dumps(r.choice(bodies)))
        form = r.choice(
            [
                "application/json",
                "application/merge-patch+json",
                "application/strategic-merge-patch+json",
                "application/apply-patch+yaml",
            ]
        )
        method = r.choice(["PUT", "POST"]) if form == "application/json" else "PATCH"
        return self._ask(
            method,
            f"{self._named(seed)}/{name}",
            "fieldManager=m1" if method == "PATCH" else "",
            form,
            self.texts.json(value),
        )
