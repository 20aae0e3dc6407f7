"""Resource requirements: names, amounts, requests against limits, a container's claims (core/v1, KEP 4381, 2837)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, Final

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_found, not_supported, required
from haru.kube.meta import Obj
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.resources import is_pod_level_resource, parse_resource_list, pod_limits, pod_requests
from haru.kube.validation.common import each_message, items, label_name, part

_CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
COUNTED: Final = frozenset(
    {
        "pods",
        "resourcequotas",
        "services",
        "replicationcontrollers",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
    }
)
"""Objects that quotas count: resources of which there is a whole number."""
STANDARD: Final = frozenset(
    {
        *_CONTAINER_RESOURCES,
        *(f"{side}.{name}" for side in ("requests", "limits") for name in _CONTAINER_RESOURCES),
        "requests.storage",
        *COUNTED,
    }
)
"""Resources that quotas know by these names."""
_NOT_NEGATIVE = "must be greater than or equal to 0"
_MILLI: Final = 1000

NameCheck = Callable[[str, str], list[FieldError]]


def is_overcommittable(name: str) -> bool:
    """Whether requests may be lower than limits: not for huge pages, not for extended resources."""
    return names.is_native_resource(name) and not name.startswith("hugepages-")


def _is_huge_pages(name: str) -> bool:
    return name.startswith("hugepages-")


def is_standard_for_quota(name: str) -> bool:
    """Whether a quota can limit a resource of this name that has no domain."""
    return name in STANDARD or name.removeprefix("requests.").startswith("hugepages-")


def standard_or_qualified_name(field: str, name: str) -> list[FieldError]:
    """A qualified name; without a domain it must be a resource that Kubernetes knows."""
    found = each_message(field, name, names.is_qualified_name(name))
    if found or "/" in name or is_standard_for_quota(name) or name == "storage":
        return found
    return [invalid(field, name, "must be a standard resource type or fully qualified")]


def container_resource_name(field: str, name: str) -> list[FieldError]:
    """A resource that containers have."""
    found = standard_or_qualified_name(field, name)
    if "/" not in name:
        if name not in _CONTAINER_RESOURCES and not _is_huge_pages(name):
            found.append(invalid(field, name, "must be a standard resource for containers"))
    elif not names.is_native_resource(name) and not names.is_extended_resource_name(name):
        found.append(invalid(field, name, "doesn't follow extended resource name standard"))
    return found


def _pod_resource_name(field: str, name: str) -> list[FieldError]:
    found = standard_or_qualified_name(field, name)
    if found or is_pod_level_resource(name):
        return found
    return [not_supported(field, name, ("cpu", "hugepages-", "memory"))]


def quantity(field: str, name: str, value: Any) -> tuple[Quantity | None, list[FieldError]]:
    """The amount of a resource: not negative, whole for what cannot be divided."""
    try:
        parsed = parse_quantity(value)
    except ValueError as problem:
        return None, [invalid(field, value, str(problem))]
    found = [invalid(field, str(parsed), _NOT_NEGATIVE)] if parsed < Quantity(0) else []
    if (name in COUNTED or names.is_extended_resource_name(name)) and _milli(parsed) % _MILLI:
        found.append(invalid(field, str(parsed), "must be an integer"))
    return parsed, found


def _milli(amount: Quantity) -> int:
    """Thousandths of an amount in 64 bits, as Go has them: of one that is too large they are the rest."""
    units = amount.value() if amount.is_integer() else 0
    return _as_int64(_as_int64(units) * _MILLI) if units else amount.milli()


def _as_int64(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def _huge_pages(field: str, name: str, amount: Quantity | None) -> list[FieldError]:
    """Huge pages come in pages of the size that their name says."""
    if amount is None or not _is_huge_pages(name):
        return []
    try:
        size = parse_quantity(name.removeprefix("hugepages-"))
    except ValueError:
        size = Quantity(0)
    if size > Quantity(0) and not size.milli() % _MILLI and not amount.value() % size.value():
        return []
    return [invalid(field, str(amount), f"{amount} is not positive integer multiple of {name}")]


def validate_requirements(
    field: str, resources: Obj, claim_names: Collection[str], name_check: NameCheck = container_resource_name
) -> list[FieldError]:
    """Requests, limits and claims of a container."""
    limits, requests = part(resources, "limits"), part(resources, "requests")
    found: list[FieldError] = []
    amounts: dict[tuple[str, str], Quantity | None] = {}
    for side, given in (("limits", limits), ("requests", requests)):
        for name, value in given.items():
            place = f"{field}.{side}[{name}]"
            found += name_check(place, name)
            amounts[side, name], problem = quantity(place, name, value)
            found += problem + _huge_pages(place, name, amounts[side, name])
    for name in requests:
        amount, limit = amounts["requests", name], amounts.get(("limits", name))
        if name in limits:
            found += _request_and_limit(f"{field}.requests", name, amount, limit)
        elif not is_overcommittable(name):
            found.append(required(f"{field}.limits", "Limit must be set for non overcommitable resources"))
    given_names = limits.keys() | requests.keys()
    if any(map(_is_huge_pages, given_names)) and not {"cpu", "memory"} & given_names:
        found.append(forbidden(field, "HugePages require cpu or memory"))
    return found + _claims(f"{field}.claims", items(resources, "claims"), claim_names)


def _request_and_limit(field: str, name: str, amount: Quantity | None, limit: Quantity | None) -> list[FieldError]:
    if amount is None or limit is None or amount == limit:
        return []
    if not is_overcommittable(name):
        return [invalid(field, str(amount), f"must be equal to {name} limit of {limit}")]
    if amount > limit:
        return [invalid(field, str(amount), f"must be less than or equal to {name} limit of {limit}")]
    return []


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
        if (name, "") in seen:  # with all of its requests
            found.append(duplicate(f"{field}[{index}]", name))
        elif (name, request) in seen or (not request and any(other == name for other, _ in seen)):
            # Naming the whole claim and one of its requests says the same thing twice.
            found.append(duplicate(f"{field}[{index}]", shown))
        if request and (name, "") not in seen:
            found += label_name(f"{field}[{index}].request", request)
        seen.add((name, request))
        if name not in known:
            named = f": {', '.join(sorted(known))}" if known else " which is empty"
            why = f"must be one of the names in pod.spec.resourceClaims{named}"
            found.append(replace(not_found(f"{field}[{index}]", name), detail=why))
    return found


def validate_pod_resources(field: str, spec: Obj, claim_names: Collection[str]) -> list[FieldError]:
    """Pod-level requests and limits (KEP 2837): cpu, memory and huge pages, at least what containers want."""
    resources = part(spec, "resources")
    if part(spec, "os").get("name") == "windows":
        return [forbidden(field, "may not be set for a windows pod")]
    found: list[FieldError] = []
    if resources.get("claims") is not None:
        found.append(forbidden(f"{field}.claims", "claims may not be set for Resources at pod-level"))
    wrong = validate_requirements(field, resources, claim_names, _pod_resource_name)
    found += wrong
    try:
        return found + _consistent(field, spec)
    except ValueError:  # an amount that is none, told above or at its container
        return found


def _consistent(field: str, spec: Obj) -> list[FieldError]:
    """Compare what the pod asks for as a whole with what its containers ask for."""
    alone = {"spec": {name: value for name, value in spec.items() if name not in ("resources", "overhead")}}
    whole = {side: parse_resource_list(part(spec["resources"], side)) for side in ("requests", "limits")}
    found: list[FieldError] = []
    for side, together in (("requests", pod_requests(alone)), ("limits", pod_limits(alone))):
        for name, amount in together.items():
            given = whole[side].get(name)
            if given is None or amount <= given or (side == "limits" and not _is_huge_pages(name)):
                continue
            why = f"must be greater than or equal to aggregate container {side} of {amount}"
            found.append(invalid(f"{field}.{side}[{name}]", str(given), why))
    for index, container in enumerate(items(spec, "containers")):
        for name, amount in parse_resource_list(part(part(container, "resources"), "limits")).items():
            given = whole["limits"].get(name)
            if given is not None and amount > given:
                why = f"must be less than or equal to pod limits of {given}"
                found.append(invalid(f"{field}.containers[{index}][{name}].limits", str(amount), why))
    return found
