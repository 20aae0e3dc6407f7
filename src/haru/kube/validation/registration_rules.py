"""What webhooks and admission policies have in common: rules about resources, match conditions.

Source: admissionregistration.k8s.io/v1 validation, as behaviour.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, invalid, not_supported, required, too_many
from haru.kube.meta import Obj

CONDITIONS_LIMIT = 64
OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
CHANGING_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
"""What mutating admission policies can be about: of a deletion there is nothing to change."""


def _has_wildcard(values: Sequence[str]) -> bool:
    return len(values) > 1 and "*" in values


def rule_errors(path: str, rule: Obj) -> Iterator[FieldError]:
    """A rule with operations."""
    operations = rule.get("operations") or []
    if not operations:
        yield required(f"{path}.operations")
    if _has_wildcard(operations):
        yield invalid(f"{path}.operations", operations, "if '*' is present, must not specify other operations")
    for index, operation in enumerate(operations):
        if operation not in OPERATIONS:
            yield not_supported(f"{path}.operations[{index}]", operation, OPERATIONS)
    for name, what in (("apiGroups", "API groups"), ("apiVersions", "API versions")):
        values = rule.get(name) or []
        if not values:
            yield required(f"{path}.{name}")
        if _has_wildcard(values):
            yield invalid(f"{path}.{name}", values, f"if '*' is present, must not specify other {what}")
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            yield required(f"{path}.apiVersions[{index}]")
    yield from _resources(f"{path}.resources", rule.get("resources") or [])
    scope = rule.get("scope")
    if scope is not None and scope not in ("*", "Cluster", "Namespaced"):
        yield not_supported(f"{path}.scope", scope, ("*", "Cluster", "Namespaced"))


def _resources(path: str, resources: list[str]) -> Iterator[FieldError]:
    if not resources:
        yield required(path)
    every_below: set[str] = set()
    below_every: set[str] = set()
    for index, given in enumerate(resources):
        if not given:
            yield required(f"{path}[{index}]")
            continue
        name, slash, below = given.partition("/")
        if not slash:
            continue
        if name in every_below:
            yield invalid(f"{path}[{index}]", given, f"if '{name}/*' is present, must not specify {given}")
        if below in below_every:
            yield invalid(f"{path}[{index}]", given, f"if '*/{below}' is present, must not specify {given}")
        if below == "*":
            every_below.add(name)
        if name == "*":
            below_every.add(below)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, resources, "if '*/*' is present, must not specify other resources")
    whole = [given for given in resources if given and "/" not in given]
    if "*" in whole and whole[-1] != "*":  # 1.36 looks at the last one
        why = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, resources, why)


def condition_errors(path: str, conditions: Sequence[Obj]) -> Iterator[FieldError]:
    """Names of match conditions, and that there are expressions."""
    if len(conditions) > CONDITIONS_LIMIT:
        yield too_many(path, len(conditions), CONDITIONS_LIMIT)
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        name = condition.get("name") or ""
        if not (condition.get("expression") or "").strip():
            yield required(f"{path}[{index}].expression")
        if not name:
            yield required(f"{path}[{index}].name")
            continue
        for problem in names.is_qualified_name(name):
            yield invalid(f"{path}[{index}].name", name, problem)
        if name in seen:
            yield duplicate(f"{path}[{index}].name", name)
        seen.add(name)
