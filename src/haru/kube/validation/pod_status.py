"""A Pod's status: restarts are not undone, the QoS class stays, names of claims and containers are the pod's own."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Sequence
from typing import Any, Final

from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from haru.kube.meta import Obj
from haru.kube.names import is_native_resource
from haru.kube.quantity import Quantity, parse_quantity
from haru.kube.validation.common import (
    address,
    immutable,
    in_range,
    items,
    label_key,
    label_name,
    part,
    subdomain,
)
from haru.kube.validation.pods import validate_annotations_change

_SYSTEM_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")
_HEALTH: Final = ("Healthy", "Unhealthy", "Unknown")
_MAX_HEALTH_MESSAGE: Final = 1024
_MAX_ID: Final = 2**31 - 1
_NOT_NEGATIVE: Final = "must be a non-negative integer"
_RUNS_AGAIN: Final = "may not be transitioned to non-terminated state"
_STATUSES: Final = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
)
_UNREADABLE: Final = "failed to check for dual stack with error:invalid IP[{place}]: {text}"
_ONE_PER_FAMILY: Final = "may specify no more than one IP for each IP family"


def validate_pod_status(new: Obj, old: Obj) -> list[FieldError]:
    """A write to a Pod's status."""
    status, before, spec = part(new, "status"), part(old, "status"), part(new, "spec")
    found = validate_annotations_change(new, old) + _conditions(items(status, "conditions"))
    if spec.get("nodeName") != part(old, "spec").get("nodeName"):
        found.append(forbidden("status.nodeName", "may not be changed directly"))
    found += _nominated(status, before, part(old, "spec"))
    generation = status.get("observedGeneration") or 0
    if generation < 0:
        found.append(invalid("status.observedGeneration", generation, _NOT_NEGATIVE))
    found += immutable("status.qosClass", status.get("qosClass"), before.get("qosClass"))
    found += _transitions(status, before, part(old, "spec"))
    found += _claim_statuses(items(status, "resourceClaimStatuses"), spec)
    found += _extended_resources("status.extendedResourceClaimStatus", status, spec)
    found += _node_resources("status.nodeAllocatableResourceClaimStatuses", status, spec)
    return found + _addresses(status, before) + _container_statuses(status, spec)


