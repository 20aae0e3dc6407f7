"""Parts that claims, classes and slices of resource.k8s.io share: names, selectors, configuration, taints.

Sources: KEP 4381 (selectors, opaque configuration), 5055 (taints), 5007 (binding conditions).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import orjson

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, required, too_long, too_many
from haru.kube.meta import Obj
from haru.kube.validation.common import bounded, driver_name, each_message, label_key, label_value, one_of, subdomain
from haru.kube.validation.types import CheckSelector

MAX_EXPRESSION_BYTES = 10 * 1024
MAX_PARAMETERS_BYTES = 10 * 1024
MAX_SELECTORS = 32
MAX_CONFIG = 32
MAX_TAINTS = 16
MAX_BINDING_CONDITIONS = 4
MAX_ID = 32
MAX_POOL_NAME = 253
EFFECTS = ("NoExecute", "NoSchedule", "None")


def pool_name(field: str, value: str) -> list[FieldError]:
    """Subdomains joined by slashes, at most 253 characters together."""
    if not value:
        return [required(field)]
    found = [too_long(field, MAX_POOL_NAME)] if len(value.encode()) > MAX_POOL_NAME else []
    for segment in value.split("/"):
        found += subdomain(field, segment)
    return found


@lru_cache(maxsize=8192)
def is_good_qualified_name(value: str) -> bool:
    """Whether `qualified_name` finds nothing: attribute names are few and asked about again and again."""
    return not qualified_name("", value)


def qualified_name(field: str, value: str) -> list[FieldError]:
    """`id` or `domain/id`: the name of an attribute or a capacity."""
    domain, slash, identifier = value.partition("/")
    if not slash:
        return c_identifier(field, value)
    if "/" in identifier:
        return []  # 1.36 looks at names with more than one slash no further
    found = driver_name(field, domain) if domain else [invalid(field, "", "the domain must not be empty")]
    if not identifier:
        return [*found, invalid(field, "", "the name must not be empty")]
    return found + c_identifier(field, identifier)


def fully_qualified_name(field: str, value: str) -> list[FieldError]:
    """`domain/id`, with the domain mandatory: what constraints compare."""
    found = qualified_name(field, value)
    if "/" not in value:
        why = "a fully qualified name must be a domain and a name separated by a slash"
        found.append(invalid(field, value, why))
    return found


def c_identifier(field: str, value: str) -> list[FieldError]:
    """An identifier of C of at most 32 characters."""
    found = [too_long(field, MAX_ID)] if len(value.encode()) > MAX_ID else []
    return found + each_message(field, value, names.is_c_identifier(value))


def device_selectors(field: str, selectors: Sequence[Obj], check: CheckSelector) -> list[FieldError]:
    """CEL selectors: at most 32, each must compile and stay below the cost limit."""

    def one(place: str, selector: Obj) -> list[FieldError]:
        cel = selector.get("cel")
        if cel is None:
            return [required(f"{place}.cel")]
        return _expression(f"{place}.cel.expression", cel.get("expression") or "", check)

    return bounded(field, selectors, MAX_SELECTORS, one)


def _expression(field: str, expression: str, check: CheckSelector) -> list[FieldError]:
    if len(expression.encode()) > MAX_EXPRESSION_BYTES:
        return [too_long(field, MAX_EXPRESSION_BYTES)]
    problem = check(expression)
    if problem is None:
        return []
    if problem.kind == "too-complex":
        return [forbidden(field, "too complex, exceeds cost limit")]
    return [invalid(field, expression, problem.message)]


def device_configuration(field: str, config: Obj, *, stored: bool = False) -> list[FieldError]:
    """Opaque driver configuration; the size limit is for what is newly set."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{field}.opaque")]
    found = driver_name(f"{field}.opaque.driver", opaque.get("driver") or "")
    return found + json_object(
        f"{field}.opaque.parameters", opaque.get("parameters"), None if stored else MAX_PARAMETERS_BYTES
    )


def json_object(field: str, value: Any, maximum: int | None) -> list[FieldError]:
    """A JSON object of limited size that must be there."""
    if value is None:
        return [required(field)]
    if maximum is not None and len(orjson.dumps(value)) > maximum:
        return [too_long(field, maximum)]
    if not isinstance(value, dict):
        return [invalid(field, "<value omitted>", "must be a valid JSON object")]
    return []


def device_taint(field: str, taint: Obj, old: Obj | None = None) -> list[FieldError]:
    """A taint; an effect that was stored before is not judged again."""
    found = label_key(f"{field}.key", taint.get("key") or "")
    if taint.get("value"):
        found += label_value(f"{field}.value", taint["value"])
    effect = taint.get("effect") or ""
    if old is None or (old.get("effect") or "") != effect:
        found += one_of(f"{field}.effect", effect, EFFECTS)
    return found


def device_toleration(field: str, toleration: Obj) -> list[FieldError]:
    """A toleration of device taints."""
    found: list[FieldError] = []
    if toleration.get("key"):
        found += label_key(f"{field}.key", toleration["key"])
    operator, value = toleration.get("operator") or "", toleration.get("value") or ""
    if operator == "Exists":
        if value:
            found.append(invalid(f"{field}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        found += label_value(f"{field}.value", value)
    else:
        found += one_of(f"{field}.operator", operator, ("Equal", "Exists"))
    return found + one_of(f"{field}.effect", toleration.get("effect"), EFFECTS, optional=True)


def binding_conditions(field: str, holder: Obj) -> list[FieldError]:
    """Binding and failure conditions: at most four each, distinct, and never one list without the other."""
    binding = holder.get("bindingConditions") or []
    failure = holder.get("bindingFailureConditions") or []
    if not binding and not failure:
        return []
    found: list[FieldError] = []
    lists = (("bindingConditions", binding), ("bindingFailureConditions", failure))
    for name, values in lists:
        found += bounded(f"{field}.{name}", values, MAX_BINDING_CONDITIONS, label_key)
    for name, values in lists:
        for index, value in enumerate(values):
            if value in values[:index]:
                found.append(duplicate(f"{field}.{name}[{index}]", value))
    for index, value in enumerate(failure):
        if value in binding:
            why = "bindingFailureConditions must not overlap with bindingConditions"
            found.append(invalid(f"{field}.bindingFailureConditions[{index}]", value, why))
    if not binding:
        why = "bindingConditions are required to use bindingFailureConditions"
        found.append(invalid(f"{field}.bindingConditions", holder.get("bindingConditions"), why))
    if not failure:
        why = "bindingFailureConditions are required to use bindingConditions"
        found.append(invalid(f"{field}.bindingFailureConditions", holder.get("bindingFailureConditions"), why))
    return found


def too_many_taints(field: str, taints: Sequence[Obj]) -> list[FieldError]:
    """Whether a device has more taints than fit."""
    return [too_many(field, len(taints), MAX_TAINTS)] if len(taints) > MAX_TAINTS else []
