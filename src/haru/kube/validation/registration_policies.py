"""Validate admission policies of both kinds and their bindings, except the expressions.

Source: admissionregistration.k8s.io/v1 validation and KEP 3962, as behaviour. `haru.cel` checks the expressions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import items, known_value, one_of, part, same
from haru.kube.validation.registration_rules import CHANGING_OPERATIONS, condition_errors, rule_errors
from haru.kube.validation.selectors import validate_conditions, validate_label_selector

ANNOTATIONS_LIMIT = 20
ANNOTATION_BYTES = 5 * 1024
_MATCH_POLICIES = ("Equivalent", "Exact")
_FAILURE_POLICIES = ("Fail", "Ignore")
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*").fullmatch
_RESERVED = frozenset(
    (
        *("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if"),
        *("import", "let", "loop", "package", "namespace", "return", "var", "void", "while"),
    )
)


def validate_policy(policy: Obj) -> list[FieldError]:
    """A ValidatingAdmissionPolicy."""
    return list(_policy(policy))


def validate_policy_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate as on creation, without match conditions that did not change."""
    ours, theirs = part(new, "spec"), part(old, "spec")
    settled = all(same(ours.get(name), theirs.get(name)) for name in ("paramKind", "matchConditions"))
    return [error for error in _policy(new) if not (settled and error.field.startswith("spec.matchConditions"))]


def _policy(policy: Obj) -> Iterator[FieldError]:
    spec, name = part(policy, "spec"), part(policy, "metadata").get("name") or ""
    yield from policy_errors(spec)
    if not spec.get("validations") and not spec.get("auditAnnotations"):
        why = "validations or auditAnnotations must contain at least one item"
        yield required("spec.validations", why)
        yield required("spec.auditAnnotations", why)
    for index, validation in enumerate(items(spec, "validations")):
        yield from _validation(f"spec.validations[{index}]", validation)
    yield from _annotations("spec.auditAnnotations", items(spec, "auditAnnotations"), name)


def policy_errors(spec: Obj) -> Iterator[FieldError]:
    """Validate the parts that validating and mutating policies share."""
    yield from known_value("spec.failurePolicy", spec.get("failurePolicy"), _FAILURE_POLICIES)
    if spec.get("paramKind") is not None:
        yield from param_kind_errors("spec.paramKind", spec["paramKind"])
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from match_resources_errors("spec.matchConstraints", constraints)
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
    yield from condition_errors("spec.matchConditions", items(spec, "matchConditions"))
    for index, variable in enumerate(items(spec, "variables")):
        yield from _variable(f"spec.variables[{index}]", variable)


def param_kind_errors(path: str, kind: Obj) -> Iterator[FieldError]:
    """The kind of a policy's parameters."""
    version = kind.get("apiVersion") or ""
    if not version:
        yield required(f"{path}.apiVersion")
    elif version.count("/") > 1:
        yield invalid(f"{path}.apiVersion", version, f"unexpected GroupVersion string: {version}")
    else:
        group, _, last = version.rpartition("/")
        if group and (problems := names.is_dns1123_subdomain(group)):
            yield invalid(f"{path}.apiVersion", group, ",".join(problems))
        if not last:
            yield invalid(f"{path}.apiVersion", version, "version must be specified")
        elif problems := names.is_dns1035_label(last):
            yield invalid(f"{path}.apiVersion", last, ",".join(problems))
    name = kind.get("kind") or ""
    if not name:
        yield required(f"{path}.kind")
    elif problems := names.is_dns1035_label(name.lower()):
        yield invalid(f"{path}.kind", name, f"may have mixed case, but should otherwise match: {','.join(problems)}")


def match_resources_errors(path: str, resources: Obj) -> Iterator[FieldError]:
    """Validate the match resources of a policy or a binding."""
    yield from known_value(f"{path}.matchPolicy", resources.get("matchPolicy"), _MATCH_POLICIES)
    for name in ("namespaceSelector", "objectSelector"):
        if resources.get(name) is None:
            yield required(f"{path}.{name}")
        else:
            yield from validate_label_selector(f"{path}.{name}", resources[name])
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(items(resources, name)):
            where = f"{path}.{name}[{index}]"
            yield from _resource_names(f"{where}.resourceNames", rule.get("resourceNames") or [])
            yield from rule_errors(where, rule)


def _resource_names(path: str, given: list[str]) -> Iterator[FieldError]:
    for index, name in enumerate(given):
        for problem in names.is_path_segment_name(name):
            yield invalid(f"{path}[{index}]", name, problem)
        if name in given[:index]:
            yield duplicate(f"{path}[{index}]", name)


def _variable(path: str, variable: Obj) -> Iterator[FieldError]:
    name = variable.get("name") or ""
    if not name.strip():
        yield required(f"{path}.name", "name is not specified")
    elif not _IDENTIFIER(name) or name in _RESERVED:
        yield invalid(f"{path}.name", name, "must be a valid CEL identifier")
    if not (variable.get("expression") or "").strip():
        yield required(f"{path}.expression", "expression is not specified")


