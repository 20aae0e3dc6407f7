"""Containers of a pod: names, images, ports, environment, probes, mounts, security (core/v1)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_found, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import (
    each_message,
    in_range,
    indexed,
    items,
    not_negative,
    one_of,
    part,
    port,
    positive,
    required_label,
    required_subdomain,
    unique,
)
from haru.kube.validation.resources import validate_requirements
from haru.kube.validation.volumes import field_reference

PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULL_POLICIES = ("Always", "IfNotPresent", "Never")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_ONLY_RESTARTABLE = "may not be set for init containers without restartPolicy=Always"
_NOT_EPHEMERAL_STRUCTS = ("livenessProbe", "readinessProbe", "startupProbe", "lifecycle", "restartPolicy")
_NOT_EPHEMERAL = ("ports", "resources", "resizePolicy", "restartPolicyRules")
_HEADER_FORMAT = "[-A-Za-z0-9]+"
_HEADER = re.compile(_HEADER_FORMAT)
_MAX_ID = 2**32 - 1


@dataclass(frozen=True, slots=True)
class PodParts:
    """Parts of a pod that containers refer to: volumes, claims, settings of all containers."""

    volumes: Collection[str]
    claims: Collection[str]
    restart_policy: str
    grace_period: int | None


def validate_containers(field: str, containers: Sequence[Obj], pod: PodParts) -> list[FieldError]:
    """The regular containers: at least one."""
    if not containers:
        return [required(field)]
    found: list[FieldError] = []
    for index, container in enumerate(containers):
        place = f"{field}[{index}]"
        found += _common(place, container, pod)
        found += _probes(place, container, pod)
        if container.get("restartPolicy"):
            found += _container_restart(place, container)
    found += unique(field, containers, lambda c: c.get("name") or "", ".name")
    return found + _host_ports(field, containers)


def validate_init_containers(
    field: str, containers: Sequence[Obj], regular: Sequence[Obj], pod: PodParts
) -> list[FieldError]:
    """Init containers; those that restart always are sidecars and may have probes."""
    found: list[FieldError] = []
    taken = {container.get("name") for container in regular}
    for index, container in enumerate(containers):
        place = f"{field}[{index}]"
        found += _common(place, container, pod)
        name = container.get("name")
        if name in taken:
            found.append(duplicate(f"{place}.name", name))
        elif name:
            taken.add(name)
        found += one_of(
            f"{place}.restartPolicy", container.get("restartPolicy"), ("Always", "Never", "OnFailure"), optional=True
        )
        found += _host_ports(field, [container])
        if container.get("restartPolicy") == "Always":
            found += _probes(place, container, pod)
            continue
        for member in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
            if container.get(member) is not None:
                found.append(forbidden(f"{place}.{member}", _ONLY_RESTARTABLE))
    return found


def validate_ephemeral_containers(
    field: str, containers: Sequence[Obj], others: Sequence[Obj], pod: PodParts
) -> list[FieldError]:
    """Ephemeral containers: no ports, probes or resources, and so no claims."""
    found: list[FieldError] = []
    other_names = {container.get("name") for container in others}
    taken = set(other_names)
    for index, container in enumerate(containers):
        place = f"{field}[{index}]"
        found += _common(place, container, pod)
        name, target = container.get("name"), container.get("targetContainerName")
        if name in taken:
            found.append(duplicate(f"{place}.name", name))
        taken.add(name)
        if target and target not in other_names:
            found.append(not_found(f"{place}.targetContainerName", target))
        given = [member for member in _NOT_EPHEMERAL if container.get(member)]
        given += [member for member in _NOT_EPHEMERAL_STRUCTS if container.get(member) is not None]
        for number, mount in enumerate(items(container, "volumeMounts")):
            given += [f"volumeMounts[{number}].{member}" for member in ("subPath", "subPathExpr") if mount.get(member)]
        found += [forbidden(f"{place}.{member}", "cannot be set for an Ephemeral Container") for member in given]
    return found


def _container_restart(field: str, container: Obj) -> list[FieldError]:
    found = one_of(f"{field}.restartPolicy", container["restartPolicy"], ("Always", "Never", "OnFailure"))
    for index, rule in enumerate(items(container, "restartPolicyRules")):
        found += one_of(f"{field}.restartPolicyRules[{index}].action", rule.get("action"), ("Restart",))
    return found


def _common(field: str, container: Obj, pod: PodParts) -> list[FieldError]:
    found = required_label(f"{field}.name", container.get("name") or "")
    image = container.get("image") or ""
    if not image:
        found.append(required(f"{field}.image"))
    elif image != image.strip():
        found.append(invalid(f"{field}.image", image, "must not have leading or trailing whitespace"))
    policies = ("FallbackToLogsOnError", "File")
    found += one_of(f"{field}.terminationMessagePolicy", container.get("terminationMessagePolicy"), policies)
    found += _ports(f"{field}.ports", items(container, "ports"))
    found += indexed(f"{field}.env", items(container, "env"), _variable)
    found += indexed(f"{field}.envFrom", items(container, "envFrom"), _variables_from)
    found += _mounts(f"{field}.volumeMounts", items(container, "volumeMounts"), pod)
    for index, device in enumerate(items(container, "volumeDevices")):
        found += _device(f"{field}.volumeDevices[{index}]", device, pod)
    found += one_of(f"{field}.imagePullPolicy", container.get("imagePullPolicy"), _PULL_POLICIES)
    found += validate_requirements(f"{field}.resources", part(container, "resources"), pod.claims)
    found += _resize_policies(f"{field}.resizePolicy", items(container, "resizePolicy"), pod)
    return found + _security(f"{field}.securityContext", part(container, "securityContext"))


def _ports(field: str, ports: Sequence[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, entry in enumerate(ports):
        place = f"{field}[{index}]"
        name = entry.get("name")
        if name:
            wrong = each_message(f"{place}.name", name, names.is_port_name(name))
            found += wrong or ([duplicate(f"{place}.name", name)] if name in seen else [])
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


# --- environment ---------------------------------------------------------------------------------------------------

_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)


def _variable(field: str, variable: Obj) -> list[FieldError]:
    name = variable.get("name") or ""
    place = f"{field}.name"
    found = each_message(place, name, names.is_env_var_name(name)) if name else [required(place)]
    source = variable.get("valueFrom")
    if source is None:
        return found
    place = f"{field}.valueFrom"
    present = [member for member in _SOURCES if source.get(member) is not None]
    if source.get("fieldRef") is not None:
        found += field_reference(f"{place}.fieldRef", source["fieldRef"], _ENV_FIELDS)
    if source.get("resourceFieldRef") is not None and not source["resourceFieldRef"].get("resource"):
        found.append(required(f"{place}.resourceFieldRef.resource"))
    for member in ("configMapKeyRef", "secretKeyRef"):
        if source.get(member) is not None:
            found += _key_reference(f"{place}.{member}", source[member])
    if not present:
        listed = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        found.append(invalid(place, "", f"must specify one of: {listed}"))
    elif variable.get("value"):
        found.append(invalid(place, "", "may not be specified when `value` is not empty"))
    elif len(present) > 1:
        found.append(invalid(place, "", "may not have more than one field specified at a time"))
    return found


def _key_reference(field: str, reference: Obj) -> list[FieldError]:
    found = [] if reference.get("name") else [required(f"{field}.name")]
    key = reference.get("key") or ""
    return found + (
        each_message(f"{field}.key", key, names.is_config_map_key(key)) if key else [required(f"{field}.key")]
    )


def _variables_from(field: str, source: Obj) -> list[FieldError]:
    present = [member for member in ("configMapRef", "secretRef") if source.get(member) is not None]
    found: list[FieldError] = []
    for member in present:
        found += required_subdomain(f"{field}.{member}.name", source[member].get("name") or "")
    if not present:
        found.append(invalid(field, "", "must specify one of: `configMapRef` or `secretRef`"))
    elif len(present) > 1:
        found.append(invalid(field, "", "may not have more than one field specified at a time"))
    return found


# --- mounts, devices, probes, security -----------------------------------------------------------------------------


def _mounts(field: str, mounts: Sequence[Obj], pod: PodParts) -> list[FieldError]:
    found: list[FieldError] = []
    paths: set[str] = set()
    for index, mount in enumerate(mounts):
        place = f"{field}[{index}]"
        name, path = mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            found.append(required(f"{place}.name"))
        elif name not in pod.volumes:
            found.append(not_found(f"{place}.name", name))
        if not path:
            found.append(required(f"{place}.mountPath"))
        if path in paths:
            found.append(invalid(f"{place}.mountPath", path, "must be unique"))
        paths.add(path)
        found += _local_path(f"{place}.subPath", mount.get("subPath") or "")
        if mount.get("subPathExpr") and mount.get("subPath"):
            found.append(
                invalid(f"{place}.subPathExpr", mount["subPathExpr"], "subPathExpr and subPath are mutually exclusive")
            )
        modes = ("Bidirectional", "HostToContainer", "None")
        found += one_of(f"{place}.mountPropagation", mount.get("mountPropagation"), modes, optional=True)
    return found


def _local_path(field: str, path: str) -> list[FieldError]:
    found = [invalid(field, path, "must be a relative path")] if path.startswith("/") else []
    return [*found, invalid(field, path, "must not contain '..'")] if ".." in path.split("/") else found


def _device(field: str, device: Obj, pod: PodParts) -> list[FieldError]:
    found: list[FieldError] = []
    name = device.get("name") or ""
    if not name:
        found.append(required(f"{field}.name"))
    elif name not in pod.volumes:
        found.append(not_found(f"{field}.name", name))
    if not device.get("devicePath"):
        found.append(required(f"{field}.devicePath"))
    return found


def _probes(field: str, container: Obj, pod: PodParts) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("postStart", "preStop"):
        hook = part(container, "lifecycle").get(name)
        if hook is not None:
            found += _handler(f"{field}.lifecycle.{name}", hook, pod.grace_period)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe = container.get(name)
        if probe is not None:
            found += _probe(f"{field}.{name}", probe, name)
    return found


def _probe(field: str, probe: Obj, name: str) -> list[FieldError]:
    found = _handler(field, probe, None)
    for member in ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"):
        found += not_negative(f"{field}.{member}", probe.get(member))
    if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
        found.append(invalid(f"{field}.successThreshold", probe["successThreshold"], "must be 1"))
    grace = probe.get("terminationGracePeriodSeconds")
    if name == "readinessProbe" and grace is not None:
        found.append(invalid(f"{field}.terminationGracePeriodSeconds", grace, "must not be set for readinessProbes"))
    return found + positive(f"{field}.terminationGracePeriodSeconds", grace if name != "readinessProbe" else None)


def _handler(field: str, handler: Obj, grace_period: int | None) -> list[FieldError]:
    present = [name for name in _HANDLERS if handler.get(name) is not None]
    if not present:
        return [required(field, "must specify a handler type")]
    extra = [forbidden(f"{field}.{name}", "may not specify more than 1 handler type") for name in present[1:]]
    kind = present[0]
    action, place = handler[kind], f"{field}.{kind}"
    if kind == "exec":
        return ([] if action.get("command") else [required(f"{place}.command")]) + extra
    if kind == "sleep":
        seconds = action.get("seconds") or 0
        if grace_period is not None and not 0 <= seconds <= grace_period:
            why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_period})"
            return [invalid(place, seconds, why), *extra]
        return extra
    found = port(f"{place}.port", action.get("port") or 0)
    if kind == "httpGet":
        if not action.get("path"):
            found.append(required(f"{place}.path"))
        if action.get("scheme") not in ("HTTP", "HTTPS"):
            found.append(not_supported(f"{place}.scheme", action.get("scheme") or "", ("HTTP", "HTTPS")))
        for header in items(action, "httpHeaders"):
            if not _HEADER.fullmatch(header.get("name") or ""):
                message = "a valid HTTP header must consist of alphanumeric characters or '-'"
                why = names.regex_error(message, _HEADER_FORMAT, "X-Header-Name")
                found.append(invalid(f"{place}.httpHeaders", header.get("name") or "", why))
    return found + extra


def _resize_policies(field: str, policies: Sequence[Obj], pod: PodParts) -> list[FieldError]:
    found = unique(field, policies, lambda policy: policy.get("resourceName"))
    for policy in policies:
        found += one_of(field, policy.get("resourceName"), ("cpu", "memory"))
        found += one_of(field, policy.get("restartPolicy"), ("NotRequired", "RestartContainer"))
        if pod.restart_policy == "Never" and policy.get("restartPolicy") == "RestartContainer":
            why = "must be 'NotRequired' when `restartPolicy` is 'Never'"
            found.append(invalid(field, policy["restartPolicy"], why))
    return found


def _security(field: str, context: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("runAsUser", "runAsGroup"):
        found += in_range(f"{field}.{name}", context.get(name), 0, _MAX_ID)
    privileged = bool(context.get("privileged"))
    if context.get("allowPrivilegeEscalation") is False:
        why = "cannot set `allowPrivilegeEscalation` to false and `{}` to true"
        if privileged:
            found.append(invalid(field, context, why.format("privileged")))
        if "CAP_SYS_ADMIN" in items(part(context, "capabilities"), "add"):
            why = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            found.append(invalid(field, context, why))
    profile = part(context, "seccompProfile")
    return found + seccomp(f"{field}.seccompProfile", profile)


def seccomp(field: str, profile: Obj) -> list[FieldError]:
    """A seccomp profile."""
    if not profile:
        return []
    found = one_of(f"{field}.type", profile.get("type"), ("Localhost", "RuntimeDefault", "Unconfined"))
    if profile.get("type") == "Localhost":
        if not profile.get("localhostProfile"):
            found.append(required(f"{field}.localhostProfile", "must be set when seccomp type is Localhost"))
    elif profile.get("localhostProfile"):
        why = "can only be set when seccomp type is Localhost"
        found.append(invalid(f"{field}.localhostProfile", profile["localhostProfile"], why))
    return found
