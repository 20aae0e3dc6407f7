"""The configuration of admission plugins: an AdmissionConfiguration, as kube-apiserver's
`--admission-control-config-file` takes it.

PodSecurity (defaults and exemptions) and ResourceQuota (what nobody may use without a quota that covers it) have one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from haru.files import text_of
from haru.kube import yaml
from haru.kube.names import is_dns1123_label, is_dns1123_subdomain
from haru.kube.pod_security.levels import MODES, Policy, Standard, parse_level, parse_version
from haru.kube.quota.limited import Limited

FLAG = "--admission-control-config-file"
_API = "apiserver.config.k8s.io/v1"
_POD_SECURITY = tuple(f"pod-security.admission.config.k8s.io/{version}" for version in ("v1", "v1beta1", "v1alpha1"))
_EXEMPT = {"usernames": None, "namespaces": is_dns1123_label, "runtimeClasses": is_dns1123_subdomain}


class AdmissionConfigError(ValueError):
    """The configuration is not usable; the message names the file, the field and the fix."""


@dataclass(frozen=True, slots=True)
class AdmissionOptions:
    """The configuration of admission plugins."""

    defaults: Policy = field(default_factory=Policy)
    """The standards of namespaces without labels."""
    exempt_users: frozenset[str] = frozenset()
    exempt_namespaces: frozenset[str] = frozenset()
    exempt_runtime_classes: frozenset[str] = frozenset()
    limited: tuple[Limited, ...] = ()
    """What may only be used where a quota covers it."""


def load_admission(path: Path) -> AdmissionOptions:
    """What the file says. Raises AdmissionConfigError."""
    try:
        config = yaml.load(text_of(path.read_bytes()))
    except OSError as error:
        raise AdmissionConfigError(f"{FLAG}: {path}: {error.strerror}") from None
    except ValueError as error:
        raise AdmissionConfigError(f"{FLAG}: {path}: {error}") from None
    try:
        return parse_admission(config, path.parent)
    except AdmissionConfigError as error:
        raise AdmissionConfigError(f"{FLAG}: {path}: {error}") from None


def parse_admission(config: Any, directory: Path) -> AdmissionOptions:
    """An AdmissionConfiguration as an object; files that it names lie in `directory`."""
    _require_kind(config, (_API,), "AdmissionConfiguration", "")
    found: dict[str, Any] = {}
    for index, plugin in enumerate(_list(config.get("plugins"), "plugins")):
        where = f"plugins[{index}]"
        _require_object(plugin, where, {"name", "path", "configuration"})
        own = plugin.get("configuration")
        if own is None and plugin.get("path"):
            own = _file(directory / str(plugin["path"]), f"{where}.path")
        match plugin.get("name"):
            case "PodSecurity":
                found |= _pod_security(own, f"{where}.configuration")
            case "ResourceQuota":
                found["limited"] = _limited(own, f"{where}.configuration")
            case name:
                raise AdmissionConfigError(
                    f'{where}.name: Invalid value: "{name}": PodSecurity and ResourceQuota have a configuration here'
                )
    return AdmissionOptions(**found)


def _pod_security(config: Any, where: str) -> dict[str, Any]:
    _require_kind(config, _POD_SECURITY, "PodSecurityConfiguration", where)
    _require_object(config, where, {"apiVersion", "kind", "defaults", "exemptions"})
    defaults = config.get("defaults") or {}
    _require_object(defaults, f"{where}.defaults", {*MODES, *(f"{mode}-version" for mode in MODES)})
    standards: dict[str, Standard] = {}
    for mode in MODES:
        try:
            level = parse_level(str(defaults.get(mode) or "privileged"))
        except ValueError as error:
            raise _invalid(f"{where}.defaults.{mode}", defaults[mode], str(error)) from None
        name = f"{mode}-version"
        try:
            standards[mode] = Standard(level, parse_version(str(defaults.get(name) or "latest")))
        except ValueError as error:
            raise _invalid(f"{where}.defaults.{name}", defaults[name], str(error)) from None
    exempt = _exemptions(config.get("exemptions") or {}, f"{where}.exemptions")
    return {
        "defaults": Policy(**standards),
        "exempt_users": exempt["usernames"],
        "exempt_namespaces": exempt["namespaces"],
        "exempt_runtime_classes": exempt["runtimeClasses"],
    }


def _exemptions(exemptions: Any, where: str) -> dict[str, frozenset[str]]:
    _require_object(exemptions, where, set(_EXEMPT))
    found: dict[str, frozenset[str]] = {}
    for member, check in _EXEMPT.items():
        seen: set[str] = set()
        for index, name in enumerate(_list(exemptions.get(member), f"{where}.{member}")):
            place = f"{where}.{member}[{index}]"
            problems = check(str(name)) if check is not None else [] if name else ["username must not be empty"]
            if problems:
                raise _invalid(place, name, ", ".join(problems))
            if name in seen:
                raise AdmissionConfigError(f'{place}: Duplicate value: "{name}"')
            seen.add(str(name))
        found[member] = frozenset(seen)
    return found


def _limited(config: Any, where: str) -> tuple[Limited, ...]:
    _require_kind(config, (_API,), "ResourceQuotaConfiguration", where)
    _require_object(config, where, {"apiVersion", "kind", "limitedResources"})
    found = []
    for index, entry in enumerate(_list(config.get("limitedResources"), f"{where}.limitedResources")):
        place = f"{where}.limitedResources[{index}]"
        _require_object(entry, place, {"apiGroup", "resource", "matchContains", "matchScopes"})
        if not entry.get("resource"):
            raise AdmissionConfigError(f"{place}.resource: Required value: name a resource, for example pods")
        contains = tuple(str(part) for part in _list(entry.get("matchContains"), f"{place}.matchContains"))
        scopes = tuple(_list(entry.get("matchScopes"), f"{place}.matchScopes"))
        found.append(Limited(str(entry.get("apiGroup") or ""), str(entry["resource"]), contains, scopes))
    return tuple(found)


def _file(path: Path, where: str) -> Any:
    try:
        return yaml.load(text_of(path.read_bytes()))
    except OSError as error:
        raise AdmissionConfigError(f"{where}: {path}: {error.strerror}") from None
    except ValueError as error:
        raise AdmissionConfigError(f"{where}: {path}: {error}") from None


def _require_kind(config: Any, versions: tuple[str, ...], kind: str, where: str) -> None:
    if not isinstance(config, dict) or config.get("apiVersion") not in versions or config.get("kind") != kind:
        subject = f"{where}: it" if where else "it"
        raise AdmissionConfigError(f"{subject} must be an object with apiVersion: {versions[0]} and kind: {kind}")


def _require_object(value: Any, where: str, known: set[str]) -> None:
    if not isinstance(value, dict):
        raise AdmissionConfigError(f"{where}: Invalid value: {value!r}: must be an object")
    for name in value:
        if name not in known:
            listed = ", ".join(sorted(known))
            raise AdmissionConfigError(f"{where}.{name}: unknown field; known are {listed}")


def _list(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise AdmissionConfigError(f"{where}: Invalid value: {value!r}: must be a list")
    return value


def _invalid(where: str, value: Any, why: str) -> AdmissionConfigError:
    return AdmissionConfigError(f'{where}: Invalid value: "{value}": {why}')