def _validation(path: str, validation: Obj) -> Iterator[FieldError]:
    if not (validation.get("expression") or "").strip():
        yield required(f"{path}.expression", "expression is not specified")
    text, message = validation.get("messageExpression") or "", validation.get("message") or ""
    if text and not text.strip():
        yield invalid(f"{path}.messageExpression", text, "must be non-empty if specified")
    if message and not message.strip():
        yield invalid(f"{path}.message", message, "must be non-empty if specified")
    elif re.search(r"[\n\r]", message.strip()):
        yield invalid(f"{path}.message", message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(f"{path}.reason", reason, _REASONS)


def _annotations(path: str, annotations: Sequence[Obj], policy: str) -> Iterator[FieldError]:
    if len(annotations) > ANNOTATIONS_LIMIT:
        yield invalid(path, annotations, f"must not have more than {ANNOTATIONS_LIMIT} auditAnnotations")
    seen: set[str] = set()
    for index, annotation in enumerate(annotations):
        key, text = annotation.get("key") or "", (annotation.get("valueExpression") or "").strip()
        where = f"{path}[{index}]"
        for problem in names.is_qualified_name(f"{policy}/{key}"):
            yield invalid(f"{where}.key", f"{policy}/{key}", problem)
        if not text:
            yield required(f"{where}.valueExpression", "valueExpression is not specified")
        elif len(text.encode()) > ANNOTATION_BYTES:
            yield required(f"{where}.valueExpression", "must not exceed 5120 bytes in length")
        if key in seen:
            yield duplicate(f"{where}.key", key)
        seen.add(key)


def validate_policy_status(new: Obj, old: Obj) -> list[FieldError]:
    """Validate the warnings of type checking, each with a field and a text, and the conditions."""
    found: list[FieldError] = []
    status = part(new, "status")
    for index, warning in enumerate(items(part(status, "typeChecking"), "expressionWarnings")):
        path = f"status.typeChecking.expressionWarnings[{index}]"
        found += [required(f"{path}.{name}") for name in ("warning", "fieldRef") if not warning.get(name)]
    return found + validate_conditions("status.conditions", items(status, "conditions"))


# --- bindings


def validate_binding(binding: Obj) -> list[FieldError]:
    """A ValidatingAdmissionPolicyBinding."""
    return list(_binding(part(binding, "spec")))


def _binding(spec: Obj) -> Iterator[FieldError]:
    yield from binding_errors(spec)
    actions: list[str] = spec.get("validationActions") or []
    path = "spec.validationActions"
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(f"{path}[{index}]", action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate(f"{path}[{index}]", action)
    if "Deny" in actions and "Warn" in actions:
        why = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        yield invalid(path, actions, why)
    if not actions:
        yield required(path, "at least one validation action is required")


def binding_errors(spec: Obj) -> Iterator[FieldError]:
    """Validate the parts that bindings of both sorts of policies share."""
    name = spec.get("policyName") or ""
    if not name:
        yield required("spec.policyName")
    for problem in names.is_dns1123_subdomain(name) if name else ():
        yield invalid("spec.policyName", name, problem)
    if spec.get("paramRef") is not None:
        yield from param_ref_errors("spec.paramRef", spec["paramRef"])
    if spec.get("matchResources") is not None:
        yield from match_resources_errors("spec.matchResources", spec["matchResources"])


def param_ref_errors(path: str, reference: Obj) -> Iterator[FieldError]:
    """Which parameters a binding uses."""
    name, selector = reference.get("name") or "", reference.get("selector")
    both = "name and selector are mutually exclusive"
    for problem in names.is_path_segment_name(name) if name else ():
        yield invalid(f"{path}.name", name, problem)
    if name and selector is not None:
        yield forbidden(f"{path}.name", both)
    if selector is not None:
        yield from validate_label_selector(f"{path}.selector", selector)
        if name:
            yield forbidden(f"{path}.selector", both)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    action = reference.get("parameterNotFoundAction")
    yield from one_of(f"{path}.parameterNotFoundAction", action, ("Deny", "Allow"), in_order=True)


_REINVOCATIONS = ("IfNeeded", "Never")
_MEMBERS = {"ApplyConfiguration": "applyConfiguration", "JSONPatch": "jsonPatch"}


def validate_mutating_policy(policy: Obj) -> list[FieldError]:
    """A MutatingAdmissionPolicy."""
    return list(_mutating_policy(part(policy, "spec")))


def validate_mutating_policy_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate as on creation, without match conditions that did not change."""
    ours, theirs = part(new, "spec"), part(old, "spec")
    settled = all(same(ours.get(name), theirs.get(name)) for name in ("paramKind", "matchConditions"))
    return [
        error for error in _mutating_policy(ours) if not (settled and error.field.startswith("spec.matchConditions"))
    ]


def validate_mutating_binding(binding: Obj) -> list[FieldError]:
    """A MutatingAdmissionPolicyBinding."""
    spec = part(binding, "spec")
    return [*binding_errors(spec), *_operations("spec.matchResources", spec.get("matchResources"))]


def _mutating_policy(spec: Obj) -> Iterator[FieldError]:
    yield from policy_errors(spec)
    yield from _operations("spec.matchConstraints", spec.get("matchConstraints"))
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
