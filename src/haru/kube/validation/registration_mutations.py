"""Mutating admission policies and their bindings: everything but their expressions.

Source: KEP 3962 and admissionregistration.k8s.io/v1 validation, as behaviour. The expressions are judged where CEL is
known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from haru.kube.errors import FieldError, duplicate, invalid, not_supported, required
from haru.kube.validation.common import items, one_of, part, same
from haru.kube.validation.registration_policies import binding_errors, policy_errors
from haru.kube.validation.registration_rules import CHANGING_OPERATIONS

Obj = dict[str, Any]

_REINVOCATIONS = ("IfNeeded", "Never")
_MEMBERS = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


def validate_mutating_policy(policy: Obj) -> list[FieldError]:
    """A MutatingAdmissionPolicy."""
    return list(_policy(part(policy, "spec")))


def validate_mutating_policy_update(new: Obj, old: Obj) -> list[FieldError]:
    """As on creation; match conditions that did not change are not judged again."""
    ours, theirs = part(new, "spec"), part(old, "spec")
    settled = all(same(ours.get(name), theirs.get(name)) for name in ("paramKind", "matchConditions"))
    return [error for error in _policy(ours) if not (settled and error.field.startswith("spec.matchConditions"))]


def validate_mutating_binding(binding: Obj) -> list[FieldError]:
    """A MutatingAdmissionPolicyBinding."""
    spec = part(binding, "spec")
    return [*binding_errors(spec), *_operations("spec.matchResources", spec.get("matchResources"))]


def _policy(spec: Obj) -> Iterator[FieldError]:
    yield from policy_errors(spec)
    yield from _operations("spec.matchConstraints", spec.get("matchConstraints"))
    seen: set[str] = set()
    for index, variable in enumerate(items(spec, "variables")):
        name = variable.get("name") or ""
        if name in seen:
            yield duplicate(f"spec.variables[{index}].name", name)
        seen.add(name)
    if not spec.get("mutations"):
        yield required("spec.mutations", "mutations must contain at least one item")
    for index, mutation in enumerate(items(spec, "mutations")):
        yield from _mutation(f"spec.mutations[{index}]", mutation)
    yield from one_of("spec.reinvocationPolicy", spec.get("reinvocationPolicy"), _REINVOCATIONS)


def _operations(path: str, resources: Obj | None) -> Iterator[FieldError]:
    """Of a deletion there is nothing to change."""
    for rule in items(resources or {}, "resourceRules"):
        for operation in rule.get("operations") or ():
            if operation not in CHANGING_OPERATIONS:
                yield not_supported(f"{path}.resourceRules.operations", operation, CHANGING_OPERATIONS)


def _mutation(path: str, mutation: Obj) -> Iterator[FieldError]:
    kind = mutation.get("patchType") or ""
    if not kind:
        yield required(f"{path}.patchType")
        return
    if kind not in _MEMBERS:
        yield not_supported(f"{path}.patchType", kind, sorted(_MEMBERS))
        return
    member = _MEMBERS[kind]
    given: Obj | None = mutation.get(member)
    if given is None:
        yield required(f"{path}.{member}", f"must be specified when patchType is {kind}")
    elif not (given.get("expression") or "").strip():
        yield required(f"{path}.{member}.expression")
    for other in _MEMBERS.values():
        if other != member and mutation.get(other) is not None:
            yield invalid(f"{path}.{other}", f"{{{other}}}", f"must not be specified when patchType is {kind}")
