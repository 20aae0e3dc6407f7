"""Containers of a pod: names, images, ports, mounts, when they are restarted (core/v1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from haru.kube import names
from haru.kube.container_restarts import RESTART_ALL
from haru.kube.errors import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from haru.kube.meta import Obj
from haru.kube.validation.common import each_message, in_range, items, one_of, part, required_label
from haru.kube.validation.environment import validate_environment
from haru.kube.validation.mounts import validate_devices, validate_mounts
from haru.kube.validation.probes import validate_probes
from haru.kube.validation.resources import validate_requirements
from haru.kube.validation.security import validate_container_security

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
_MESSAGE_POLICIES: Final = ("File", "FallbackToLogsOnError")
_RESTART_POLICIES: Final = ("Always", "Never", "OnFailure")
_RESTART_ACTIONS: Final = ("Restart", RESTART_ALL)
_NO_RULES: Final = "restartPolicyRules are not allowed for init containers with restart policy Always"
_EXIT_CODE_OPERATORS: Final = ("In", "NotIn")
_MAX_RESTART_RULES: Final = 20
_MAX_EXIT_CODES: Final = 255
_RESIZABLE: Final = ("cpu", "memory")
_RESIZE_POLICIES: Final = ("NotRequired", "RestartContainer")
_ONLY_RESTARTABLE: Final = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL: Final = (
    *("ports", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "resources", "resizePolicy"),
    *("restartPolicy", "restartPolicyRules"),
)


@dataclass(frozen=True, slots=True)
class PodParts:
    """Parts of a pod that its containers refer to, and settings of all containers."""

    volumes: Mapping[str, Obj]
    claims: Collection[str]
    restart_policy: str
    grace_period: int | None
    system: Obj | None
    host_users: bool
    restarts_all: bool = True
    """Whether a rule may restart all containers."""


def validate_containers(field: str, containers: Sequence[Obj], pod: PodParts) -> list[FieldError]:
    """The regular containers: at least one."""
    if not containers:
        return [required(field)]
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        place, name = f"{field}[{index}]", container.get("name") or ""
        found += _common(place, container, pod)
        if name in seen:
            found.append(duplicate(f"{place}.name", name))
        seen.add(name)
        found += validate_probes(place, container, pod.grace_period, pod.system)
        found += _restart(place, container, pod)
    return found + _host_ports(field, containers)


def validate_init_containers(
    field: str, containers: Sequence[Obj], regular: Sequence[Obj], pod: PodParts
) -> list[FieldError]:
    """Init containers; those that restart always are sidecars and may have probes."""
    found: list[FieldError] = []
    taken = {container.get("name") or "" for container in regular}
    for index, container in enumerate(containers):
        place, name = f"{field}[{index}]", container.get("name") or ""
        found += _common(place, container, pod)
        if container.get("restartPolicy") != "Always" or pod.restarts_all:
            found += _restart(place, container, pod)
        elif items(container, "restartPolicyRules"):
            found.append(forbidden(f"{place}.restartPolicyRules", _NO_RULES))
        if name in taken:
            found.append(duplicate(f"{place}.name", name))
        elif name:
            taken.add(name)
        found += _host_ports(field, [container])
        if container.get("restartPolicy") == "Always":
            found += validate_probes(place, container, pod.grace_period, pod.system)
        else:
            found += _only_once(place, container)
    return found


def _only_once(field: str, container: Obj) -> list[FieldError]:
    """What an init container may not have that ends before the others start."""
    found = [
        forbidden(f"{field}.{member}", _ONLY_RESTARTABLE)
        for member in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe")
        if container.get(member) is not None
    ]
    why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
    return found + [
        invalid(f"{field}.resizePolicy[{index}].restartPolicy", "RestartContainer", why)
        for index, policy in enumerate(items(container, "resizePolicy"))
        if policy.get("restartPolicy") == "RestartContainer"
    ]


def validate_ephemeral_containers(
    field: str, containers: Sequence[Obj], others: Sequence[Obj], pod: PodParts
) -> list[FieldError]:
    """Ephemeral containers: no ports, probes or resources, and so no claims."""
    found: list[FieldError] = []
    other_names = {container.get("name") or "" for container in others}
    taken = set(other_names)
    for index, container in enumerate(containers):
        place = f"{field}[{index}]"
        found += _common(place, container, pod) + trimmed_image(place, container)
        name, target = container.get("name") or "", container.get("targetContainerName")
        if name in taken:
            found.append(duplicate(f"{place}.name", name))
        taken.add(name)
        if target and target not in other_names:
            found.append(not_found(f"{place}.targetContainerName", target))
        given = [member for member in _NOT_EPHEMERAL if _is_given(container, member)]
        for number, mount in enumerate(items(container, "volumeMounts")):
            given += [f"volumeMounts[{number}].{member}" for member in ("subPath", "subPathExpr") if mount.get(member)]
        found += [forbidden(f"{place}.{member}", "cannot be set for an Ephemeral Container") for member in given]
    return found


def _is_given(container: Obj, member: str) -> bool:
    value = container.get(member)
    return value is not None and (member not in ("resources",) or value != {})


def trimmed_image(field: str, container: Obj) -> list[FieldError]:
    """The image of a Pod's container: without space around it, which templates were never checked for."""
    image = container.get("image") or ""
    if image == image.strip():
        return []
    return [invalid(f"{field}.image", image, "must not have leading or trailing whitespace")]


