"""Pods of one operating system: what those of Linux and of Windows may not say, and Windows' own options (core/v1)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from haru.kube import names
from haru.kube.errors import FieldError, forbidden, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import each_message, items, part

_SYSTEMS: Final = ("linux", "windows")
_NOT_FOR_WINDOWS: Final = "cannot be set for a windows pod"
_LINUX_SPEC: Final = ("hostUsers", "shareProcessNamespace")
_LINUX_SWITCHES: Final = ("hostPID", "hostIPC")
_LINUX_CONTEXT: Final = (
    *("appArmorProfile", "seLinuxOptions", "seccompProfile", "fsGroup", "fsGroupChangePolicy", "runAsUser"),
    *("runAsGroup", "supplementalGroups", "supplementalGroupsPolicy", "seLinuxChangePolicy"),
)
_LINUX_CONTAINER: Final = (
    *("appArmorProfile", "seLinuxOptions", "seccompProfile", "capabilities", "readOnlyRootFilesystem", "privileged"),
    *("allowPrivilegeEscalation", "procMount", "runAsUser", "runAsGroup"),
)
_MAX_SPEC_KIB: Final = 64
_MAX_DOMAIN: Final = 256
_MAX_USER: Final = 104
_NETBIOS: Final = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL: Final = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS_DOMAIN: Final = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_BAD_USER: Final = re.compile(r'["/\\:;|=,+*?<>@\[\]]')


def containers_with_places(field: str, spec: Obj) -> Iterator[tuple[str, Obj]]:
    """Every container of a pod with its path: init, regular, ephemeral."""
    for member in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(items(spec, member)):
            yield f"{field}.{member}[{index}]", container


def validate_system(field: str, spec: Obj) -> list[FieldError]:
    """The operating system that a pod names, and what does not go with it."""
    system = spec.get("os")
    if system is None:
        return []
    name = system.get("name") or ""
    if not name:
        return [required(f"{field}.os.name")]
    if name not in _SYSTEMS:
        return [not_supported(f"{field}.os", name, _SYSTEMS)]
    return _linux(field, spec) if name == "linux" else _windows(field, spec)


def _linux(field: str, spec: Obj) -> list[FieldError]:
    contexts = [(field, part(spec, "securityContext"))]
    contexts += [(place, part(one, "securityContext")) for place, one in containers_with_places(field, spec)]
    why = "windows options cannot be set for a linux pod"
    return [
        forbidden(f"{place}.securityContext.windowsOptions", why)
        for place, context in contexts
        if context.get("windowsOptions") is not None
    ]


def _windows(field: str, spec: Obj) -> list[FieldError]:
    context = part(spec, "securityContext")
    given = [name for name in _LINUX_SPEC if spec.get(name) is not None]
    given += [name for name in _LINUX_SWITCHES if spec.get(name)]
    given += [f"securityContext.{name}" for name in _LINUX_CONTEXT if context.get(name) is not None]
    given += ["securityContext.sysctls"] if items(context, "sysctls") else []
    found = [forbidden(f"{field}.{name}", _NOT_FOR_WINDOWS) for name in given]
    for place, container in containers_with_places(field, spec):
        found += [
            forbidden(f"{place}.securityContext.{name}", _NOT_FOR_WINDOWS)
            for name in _LINUX_CONTAINER
            if part(container, "securityContext").get(name) is not None
        ]
    return found


def validate_host_processes(field: str, spec: Obj) -> list[FieldError]:
    """Containers that are processes of a Windows node: all of a pod or none, on the network of the node."""
    whole = part(part(spec, "securityContext"), "windowsOptions").get("hostProcess")
    found: list[FieldError] = []
    on_host: list[bool] = []
    for place, container in containers_with_places(field, spec):
        own = part(part(container, "securityContext"), "windowsOptions").get("hostProcess")
        if None not in (whole, own) and whole != own:
            why = f"pod hostProcess value must be identical if both are specified, was {str(whole).lower()}"
            found.append(invalid(f"{place}.securityContext.windowsOptions.hostProcess", own, why))
        on_host.append(bool(whole if own is None else own))
    if not any(on_host):
        return found
    if not all(on_host):
        why = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        found.append(invalid(field, "", why))
    if not spec.get("hostNetwork"):
        why = "hostNetwork must be true if pod contains any hostProcess containers"
        found.append(invalid(f"{field}.hostNetwork", False, why))
    return found


def validate_windows_options(field: str, options: Obj) -> list[FieldError]:
    """Credentials and the user of a Windows container."""
    name, spec, user = (options.get(n) for n in ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName"))
    found: list[FieldError] = []
    if name is not None:
        found += each_message(f"{field}.gmsaCredentialSpecName", name, names.is_dns1123_subdomain(name))
    if spec == "":
        why = "gmsaCredentialSpec cannot be an empty string"
        found.append(invalid(f"{field}.gmsaCredentialSpec", spec, why))
    elif spec is not None and len(spec.encode()) > _MAX_SPEC_KIB * 1024:
        why = f"gmsaCredentialSpec size must be under {_MAX_SPEC_KIB} KiB"
        found.append(invalid(f"{field}.gmsaCredentialSpec", spec, why))
    if user is not None:
        found += [invalid(f"{field}.runAsUserName", user, f"runAsUserName{why}") for why in _user_problems(user)]
    return found


def _user_problems(text: str) -> list[str]:
    if not text:
        return [" cannot be an empty string"]
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
        return [" cannot contain control characters"]
    if text.count("\\") > 1:
        return [" cannot contain more than one backslash"]
    domain, backslash, user = text.rpartition("\\")
    problems: list[str] = []
    if len(domain.encode()) >= _MAX_DOMAIN:
        problems.append(f"'s Domain length must be under {_MAX_DOMAIN} characters")
    if backslash and not (_NETBIOS.fullmatch(domain) or _DNS_DOMAIN.fullmatch(domain)):
        problems.append("'s Domain doesn't match the NetBios nor the DNS format")
    if not user:
        problems.append("'s User cannot be empty")
    elif len(user.encode()) > _MAX_USER:
        problems.append(f"'s User length must not be longer than {_MAX_USER} characters")
    if user and not user.strip(". "):
        problems.append("'s User cannot contain only periods or spaces")
    if _BAD_USER.search(user):
        problems.append("'s User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return problems
