"""Where a pod may run in relation to nodes, to other pods, and to its like: affinity, spread, tolerations (core/v1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.node_taints import EFFECTS
from haru.kube.validation.common import indexed, items, label_key, label_name, one_of, part, positive
from haru.kube.validation.selectors import (
    validate_label_selector,
    validate_node_selector,
    validate_node_selector_term,
)

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_WHEN_UNSATISFIABLE: Final = ("DoNotSchedule", "ScheduleAnyway")
_NODE_POLICIES: Final = ("Honor", "Ignore")


def validate_affinity(field: str, affinity: Obj) -> list[FieldError]:
    """Affinity to nodes, to pods, and away from pods."""
    node, place = part(affinity, "nodeAffinity"), f"{field}.nodeAffinity"
    found: list[FieldError] = []
    if node.get(_REQUIRED) is not None:
        found += validate_node_selector(f"{place}.{_REQUIRED}", node[_REQUIRED])
    for index, term in enumerate(items(node, _PREFERRED)):
        here = f"{place}.{_PREFERRED}[{index}]"
        found += _weight(f"{here}.weight", term)
        found += validate_node_selector_term(f"{here}.preference", part(term, "preference"), checks_values=False)
    for name in ("podAffinity", "podAntiAffinity"):
        pods = part(affinity, name)
        found += indexed(f"{field}.{name}.{_REQUIRED}", items(pods, _REQUIRED), _pod_term)
        for index, term in enumerate(items(pods, _PREFERRED)):
            here = f"{field}.{name}.{_PREFERRED}[{index}]"
            found += _weight(f"{here}.weight", term)
            found += _pod_term(f"{here}.podAffinityTerm", part(term, "podAffinityTerm"))
    return found


def _weight(field: str, term: Obj) -> list[FieldError]:
    weight = term.get("weight") or 0
    return [] if 1 <= weight <= 100 else [invalid(field, weight, "must be in the range 1-100")]


def _pod_term(field: str, term: Obj) -> list[FieldError]:
    found = validate_label_selector(f"{field}.labelSelector", term.get("labelSelector"))
    found += validate_label_selector(f"{field}.namespaceSelector", term.get("namespaceSelector"))
    for namespace in items(term, "namespaces"):
        found += label_name(f"{field}.namespace", namespace)
    found += _label_keys(field, term)
    key, place = term.get("topologyKey") or "", f"{field}.topologyKey"
    return found + ([] if key else [required(place, "can not be empty")]) + label_key(place, key)


def validate_spread(field: str, constraints: Sequence[Obj]) -> list[FieldError]:
    """Topology spread constraints; a repeated one is told at the first."""
    pairs = [(one.get("topologyKey") or "", one.get("whenUnsatisfiable") or "") for one in constraints]
    found: list[FieldError] = []
    for index, constraint in enumerate(constraints):
        found += _spread(f"{field}[{index}]", constraint, repeated=pairs[index] in pairs[index + 1 :])
    return found


def _spread(field: str, constraint: Obj, *, repeated: bool) -> list[FieldError]:
    when, domains = constraint.get("whenUnsatisfiable") or "", constraint.get("minDomains")
    key = constraint.get("topologyKey") or ""
    found = positive(f"{field}.maxSkew", constraint.get("maxSkew") or 0)
    if not key:
        found.append(required(f"{field}.topologyKey", "can not be empty"))
    if when not in _WHEN_UNSATISFIABLE:
        found.append(not_supported(f"{field}.whenUnsatisfiable", when, _WHEN_UNSATISFIABLE))
    if repeated:
        found.append(duplicate(f"{field}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {when}}}"))
    found += positive(f"{field}.minDomains", domains)
    if domains is not None and when != "DoNotSchedule":
        why = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {when}"
        found.append(invalid(f"{field}.minDomains", domains, why))
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        policy = constraint.get(name)
        if policy is not None and policy not in _NODE_POLICIES:
            found.append(not_supported(f"{field}.{name}", policy, _NODE_POLICIES))
    found += _label_keys(field, constraint)
    return found + validate_label_selector(f"{field}.labelSelector", constraint.get("labelSelector"))


def _label_keys(field: str, term: Obj) -> list[FieldError]:
    """matchLabelKeys and mismatchLabelKeys, once the pod's values of them have been added to the selector."""
    selector = term.get("labelSelector")
    keys, others = items(term, "matchLabelKeys"), items(term, "mismatchLabelKeys")
    found: list[FieldError] = []
    for place, named in ((f"{field}.matchLabelKeys", keys), (f"{field}.mismatchLabelKeys", others)):
        if named and selector is None:
            found.append(forbidden(place, "must not be specified when labelSelector is not set"))
        else:
            found += [error for index, key in enumerate(named) for error in label_key(f"{place}[{index}]", key)]
    seen = set(part(selector, "matchLabels"))
    for expression in items(selector, "matchExpressions"):
        key = expression.get("key") or ""
        if key in keys and key in seen:
            why = "exists in both matchLabelKeys and labelSelector"
            found.append(invalid(f"{field}[{len(keys) - 1 - keys[::-1].index(key)}]", key, why))
        seen.add(key)
    for index, key in enumerate(keys):
        if key in others:
            why = "exists in both matchLabelKeys and mismatchLabelKeys"
            found.append(invalid(f"{field}.matchLabelKeys[{index}]", key, why))
    return found


def validate_tolerations(field: str, tolerations: Sequence[Obj]) -> list[FieldError]:
    """Tolerations of node taints."""
    found: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        place = f"{field}[{index}]"
        key, operator = toleration.get("key") or "", toleration.get("operator") or ""
        effect = toleration.get("effect") or ""
        found += label_key(f"{place}.key", key) if key else []
        if not key and operator != "Exists":
            why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            found.append(invalid(f"{place}.operator", operator, why))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            found.append(invalid(f"{place}.effect", effect, why))
        found += _operator(f"{place}.operator", operator, toleration.get("value") or "")
        found += one_of(f"{place}.effect", effect, EFFECTS, optional=True, in_order=True)
    return found


def _operator(field: str, operator: str, value: str) -> list[FieldError]:
    if operator in ("", "Equal"):
        messages = names.is_label_value(value)
        return [invalid(field, value, ";".join(messages))] if messages else []
    if operator == "Exists":
        return [invalid(field, value, "value must be empty when `operator` is 'Exists'")] if value else []
    compared = ("Lt", "Gt") if operator in ("Lt", "Gt") else ()  # told of, though their gate is off
    return [not_supported(field, operator, ("Equal", "Exists", *compared))]
