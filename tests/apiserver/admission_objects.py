"""Validating admission policies and bindings, short to write."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]

GROUP = "/apis/admissionregistration.k8s.io/v1"
POLICIES = f"{GROUP}/validatingadmissionpolicies"
BINDINGS = f"{GROUP}/validatingadmissionpolicybindings"


def constraints(*operations: str, resources: str = "configmaps", **changes: Any) -> Obj:
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": list(operations) or ["CREATE", "UPDATE"],
        "resources": resources.split(","),
    }
    return {"resourceRules": [{**rule, **changes.pop("rule", {})}], **changes}


def policy(*validations: Obj | str, name: str = "p.example.com", **changes: Any) -> Obj:
    made = [v if isinstance(v, dict) else {"expression": v} for v in validations]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {"matchConstraints": constraints(), **({"validations": made} if made else {}), **changes},
    }


def binding(name: str = "b.example.com", of: str = "p.example.com", **changes: Any) -> Obj:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": of, "validationActions": ["Deny"], **changes},
    }