def _restart(field: str, container: Obj, pod: PodParts) -> list[FieldError]:
    policy, rules = container.get("restartPolicy"), items(container, "restartPolicyRules")
    found: list[FieldError] = []
    if policy is None and rules:
        why = "must specify restartPolicy when restart rules are used"
        found.append(required(f"{field}.restartPolicy", why))
    elif policy is not None and policy not in _RESTART_POLICIES:
        found.append(not_supported(f"{field}.restartPolicy", policy, _RESTART_POLICIES))
    if len(rules) > _MAX_RESTART_RULES:
        found.append(too_many(f"{field}.restartPolicyRules", len(rules), _MAX_RESTART_RULES))
    for index, rule in enumerate(rules):
        found += _restart_rule(f"{field}.restartPolicyRules[{index}]", rule, pod)
    return found


def _restart_rule(field: str, rule: Obj, pod: PodParts) -> list[FieldError]:
    action, codes = rule.get("action") or "", rule.get("exitCodes")
    actions = _RESTART_ACTIONS if pod.restarts_all else _RESTART_ACTIONS[:1]
    found = [] if action in actions else [not_supported(f"{field}.action", action, actions)]
    if codes is None:
        return [*found, required(f"{field}.exitCodes", "must be specified")]
    operator, values = codes.get("operator") or "", items(codes, "values")
    if operator not in _EXIT_CODE_OPERATORS:
        found.append(not_supported(f"{field}.exitCodes.operator", operator, _EXIT_CODE_OPERATORS))
    if len(values) > _MAX_EXIT_CODES:
        found.append(too_many(f"{field}.exitCodes.values", len(values), _MAX_EXIT_CODES))
    return found


def _common(field: str, container: Obj, pod: PodParts) -> list[FieldError]:
    found = required_label(f"{field}.name", container.get("name") or "")
    if not container.get("image"):
        found.append(required(f"{field}.image"))
    policy = container.get("terminationMessagePolicy")
    found += one_of(f"{field}.terminationMessagePolicy", policy, _MESSAGE_POLICIES, in_order=True)
    found += _ports(f"{field}.ports", items(container, "ports"))
    found += validate_environment(field, container)
    found += validate_mounts(f"{field}.volumeMounts", container, pod.volumes)
    found += validate_devices(f"{field}.volumeDevices", container, pod.volumes)
    found += pull_policy(f"{field}.imagePullPolicy", container.get("imagePullPolicy"))
    found += validate_requirements(f"{field}.resources", part(container, "resources"), pod.claims)
    found += _resize_policies(f"{field}.resizePolicy", items(container, "resizePolicy"), pod)
    context = container.get("securityContext")
    if context is None:
        return found
    return found + validate_container_security(f"{field}.securityContext", context, host_users=pod.host_users)


def pull_policy(field: str, policy: str | None) -> list[FieldError]:
    """When an image is pulled; defaulting has set it where nobody else did."""
    return one_of(field, policy, _PULL_POLICIES)


def _ports(field: str, ports: Sequence[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, entry in enumerate(ports):
        place = f"{field}[{index}]"
        name = entry.get("name")
        if name:
            wrong = each_message(f"{place}.name", name, names.is_port_name(name))
            found += wrong or ([duplicate(f"{place}.name", name)] if name in seen else [])
            if not wrong:
                seen.add(name)
        number = entry.get("containerPort") or 0
        found += (
            in_range(f"{place}.containerPort", number, 1, 65535) if number else [required(f"{place}.containerPort")]
        )
        if entry.get("hostPort"):
            found += in_range(f"{place}.hostPort", entry["hostPort"], 1, 65535)
        found += one_of(f"{place}.protocol", entry.get("protocol"), PROTOCOLS)
    return found


def _host_ports(field: str, containers: Sequence[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for number, entry in enumerate(items(container, "ports")):
            if not entry.get("hostPort"):
                continue
            key = f"{entry.get('protocol') or ''}/{entry.get('hostIP') or ''}/{entry['hostPort']}"
            if key in seen:
                found.append(duplicate(f"{field}[{index}].ports[{number}].hostPort", key))
            seen.add(key)
    return found


def _resize_policies(field: str, policies: Sequence[Obj], pod: PodParts) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName") or "", policy.get("restartPolicy") or ""
        if resource in seen:
            found.append(duplicate(f"{field}[{index}]", resource))
        seen.add(resource)
        found += one_of(field, resource, _RESIZABLE) + one_of(field, restart, _RESIZE_POLICIES)
        if pod.restart_policy == "Never" and restart != "NotRequired":
            why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            found.append(invalid(field, restart, why))
    return found
