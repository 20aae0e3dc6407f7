"""Resource requirements: names, amounts, requests against limits, a container's claims (core/v1, KEP 4381, 2837)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_found, not_supported, required
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.resources import is_pod_level_resource
from haru.kube.validation.common import each_message, items, label_name, part

_CONTAINER_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
_NOT_NEGATIVE = "must be greater than or equal to 0"


def is_native(name: str) -> bool:
    """Whether a resource belongs to Kubernetes itself: no domain, or one of its own."""
    return "/" not in name or "kubernetes.io/" in name


def is_overcommittable(name: str) -> bool:
    """Whether requests may be lower than limits: not for huge pages, not for extended resources."""
    return is_native(name) and not name.startswith("hugepages-")


def validate_resource_name(field: str, name: str) -> list[FieldError]:
    """A qualified name; without a domain it must be a resource that containers have."""
    found = each_message(field, name, names.is_qualified_name(name))
    if found or "/" in name:
        if not found and not is_native(name) and not names.is_extended_resource_name(name):
            return [invalid(field, name, "doesn't follow extended resource name standard")]
        return found
    if name in _CONTAINER_RESOURCES or name.startswith("hugepages-"):
        return []
    return [invalid(field, name, "must be a standard resource for containers")]


def quantity(field: str, name: str, value: Any) -> tuple[Quantity | None, list[FieldError]]:
    """The amount of a resource: not negative, whole for what cannot be divided."""
    try:
        parsed = parse_quantity(value)
    except ValueError as problem:
        return None, [invalid(field, value, str(problem))]
    if parsed < Quantity(0):
        return parsed, [invalid(field, str(parsed), _NOT_NEGATIVE)]
    if not is_native(name) and not parsed.is_integer():
        return parsed, [invalid(field, str(parsed), "must be an integer")]
    return parsed, []


def validate_requirements(field: str, resources: Obj, claim_names: Collection[str]) -> list[FieldError]:
    """A container's requests, limits and claims."""
    found: list[FieldError] = []
    limits, requests = part(resources, "limits"), part(resources, "requests")
    amounts: dict[str, Quantity | None] = {}
    for name, value in limits.items():
        place = f"{field}.limits[{name}]"
        found += validate_resource_name(place, name)
        amounts[name], problem = quantity(place, name, value)
        found += problem
    for name, value in requests.items():
        place = f"{field}.requests[{name}]"
        found += validate_resource_name(place, name)
        amount, problem = quantity(place, name, value)
        found += problem
        limit = amounts.get(name)
        if name in limits and amount is not None and limit is not None:
            if amount != limit and not is_overcommittable(name):
                found.append(invalid(f"{field}.requests", str(amount), f"must be equal to {name} limit of {limit}"))
            elif amount > limit:
                why = f"must be less than or equal to {name} limit of {limit}"
                found.append(invalid(f"{field}.requests", str(amount), why))
        elif not is_overcommittable(name):
            found.append(required(f"{field}.limits", "Limit must be set for non overcommitable resources"))
    huge = any(name.startswith("hugepages-") for name in (*limits, *requests))
    if huge and not {"cpu", "memory"} & (limits.keys() | requests.keys()):
        found.append(forbidden(field, "HugePages require cpu or memory"))
    return found + _claims(f"{field}.claims", items(resources, "claims"), claim_names)


def _claims(field: str, claims: list[Obj], known: Collection[str]) -> list[FieldError]:
    """Which of the pod's claims a container uses; one without a request means all of the claim's devices."""
    found: list[FieldError] = []
    seen: set[tuple[str, str]] = set()
    for index, claim in enumerate(claims):
        name, request = claim.get("name") or "", claim.get("request") or ""
        if not name:
            found.append(required(f"{field}[{index}]"))
            continue
        shown = f"{name}/{request}" if request else name
        if (name, request) in seen:
            found.append(duplicate(f"{field}[{index}]", shown))
        elif (request and (name, "") in seen) or (not request and any(other == name for other, _ in seen)):
            # Naming the whole claim and one of its requests says the same thing twice.
            found.append(duplicate(f"{field}[{index}]", shown))
        seen.add((name, request))
        if request:
            found += label_name(f"{field}[{index}].request", request)
        if name not in known:
            found.append(not_found(f"{field}[{index}]", name))
    return found


def validate_pod_resources(field: str, resources: Obj) -> list[FieldError]:
    """Pod-level requests and limits (KEP 2837): cpu, memory and huge pages, no claims."""
    found = [forbidden(f"{field}.claims", "may not be set for pod-level resources")] if resources.get("claims") else []
    for side in ("limits", "requests"):
        for name, value in part(resources, side).items():
            place = f"{field}.{side}[{name}]"
            if not is_pod_level_resource(name):
                found.append(not_supported(place, name, ("cpu", "hugepages-", "memory")))
            found += quantity(place, name, value)[1]
    limits, requests = part(resources, "limits"), part(resources, "requests")
    for name in limits.keys() & requests.keys():
        place = f"{field}.requests[{name}]"
        amount, limit = quantity(place, name, requests[name])[0], quantity(place, name, limits[name])[0]
        if amount is not None and limit is not None and amount > limit:
            why = f"must be less than or equal to {name} limit of {limit}"
            found.append(invalid(f"{field}.requests", str(amount), why))
    return found
