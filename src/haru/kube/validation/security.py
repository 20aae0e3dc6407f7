"""Security contexts of pods and containers: users, seccomp, AppArmor, sysctls (core/v1)."""

from __future__ import annotations

import re
from typing import Final

from haru.kube.errors import FieldError, duplicate, forbidden, invalid, not_supported, required, too_long
from haru.kube.meta import Obj
from haru.kube.pod_security.templates import template_of
from haru.kube.validation.common import in_range, items, known_value, local_path, part
from haru.kube.validation.types import Rules
from haru.kube.validation.windows import validate_windows_options

_MAX_ID: Final = 2**31 - 1
_PROFILE_TYPES: Final = ("Localhost", "RuntimeDefault", "Unconfined")
_MAX_PROFILE: Final = 4095
_SYSCTL: Final = re.compile(r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$")
_MAX_SYSCTL: Final = 253
_IPC_SYSCTLS: Final = re.compile(
    r"kernel\.(?:sem|shmall|shmmax|shmmni|shm_rmid_forced|shm|msgmax|msgmnb|msgmni|msg)|fs\.mqueue\..*", re.DOTALL
)
# Members of a pod's security context that are one of a closed set.
_CHOICES: Final = (
    ("fsGroupChangePolicy", ("Always", "OnRootMismatch")),
    ("supplementalGroupsPolicy", ("Merge", "Strict")),
)
_SEPARATE: Final = ("hostNetwork", "hostPID", "hostIPC")


def validate_pod_security(field: str, spec: Obj, rules: Rules) -> list[FieldError]:
    """The security context of a pod, and the members of its spec that 1.36 counts to it."""
    context = part(spec, "securityContext")
    place = f"{field}.securityContext"
    found: list[FieldError] = []
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        found += in_range(f"{place}.{name}", context.get(name), 0, _MAX_ID)
    for index, group in enumerate(items(context, "supplementalGroups")):
        found += in_range(f"{place}.supplementalGroups[{index}]", group, 0, _MAX_ID)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        why = "ShareProcessNamespace and HostPID cannot both be enabled"
        found.append(invalid(f"{place}.shareProcessNamespace", True, why))
    found += _sysctls(f"{place}.sysctls", spec, items(context, "sysctls"))
    for name, supported in _CHOICES:
        value = context.get(name)
        if value is not None and value not in supported:
            found.append(not_supported(f"{place}.{name}", value, supported))
    found += _change_policy(f"{place}.seLinuxChangePolicy", context.get("seLinuxChangePolicy"), rules)
    return found + _profiles(place, context)


def _says_change_policy(stored: Obj | None) -> bool:
    if stored is None:
        return False
    spec = part(template_of(stored) or stored, "spec")
    return part(spec, "securityContext").get("seLinuxChangePolicy") is not None


def _change_policy(field: str, policy: str | None, rules: Rules) -> list[FieldError]:
    """How a volume gets its SELinux label: by mounting only where the gate is on, or the stored object says how."""
    if policy is None or policy == "Recursive":
        return []
    every = rules.gates.enabled("SELinuxMount") or _says_change_policy(rules.stored)
    return known_value(field, policy, ("MountOption", "Recursive") if every else ("Recursive",))


def validate_container_security(field: str, context: Obj, *, host_users: bool) -> list[FieldError]:
    """The security context of a container."""
    found: list[FieldError] = []
    for name in ("runAsUser", "runAsGroup"):
        found += in_range(f"{field}.{name}", context.get(name), 0, _MAX_ID)
    mount = context.get("procMount")
    if mount is not None and mount not in ("Default", "Unmasked"):
        found.append(not_supported(f"{field}.procMount", mount, ("Default", "Unmasked")))
    if mount == "Unmasked" and host_users:
        found.append(invalid(f"{field}.procMount", mount, "`hostUsers` must be false to use `Unmasked`"))
    if context.get("allowPrivilegeEscalation") is False:
        why = "cannot set `allowPrivilegeEscalation` to false and "
        if context.get("privileged"):
            found.append(invalid(field, context, f"{why}`privileged` to true"))
        if "CAP_SYS_ADMIN" in items(part(context, "capabilities"), "add"):
            found.append(invalid(field, context, f"{why}`capabilities.Add` CAP_SYS_ADMIN"))
    return found + _profiles(field, context)


def validate_user_namespace(field: str, spec: Obj) -> list[FieldError]:
    """What a pod with users of its own may not share with its node."""
    if spec.get("hostUsers") is not False:
        return []
    why = "when `hostUsers` is false"
    found = [
        forbidden(f"{field}.{name if name == 'hostNetwork' else name[0].upper() + name[1:]}", why)
        for name in _SEPARATE
        if spec.get(name)
    ]
    for member in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(items(spec, member)):
            if items(container, "volumeDevices"):
                found.append(forbidden(f"{field}.{member}[{index}].volumeDevices", why))
    return found


def _profiles(field: str, context: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    if context.get("seccompProfile") is not None:
        found += _seccomp(f"{field}.seccompProfile", context["seccompProfile"])
    if context.get("appArmorProfile") is not None:
        found += _app_armor(f"{field}.appArmorProfile", context["appArmorProfile"])
    if context.get("windowsOptions") is not None:
        found += validate_windows_options(f"{field}.windowsOptions", context["windowsOptions"])
    return found


def _profile_type(field: str, kind: str, what: str) -> list[FieldError]:
    if not kind:
        return [required(field, f"type is required when {what} is set")]
    return [] if kind in _PROFILE_TYPES else [not_supported(field, kind, _PROFILE_TYPES)]


def _seccomp(field: str, profile: Obj) -> list[FieldError]:
    kind, path = profile.get("type") or "", profile.get("localhostProfile")
    found = _profile_type(f"{field}.type", kind, "seccompProfile")
    place = f"{field}.localhostProfile"
    if kind != "Localhost":
        if path is not None:
            found.append(invalid(place, profile, "can only be set when seccomp type is Localhost"))
        return found
    if path is None:
        return [*found, required(place, "must be set when seccomp type is Localhost")]
    return found + local_path(place, path)


def _app_armor(field: str, profile: Obj) -> list[FieldError]:
    kind, name = profile.get("type") or "", profile.get("localhostProfile")
    place = f"{field}.localhostProfile"
    if kind != "Localhost":
        found = _profile_type(f"{field}.type", kind, "appArmorProfile")
        if name is not None and not found:
            found.append(invalid(place, name, "can only be set when AppArmor type is Localhost"))
        return found
    found = []
    if not name:
        found.append(required(place, "must be set when AppArmor type is Localhost"))
    elif name.strip() != name:
        found.append(invalid(place, name, "must not be padded with whitespace"))
    return [*found, too_long(place, _MAX_PROFILE)] if len((name or "").encode()) > _MAX_PROFILE else found


def _sysctls(field: str, spec: Obj, sysctls: list[Obj]) -> list[FieldError]:
    found: list[FieldError] = []
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        place, name = f"{field}[{index}].name", sysctl.get("name") or ""
        if not name:
            found.append(required(place))
        elif len(name) > _MAX_SYSCTL or not _SYSCTL.fullmatch(name):
            why = f"must have at most {_MAX_SYSCTL} characters and match regex {_SYSCTL.pattern}"
            found.append(invalid(place, name, why))
        elif name in seen:
            found.append(duplicate(place, name))
        found += _of_the_host(place, name, spec)
        seen.add(name)
    return found


def _of_the_host(field: str, name: str, spec: Obj) -> list[FieldError]:
    """A sysctl of a namespace that the pod shares with its node would change the node."""
    dotted = sysctl_with_dots(name).partition("*")[0]
    if spec.get("hostNetwork") and dotted.startswith("net."):
        return [invalid(field, name, "may not be specified when 'hostNetwork' is true")]
    if spec.get("hostIPC") and _IPC_SYSCTLS.fullmatch(dotted):
        return [invalid(field, name, "may not be specified when 'hostIPC' is true")]
    return []


def sysctl_with_dots(name: str) -> str:
    """The name with dots between its parts; where slashes separate them, dots and slashes change places."""
    separator = re.search(r"[./]", name)
    if separator is None or separator.group() == ".":
        return name
    return name.translate(str.maketrans("./", "/."))