def _conditions(conditions: Sequence[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    for index, condition in enumerate(conditions):
        place, generation = f"status.conditions[{index}]", condition.get("observedGeneration") or 0
        if generation < 0:
            found.append(invalid(f"{place}.observedGeneration", generation, _NOT_NEGATIVE))
        if condition.get("type") not in _SYSTEM_CONDITIONS:
            found += label_key(f"{place}.Type", condition.get("type") or "")
    return found


def _nominated(status: Obj, before: Obj, spec: Obj) -> list[FieldError]:
    name, field = status.get("nominatedNodeName") or "", "status.nominatedNodeName"
    if not name or name == (before.get("nominatedNodeName") or ""):
        return []
    found = subdomain(field, name)
    if spec.get("nodeName"):
        found.append(forbidden(field, "may not be set on pods that are already bound to a node"))
    return found


# --- containers that ended


def _transitions(status: Obj, before: Obj, spec: Obj) -> list[FieldError]:
    """A container that ended for good does not run again."""
    together = any(
        rule.get("action") == "RestartAllContainers"
        for member in ("initContainers", "containers")
        for container in items(spec, member)
        for rule in items(container, "restartPolicyRules")
    )
    found: list[FieldError] = []
    for name, member in _STATUSES[2:] if together else _STATUSES:
        containers = {one.get("name"): one for one in reversed(items(spec, member))}
        now: dict[str | None, Obj] = {one.get("name"): one for one in reversed(items(status, name))}
        for index, previous in enumerate(items(before, name)):
            ended, successor = part(previous, "state").get("terminated"), now.get(previous.get("name"))
            if ended is None or successor is None or part(successor, "state").get("terminated") is not None:
                continue
            container = containers.get(previous.get("name")) if member != "ephemeralContainers" else None
            if container is None or not _restarts(container, spec, ended.get("exitCode") or 0):
                found.append(forbidden(f"status.{name}[{index}].state", _RUNS_AGAIN))
    return found


def _restarts(container: Obj, spec: Obj, exit_code: int) -> bool:
    """Whether a container that ended with this code is started again."""
    policy = container.get("restartPolicy")
    if policy is not None:
        for rule in items(container, "restartPolicyRules"):
            codes = part(rule, "exitCodes")
            operator = codes.get("operator")
            if operator in ("In", "NotIn") and (exit_code in items(codes, "values")) == (operator == "In"):
                return True
    policy = policy if policy in ("Always", "OnFailure", "Never") else spec.get("restartPolicy")
    return {"OnFailure": exit_code != 0, "Never": False}.get(policy or "", True)


# --- claims


def _claim_statuses(statuses: Sequence[Obj], spec: Obj) -> list[FieldError]:
    known = {claim.get("name") for claim in items(spec, "resourceClaims")}
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, status in enumerate(statuses):
        place, name = f"status.resourceClaimStatuses[{index}]", status.get("name") or ""
        if name not in known:
            found.append(invalid(f"{place}.name", name, "must match the name of an entry in `spec.resourceClaims`"))
        if name in seen:
            found.append(duplicate(f"{place}.name", name))
        seen.add(name)
        if status.get("resourceClaimName") is not None:
            found += subdomain(f"{place}.resourceClaimName", status["resourceClaimName"])
    return found


def _extended_resources(field: str, status: Obj, spec: Obj) -> list[FieldError]:
    """The claim that stands for extended resources, and which request serves which container (KEP 5004)."""
    claim = status.get("extendedResourceClaimStatus")
    if claim is None:
        return []
    containers = {one.get("name"): one for name in ("initContainers", "containers") for one in items(spec, name)}
    mappings, name = items(claim, "requestMappings"), claim.get("resourceClaimName") or ""
    found = [] if mappings else [required(f"{field}.requestMappings", "at least one request mapping is required")]
    seen: set[tuple[str, str, str]] = set()
    for index, mapping in enumerate(mappings):
        place = f"{field}.requestMappings[{index}]"
        key = tuple(mapping.get(member) or "" for member in ("containerName", "resourceName", "requestName"))
        container, resource, request = key
        if container not in containers:
            why = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            found.append(invalid(f"{place}.containerName", container, why))
        elif resource not in part(part(containers[container], "resources"), "requests"):
            why = "must match the extended resource name of an entry in the requests of the container"
            found.append(invalid(f"{place}.resourceName", resource, why))
        found += label_name(f"{field}.requestName", request)
        if (container, resource, request) in seen:
            members = ("containerName", "resourceName", "requestName")
            found += [duplicate(f"{place}.{member}", value) for member, value in zip(members, key, strict=True)]
        seen.add((container, resource, request))
    place = f"{field}.resourceClaimName"
    return found + (subdomain(place, name) if name else [required(place)])


def _node_resources(field: str, status: Obj, spec: Obj) -> list[FieldError]:
    """Node resources that the devices of a claim take (KEP 5517)."""
    known = {claim.get("resourceClaimName") for claim in items(spec, "resourceClaims")}
    known |= {claim.get("resourceClaimName") for claim in items(status, "resourceClaimStatuses")}
    found: list[FieldError] = []
    for index, taken in enumerate(items(status, "nodeAllocatableResourceClaimStatuses")):
        place, name = f"{field}[{index}]", taken.get("resourceClaimName") or ""
        amounts = part(taken, "resources")
        if not name:
            found.append(required(f"{place}.resourceClaimName", "must not be empty"))
        if name not in known:
            found.append(invalid(f"{place}.resourceClaimName", name, "no mapping found in pod reference"))
        for member in ("containers", "resources"):
            found += [] if taken.get(member) else [required(f"{place}.{member}", "must not be empty")]
        for resource, value in amounts.items():
            here = f"{place}.resources[{resource}]"
            if not is_native_resource(resource):
                found.append(invalid(here, resource, "must be a node allocatable resource name"))
            if parse_quantity(value) < Quantity(0):
                found.append(invalid(here, value, "must be non-negative"))
    return found


# --- addresses, and what containers have


def _addresses(status: Obj, before: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    hosts = items(status, "hostIPs")
    if hosts and (hosts[0].get("ip") or "") != (status.get("hostIP") or ""):
        found.append(invalid("status.hostIPs[0].ip", hosts[0].get("ip") or "", "must be equal to `hostIP`"))
    for name in ("podIPs", "hostIPs"):
        field, given = f"status.{name}", [one.get("ip") or "" for one in items(status, name)]
        known = [one.get("ip") or "" for one in items(before, name)]
        for index, ip in enumerate(given):
            found += address(f"{field}[{index}]", ip, known)
        found += one_per_family(field, given, _ONE_PER_FAMILY, ipaddress.ip_address, _UNREADABLE)
    return found


def one_per_family(
    field: str, given: Sequence[str], why: str, parse: Callable[[str], Any], unreadable: str
) -> list[FieldError]:
    """At most one address (or network) of IPv4 and one of IPv6; `unreadable`: told of the first that is none."""
    if len(given) < 2:
        return []
    families = set()
    found = list[FieldError]()
    for place, text in enumerate(given):
        try:
            families.add(parse(text).version)
        except ValueError:
            found = [FieldError("InternalError", field, None, unreadable.format(place=place, text=text))]
            break
    return found if not found and len(families) == len(given) else [*found, invalid(field, list(given), why)]


def _container_statuses(status: Obj, spec: Obj) -> list[FieldError]:
    on_windows = part(spec, "os").get("name") == "windows"
    found: list[FieldError] = []
    for name, member in _STATUSES:
        containers = {one.get("name"): one for one in items(spec, member)}
        for index, one in enumerate(items(status, name)):
            place = f"status.{name}[{index}]"
            user = part(one, "user").get("linux")
            if user is not None:
                found += _user(f"{place}.user.linux", user, on_windows=on_windows)
            allocated = items(one, "allocatedResourcesStatus")
            if name == "ephemeralContainerStatuses" and allocated:
                found.append(
                    forbidden(f"{place}.allocatedResourcesStatus", "must not be specified in container status")
                )
            elif allocated:
                found += _allocated(f"{place}.allocatedResourcesStatus", allocated, containers.get(one.get("name")))
    return found


def _user(field: str, user: Obj, *, on_windows: bool) -> list[FieldError]:
    if on_windows:
        return [forbidden(field, "cannot be set for a windows pod")]
    found = [e for name in ("uid", "gid") for e in in_range(f"{field}.{name}", user.get(name), 0, _MAX_ID)]
    for index, group in enumerate(items(user, "supplementalGroups")):
        found += in_range(f"{field}.supplementalGroups[{index}]", group, 0, _MAX_ID)
    return found


def _allocated(field: str, allocated: Sequence[Obj], container: Obj | None) -> list[FieldError]:
    """The health of devices: of a claim or a resource that the container has."""
    resources = part(container, "resources")
    claims = {f"claim:{'/'.join(filter(None, (c.get('name'), c.get('request'))))}" for c in items(resources, "claims")}
    found: list[FieldError] = []
    for index, one in enumerate(allocated):
        place, name = f"{field}[{index}]", one.get("name") or ""
        known = claims if name.startswith("claim:") else part(resources, "requests")
        if container is not None and name not in known:
            why = "must match one of the container's resource claims or requests"
            found.append(invalid(f"{place}.name", name, why))
        seen: set[str] = set()
        for number, device in enumerate(items(one, "resources")):
            here, identity = f"{place}.resources[{number}]", device.get("resourceID") or ""
            found += _health(here, device)
            if identity in seen:
                found.append(duplicate(f"{here}.resourceID", identity))
            seen.add(identity)
    return found


def _health(field: str, device: Obj) -> list[FieldError]:
    health, message = device.get("health") or "", device.get("message")
    found = [] if health in _HEALTH else [not_supported(f"{field}.health", health, _HEALTH)]
    if message == "":
        found.append(required(f"{field}.message", "must be non-empty if specified"))
    elif message is not None and len(message.encode()) > _MAX_HEALTH_MESSAGE:
        found.append(too_long(f"{field}.message", _MAX_HEALTH_MESSAGE))
    return found
