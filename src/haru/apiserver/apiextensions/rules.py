"""CEL rules of custom resources, where definitions and objects are written."""

from __future__ import annotations

from collections.abc import Sequence

from haru.cel.object_rules import ObjectRules
from haru.kube.custom.definitions import GROUP, is_shared, schema_path, schemas_of
from haru.kube.custom.structural import parse
from haru.kube.custom.structural_checks import (
    UNKNOWN_FIELDS,
    default_errors,
    structural_errors,
    why_not_structural,
)
from haru.kube.errors import FieldError, invalid
from haru.kube.kind_strategies import with_member
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


def with_rule_errors(
    found: list[FieldError], kind: Kind, new: Obj, old: Obj | None, warnings: list[str]
) -> list[FieldError]:
    """What validation found, and what the rules of a custom resource's schema refuse beyond that, or warn about."""
    if kind.group == "admissionregistration.k8s.io":
        return found + _admission_errors(kind, new, old)
    if kind.custom is None:
        is_definition = (kind.group, kind.kind) == (GROUP, "CustomResourceDefinition")
        return found + _definition_errors(found, new, old) if is_definition else found
    rules = _rules_of(kind)
    if rules and any(error.type in _BLOCKING for error in found):
        return [*found, invalid("<nil>", None, _NOT_CHECKED)]
    if rules and old is not None and not new["metadata"].get("managedFields"):
        # Who owns what is written down later: where nothing changes it is as it was, and `self == oldSelf` is to hold.
        owners = old["metadata"].get("managedFields")
        new = {**new, "metadata": with_member(new["metadata"], "managedFields", owners)}
    return found + rules.check(new, old, warnings)


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


def _definition_errors(known: list[FieldError], definition: Obj, old: Obj | None) -> list[FieldError]:
    """What the expressions of a definition are refused for, beside what is known of it already."""
    versions, before = (definition.get("spec") or {}).get("versions") or [], schemas_of(old)
    found: list[FieldError] = []
    for index, version in enumerate(versions[:1] if is_shared(versions, "schema") else versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        # What is stored is not judged again: by whatever it was accepted, it must be possible to let it go.
        if schema is not None and before.get(version["name"]) != schema:
            found += _schema_errors(known, schema, schema_path(versions, index))
    return found


def _schema_errors(known: list[FieldError], schema: Obj, path: str) -> list[FieldError]:
    """What the rules of a structural schema are refused for: first that defaults break them.

    A rule is looked at only where nothing is wrong with the schema of the values that it sees.
    """
    from haru.cel.definition_rules import rule_problems

    wrong = [error.field for error in known if error.field.startswith(path)]
    if wrong and (why_not_structural(schema) or structural_errors(schema, path)):
        return []
    wrong_defaults = default_errors(schema, path) if wrong else []
    broken = _default_errors(schema, path, [error.field for error in wrong_defaults if error.detail != UNKNOWN_FIELDS])
    if broken or wrong_defaults:
        return broken
    return rule_problems(parse(schema), path, lambda place: any(_is_at(one, place) for one in wrong))


def _is_at(field: str, place: str) -> bool:
    """Whether a field is at a place or below it."""
    return field.startswith(place) and field[len(place) : len(place) + 1] in ("", ".", "[")


def _default_errors(schema: Obj, path: str, wrong: Sequence[str]) -> list[FieldError]:
    """Which rules the defaults of a schema break that are not wrong in themselves, each without the defaults below."""
    from haru.cel.object_rules import ObjectRules

    found: list[FieldError] = []
    value = schema.get("default")
    if value is not None and not any(_is_at(one, f"{path}.default") for one in wrong):
        found += ObjectRules(parse(schema)).check(value, None, path=f"{path}.default")
    items = schema.get("items")
    if isinstance(items, dict):
        found += _default_errors(items, f"{path}.items", wrong)
    for name, inner in (schema.get("properties") or {}).items():
        found += _default_errors(inner or {}, f"{path}.properties[{name}]", wrong)
    return found
