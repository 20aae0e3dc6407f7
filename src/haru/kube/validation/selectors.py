"""Label selectors, node selectors, tolerations and conditions: parts that many kinds have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required, too_long, too_many
from haru.kube.meta import Obj
from haru.kube.validation.common import each_message, indexed, items, label_key, part, unique
from haru.kube.validation.metadata import validate_labels

_REASON_FORMAT = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON = re.compile(_REASON_FORMAT)
_REASON_MESSAGE = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_'"
)
_STATUSES = ("False", "True", "Unknown")
_NODE_FIELDS = ("metadata.name",)


def validate_label_selector(field: str, selector: Obj | None) -> list[FieldError]:
    """A metav1.LabelSelector."""
    found = validate_labels(part(selector, "matchLabels"), f"{field}.matchLabels")
    return found + indexed(f"{field}.matchExpressions", items(selector, "matchExpressions"), _label_requirement)


def _label_requirement(
    field: str, requirement: Obj, *, compares: bool = False, checks_values: bool = True
) -> list[FieldError]:
    """A requirement on a label; those of nodes may compare numbers, too."""
    found: list[FieldError] = []
    operator, values = requirement.get("operator") or "", requirement.get("values") or ()
    if operator in ("In", "NotIn"):
        if not values:
            found.append(required(f"{field}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            found.append(forbidden(f"{field}.values", why))
    elif compares and operator in ("Gt", "Lt"):
        if len(values) != 1:
            found.append(required(f"{field}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        found.append(invalid(f"{field}.operator", operator, "not a valid selector operator"))
    found += label_key(f"{field}.key", requirement.get("key") or "")
    for index, value in enumerate(values if checks_values else ()):
        found += each_message(f"{field}.values[{index}]", value, names.is_label_value(value))
    return found


def validate_node_selector(field: str, selector: Obj) -> list[FieldError]:
    """A core NodeSelector: at least one term."""
    terms = items(selector, "nodeSelectorTerms")
    if not terms:
        return [required(f"{field}.nodeSelectorTerms", "must have at least one node selector term")]
    return indexed(f"{field}.nodeSelectorTerms", terms, validate_node_selector_term)


def validate_node_selector_term(field: str, term: Obj, *, checks_values: bool = True) -> list[FieldError]:
    """One term: requirements on labels and on fields; the values of what is only preferred are not checked."""
    check = partial(_label_requirement, compares=True, checks_values=checks_values)
    found = indexed(f"{field}.matchExpressions", items(term, "matchExpressions"), check)
    return found + indexed(f"{field}.matchFields", items(term, "matchFields"), _node_field_requirement)


def _node_field_requirement(field: str, requirement: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    operator, values = requirement.get("operator") or "", requirement.get("values") or []
    if operator in ("In", "NotIn"):
        if len(values) != 1:
            why = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            found.append(required(f"{field}.values", why))
    else:
        found.append(invalid(f"{field}.operator", operator, "not a valid selector operator"))
    key = requirement.get("key") or ""
    if key not in _NODE_FIELDS:
        return [*found, invalid(f"{field}.key", key, "not a valid field selector key")]
    for index, value in enumerate(values):
        found += each_message(f"{field}.values[{index}]", value, names.is_dns1123_subdomain(value))
    return found


def validate_conditions(field: str, conditions: Sequence[Obj], maximum: int | None = None) -> list[FieldError]:
    """A list of metav1.Condition."""
    found: list[FieldError] = []
    if maximum is not None and len(conditions) > maximum:
        found.append(too_many(field, len(conditions), maximum))
    found += unique(field, conditions, lambda condition: condition.get("type"), ".type")
    return found + indexed(field, conditions, _condition)


def _condition(field: str, condition: Obj) -> list[FieldError]:
    found = label_key(f"{field}.type", condition.get("type") or "")
    if condition.get("status") not in _STATUSES:
        found.append(not_supported(f"{field}.status", condition.get("status") or "", _STATUSES))
    generation = condition.get("observedGeneration") or 0
    if generation < 0:
        found.append(invalid(f"{field}.observedGeneration", generation, "must be greater than or equal to zero"))
    if not condition.get("lastTransitionTime"):
        found.append(required(f"{field}.lastTransitionTime"))
    reason = condition.get("reason") or ""
    if not reason:
        found.append(required(f"{field}.reason"))
    else:
        if not _REASON.fullmatch(reason):
            examples = ("my_name", "MY_NAME", "MyName", "ReasonA,ReasonB", "ReasonA:ReasonB")
            found.append(
                invalid(f"{field}.reason", reason, names.regex_error(_REASON_MESSAGE, _REASON_FORMAT, *examples))
            )
        if len(reason.encode()) > 1024:
            found.append(too_long(f"{field}.reason", 1024))
    if len((condition.get("message") or "").encode()) > 32 * 1024:
        found.append(too_long(f"{field}.message", 32 * 1024))
    return found
