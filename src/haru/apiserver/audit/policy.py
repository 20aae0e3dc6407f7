"""`--audit-policy-file`: which requests are told of, how much of them, and at which stages.

The first rule that matches says; no rule, no word. Secrets, and what carries tokens, are told with their contents only
by a rule that names them: a rule for everything tells of them as `Metadata` does.
Source: Policy of audit.k8s.io/v1, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from haru.apiserver.audit.attributes import AuditAttributes
from haru.apiserver.auth.user import UserInfo
from haru.files import text_of
from haru.kube import yaml
from haru.kube.meta import Obj

FLAG = "--audit-policy-file"
API_VERSION = "audit.k8s.io/v1"
LEVELS = ("None", "Metadata", "Request", "RequestResponse")
NONE, METADATA, REQUEST, REQUEST_RESPONSE = range(4)
STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")
SENSITIVE = {("", "secrets"), ("", "serviceaccounts/token"), ("authentication.k8s.io", "tokenreviews")}
_RULE_FIELDS = {
    "level",
    "namespaces",
    "nonResourceURLs",
    "omitManagedFields",
    "omitStages",
    "resources",
    "userGroups",
    "users",
    "verbs",
}


class PolicyError(ValueError):
    """The policy is not usable; the message names the file, the field and the fix."""


@dataclass(frozen=True, slots=True)
class AuditDecision:
    """How a request is told of."""

    level: int
    omitted_stages: frozenset[str] = frozenset()
    omits_managed_fields: bool = False


@dataclass(frozen=True, slots=True)
class GroupResources:
    """Resources of one group; none stand for all of it. `pods`, `pods/log`, `pods/*`, `*/scale`, `*`."""

    group: str
    resources: frozenset[str]
    names: frozenset[str]

    def covers(self, asked: AuditAttributes) -> bool:
        """Whether a request is for one of them."""
        if self.group != asked.group:
            return False
        if not self.resources:
            return True
        if self.names and asked.name not in self.names:
            return False
        if not asked.subresource:
            return bool(self.resources & {asked.resource, "*", f"{asked.resource}/*"})
        wanted = {
            f"{asked.resource}/{asked.subresource}",
            "*",
            f"*/{asked.subresource}",
            f"{asked.resource}/*",
        }
        return bool(self.resources & wanted)

    def names_it(self, asked: AuditAttributes) -> bool:
        """Whether the resource is named, not merely covered."""
        whole = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
        return self.covers(asked) and whole in self.resources


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; an empty part matches everything."""

    telling: AuditDecision
    users: frozenset[str]
    groups: frozenset[str]
    verbs: frozenset[str]
    namespaces: frozenset[str]
    resources: tuple[GroupResources, ...]
    paths: tuple[str, ...]

    def matches(self, user: UserInfo, asked: AuditAttributes) -> bool:
        """Whether the rule speaks of a request."""
        if self.users and user.name not in self.users:
            return False
        if self.groups and not self.groups.intersection(user.groups):
            return False
        if self.verbs and asked.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            if not asked.is_resource or (self.namespaces and asked.namespace not in self.namespaces):
                return False
            return not self.resources or any(entry.covers(asked) for entry in self.resources)
        if self.paths:
            return not asked.is_resource and any(_is_below(asked.path, path) for path in self.paths)
        return True


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules, in order."""

    rules: tuple[Rule, ...]

    def of(self, user: UserInfo, asked: AuditAttributes) -> AuditDecision:
        """How a request of a user is to be told of."""
        for rule in self.rules:
            if rule.matches(user, asked):
                telling = rule.telling
                whole = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
                if telling.level > METADATA and (asked.group, whole) in SENSITIVE:
                    if any(entry.names_it(asked) for entry in rule.resources):
                        return telling
                    return AuditDecision(METADATA, telling.omitted_stages, telling.omits_managed_fields)
                return telling
        return AuditDecision(NONE)


def _is_below(path: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return path.startswith(pattern[:-1])
    return path == pattern


# --- from a file


def load_policy(path: Path) -> Policy:
    """What the file says. Raises PolicyError."""
    try:
        return parse_policy(yaml.load(text_of(path.read_bytes())))
    except OSError as error:
        raise PolicyError(f"{FLAG}: {path}: {error.strerror}") from None
    except ValueError as error:
        raise PolicyError(f"{FLAG}: {path}: {error}") from None


def parse_policy(policy: Any) -> Policy:
    """A Policy as an object."""
    if not isinstance(policy, dict) or (policy.get("apiVersion"), policy.get("kind")) != (API_VERSION, "Policy"):
        raise PolicyError(f"it must be an object with apiVersion: {API_VERSION} and kind: Policy")
    _refuse_unknown(policy, {"apiVersion", "kind", "metadata", "omitManagedFields", "omitStages", "rules"}, "")
    omitted = _stages(policy.get("omitStages"), "omitStages")
    bare = _flag(policy.get("omitManagedFields"), "omitManagedFields", False)
    rules = policy.get("rules")
    if not isinstance(rules, list) or not rules:
        raise PolicyError("rules: Required value: at least one, for example `- level: Metadata`")
    return Policy(tuple(_rule(rule, f"rules[{index}]", omitted, bare) for index, rule in enumerate(rules)))


def _rule(rule: Any, where: str, omitted: frozenset[str], bare: bool) -> Rule:
    if not isinstance(rule, dict):
        raise PolicyError(f"{where}: Invalid value: must be an object")
    _refuse_unknown(rule, _RULE_FIELDS, f"{where}.")
    level = rule.get("level")
    if level not in LEVELS:
        supported = ", ".join(f'"{name}"' for name in LEVELS)
        raise PolicyError(f'{where}.level: Unsupported value: "{level}": supported values: {supported}')
    namespaces, paths = (_texts(rule.get(name), f"{where}.{name}") for name in ("namespaces", "nonResourceURLs"))
    entries = rule.get("resources") or []
    if not isinstance(entries, list):
        raise PolicyError(f"{where}.resources: Invalid value: must be a list of group and resources")
    if paths and (namespaces or entries):
        why = "rules cannot apply to both regular resources and non-resource URLs"
        raise PolicyError(f"{where}.nonResourceURLs: Invalid value: {why}: make two rules of it")
    for index, path in enumerate(paths):
        _check_path(path, f"{where}.nonResourceURLs[{index}]")
    return Rule(
        AuditDecision(
            LEVELS.index(level),
            omitted | _stages(rule.get("omitStages"), f"{where}.omitStages"),
            _flag(rule.get("omitManagedFields"), f"{where}.omitManagedFields", bare),
        ),
        frozenset(_texts(rule.get("users"), f"{where}.users")),
        frozenset(_texts(rule.get("userGroups"), f"{where}.userGroups")),
        frozenset(_texts(rule.get("verbs"), f"{where}.verbs")),
        frozenset(namespaces),
        tuple(_resources(entry, f"{where}.resources[{index}]") for index, entry in enumerate(entries)),
        tuple(paths),
    )


def _resources(entry: Any, where: str) -> GroupResources:
    if not isinstance(entry, dict):
        raise PolicyError(f"{where}: Invalid value: must be an object with group and resources")
    _refuse_unknown(entry, {"group", "resourceNames", "resources"}, f"{where}.")
    group = entry.get("group") or ""
    if not isinstance(group, str) or "/" in group:
        raise PolicyError(f'{where}.group: Invalid value: "{group}": an API group has no version: leave "/…" out')
    resources = frozenset(_texts(entry.get("resources"), f"{where}.resources"))
    names = frozenset(_texts(entry.get("resourceNames"), f"{where}.resourceNames"))
    if names and not resources:
        raise PolicyError(f"{where}.resourceNames: Invalid value: using resourceNames requires at least one resource")
    return GroupResources(group, resources, names)


def _check_path(path: str, where: str) -> None:
    if path != "*" and not path.startswith("/"):
        raise PolicyError(f'{where}: Invalid value: "{path}": must begin with a "/" character')
    if "*" in path[:-1]:
        raise PolicyError(f'{where}: Invalid value: "{path}": the wildcard "*" must be the final character')


def _stages(value: Any, where: str) -> frozenset[str]:
    found = _texts(value, where)
    for stage in found:
        if stage not in STAGES:
            supported = ", ".join(f'"{name}"' for name in STAGES)
            raise PolicyError(f'{where}: Unsupported value: "{stage}": supported values: {supported}')
    return frozenset(found)


def _texts(value: Any, where: str) -> list[str]:
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PolicyError(f"{where}: Invalid value: {value!r}: must be a list of texts")
    return value


def _flag(value: Any, where: str, default: bool) -> bool:
    if value is None:
        return default
    if not isinstance(value, bool):
        raise PolicyError(f"{where}: Invalid value: {value!r}: must be true or false")
    return value


def _refuse_unknown(value: Obj, known: Iterable[str], where: str) -> None:
    for name in value:
        if name not in known:
            raise PolicyError(f"{where}{name}: unknown field; known are {', '.join(sorted(known))}")
