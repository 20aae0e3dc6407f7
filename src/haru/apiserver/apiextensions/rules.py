"""CEL rules of custom resources, where definitions and objects are written."""

from __future__ import annotations

from dataclasses import replace

from haru.cel.object_rules import ObjectRules
from haru.kube.custom.definitions import GROUP, is_shared, schema_path, schemas_of
from haru.kube.custom.structural import parse
from haru.kube.errors import FieldError, invalid
from haru.kube.kinds import Kind
from haru.kube.meta import Obj

_BLOCKING = {
    "FieldValueNotSupported",
    "FieldValueRequired",
    "FieldValueTooLong",
    "FieldValueTooMany",
    "FieldValueTypeInvalid",
}
"""Expressions may not see values that are wrong in these ways: their costs were estimated without."""
_NOT_CHECKED = (
    "some validation rules were not checked because the object was invalid; correct the existing errors to complete "
    "validation"
)


def with_rule_errors(found: list[FieldError], kind: Kind, new: Obj, old: Obj | None) -> list[FieldError]:
    """What validation found, and what the rules of a custom resource's schema refuse beyond that.

    The expressions of definitions are judged in valid ones alone.
    """
    if kind.group == "admissionregistration.k8s.io":
        return found + _admission_errors(kind, new, old)
    if kind.custom is None:
        return found or _expression_errors(kind, new, old)
    rules = _rules_of(kind)
    if rules and any(error.type in _BLOCKING for error in found):
        return [*found, invalid("<nil>", None, _NOT_CHECKED)]
    return found + rules.check(new, old)


def _expression_errors(kind: Kind, new: Obj, old: Obj | None) -> list[FieldError]:
    return _definition_errors(new, old) if (kind.group, kind.kind) == (GROUP, "CustomResourceDefinition") else []


def _admission_errors(kind: Kind, new: Obj, old: Obj | None) -> list[FieldError]:
    from haru.apiserver.admission.dynamic import expressions

    if kind.kind == "ValidatingAdmissionPolicy":
        return expressions.policy_expression_errors(new, old)
    if kind.kind == "MutatingAdmissionPolicy":
        return expressions.mutation_expression_errors(new, old)
    return expressions.webhook_expression_errors(new, old) if kind.kind.endswith("WebhookConfiguration") else []


def _rules_of(kind: Kind) -> ObjectRules:
    from haru.cel.object_rules import ObjectRules

    custom = kind.custom
    assert custom is not None
    if custom.rules is None:
        custom.rules = ObjectRules(custom.schema)
    found: ObjectRules = custom.rules
    return found


def _definition_errors(definition: Obj, old: Obj | None) -> list[FieldError]:
    from haru.cel.definition_rules import rule_problems

    versions, before = definition["spec"]["versions"], schemas_of(old)
    found: list[FieldError] = []
    for index, version in enumerate(versions[:1] if is_shared(versions, "schema") else versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        # What is stored is not judged again: by whatever it was accepted, it must be possible to let it go.
        if schema is not None and before.get(version["name"]) != schema:
            place = schema_path(versions, index)
            found += rule_problems(parse(schema), place) or _default_errors(schema, place)
    return found


def _default_errors(schema: Obj, path: str) -> list[FieldError]:
    """Which rules the defaults of a schema break, each without the defaults below it."""
    from haru.cel.object_rules import ObjectRules

    found: list[FieldError] = []
    if (value := schema.get("default")) is not None:
        for error in ObjectRules(parse(schema)).check(value, None):
            below = "" if error.field == "<nil>" else f".{error.field}"
            found.append(replace(error, field=f"{path}.default{below}"))
    items = schema.get("items")
    if isinstance(items, dict):
        found += _default_errors(items, f"{path}.items")
    for name, inner in (schema.get("properties") or {}).items():
        found += _default_errors(inner or {}, f"{path}.properties[{name}]")
    return found
