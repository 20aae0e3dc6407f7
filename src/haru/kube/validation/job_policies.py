"""How a Job completes and fails: completion mode, limits per index, policies for failed and successful pods.

Source: KEP-2214 (Indexed), KEP-3329 (podFailurePolicy), KEP-3850 (backoffLimitPerIndex), KEP-3939
(podReplacementPolicy), KEP-3998 (successPolicy), KEP-4368 (managedBy).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from haru.kube import names
from haru.kube.errors import OMITTED, FieldError, duplicate, invalid, not_supported, required, too_long, too_many
from haru.kube.meta import Obj
from haru.kube.validation.common import indexed, items, label_key, not_negative, part

_MODES = ("NonIndexed", "Indexed")
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_REPLACEMENTS = ("Failed", "TerminatingOrFailed")
_MAX_RULES = 20
_MAX_PATTERNS = 20
_MAX_EXIT_CODES = 255
_MAX_INDEXES_TEXT = 64 * 1024
_MAX_MANAGED_BY = 63
_MAX_INDEXED = 100_000
# Jobs with more completions than this are held to smaller numbers where each index is tracked.
_MANY_COMPLETIONS = 100_000
_MAX_OF_MANY = 10_000
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def validate_job_policies(field: str, spec: Obj) -> list[FieldError]:
    """The part of a Job's spec that says when it is done, and who runs it."""
    found: list[FieldError] = []
    mode = spec.get("completionMode")
    if mode is not None and mode not in _MODES:
        found.append(not_supported(f"{field}.completionMode", mode, _MODES))
    found += _per_index(field, spec)
    if mode == "Indexed":
        found += _indexed(field, spec)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                found.append(invalid(f"{field}.{name}", spec[name], "requires indexed completion mode"))
    if spec.get("podFailurePolicy") is not None:
        found += _failure_policy(f"{field}.podFailurePolicy", spec)
    if spec.get("successPolicy") is not None:
        found += _success_policy(f"{field}.successPolicy", spec)
    found += _replacement(f"{field}.podReplacementPolicy", spec)
    if spec.get("managedBy") is not None:
        found += _domain_prefixed_path(f"{field}.managedBy", spec["managedBy"])
    return found


def _per_index(field: str, spec: Obj) -> list[FieldError]:
    found = not_negative(f"{field}.backoffLimitPerIndex", spec.get("backoffLimitPerIndex"))
    failed = spec.get("maxFailedIndexes")
    found += not_negative(f"{field}.maxFailedIndexes", failed)
    if failed is not None and spec.get("backoffLimitPerIndex") is None:
        found.append(required(f"{field}.backoffLimitPerIndex", "when maxFailedIndexes is specified"))
    return found


def _indexed(field: str, spec: Obj) -> list[FieldError]:
    found: list[FieldError] = []
    completions, parallelism = spec.get("completions"), spec.get("parallelism") or 0
    failed = spec.get("maxFailedIndexes")
    if completions is None:
        found.append(required(f"{field}.completions", "when completion mode is Indexed"))
    if parallelism > _MAX_INDEXED:
        why = f"must be less than or equal to {_MAX_INDEXED} when completion mode is Indexed"
        found.append(invalid(f"{field}.parallelism", parallelism, why))
    if failed is not None and completions is not None and failed > completions:
        found.append(invalid(f"{field}.maxFailedIndexes", failed, "must be less than or equal to completions"))
    if failed is not None and failed > _MAX_INDEXED:
        found.append(invalid(f"{field}.maxFailedIndexes", failed, f"must be less than or equal to {_MAX_INDEXED}"))
    if (completions or 0) > _MANY_COMPLETIONS and spec.get("backoffLimitPerIndex") is not None:
        found += _many_completions(field, parallelism, failed)
    return found


def _many_completions(field: str, parallelism: int, failed: int | None) -> list[FieldError]:
    """A status that lists failed and completed indexes must not outgrow an object."""
    found: list[FieldError] = []
    above = f"when completions are above {_MANY_COMPLETIONS} and used with backoff limit per index"
    why = f"must be less than or equal to {_MAX_OF_MANY} {above}"
    if failed is None:
        specified = f"must be specified when completions is above {_MANY_COMPLETIONS}"
        found.append(required(f"{field}.maxFailedIndexes", specified))
    if parallelism > _MAX_OF_MANY:
        found.append(invalid(f"{field}.parallelism", parallelism, why))
    if failed is not None and failed > _MAX_OF_MANY:
        found.append(invalid(f"{field}.maxFailedIndexes", failed, why))
    return found


def _choice(field: str, value: Any, supported: Sequence[str]) -> list[FieldError]:
    if not value:
        listed = " ".join(json.dumps(text) for text in supported)
        return [required(field, f"valid values: [{listed}]")]
    return [] if value in supported else [not_supported(field, value, supported)]


# --- failed pods ---------------------------------------------------------------------------------------------------


def _failure_policy(field: str, spec: Obj) -> list[FieldError]:
    rules = items(spec["podFailurePolicy"], "rules")
    pod = part(part(spec, "template"), "spec")
    containers = {c.get("name") for name in ("containers", "initContainers") for c in items(pod, name)}
    found = [too_many(f"{field}.rules", len(rules), _MAX_RULES)] if len(rules) > _MAX_RULES else []
    per_index = spec.get("backoffLimitPerIndex") is not None
    return found + indexed(f"{field}.rules", rules, lambda place, rule: _rule(place, rule, containers, per_index))


def _rule(field: str, rule: Obj, containers: set[Any], per_index: bool) -> list[FieldError]:
    action = rule.get("action")
    found = _choice(f"{field}.action", action, _ACTIONS)
    if action == "FailIndex" and not per_index:
        found.append(invalid(f"{field}.action", action, "requires the backoffLimitPerIndex to be set"))
    codes, conditions = rule.get("onExitCodes"), items(rule, "onPodConditions")
    if codes is not None:
        found += _exit_codes(f"{field}.onExitCodes", codes, containers)
    if len(conditions) > _MAX_PATTERNS:
        found.append(too_many(f"{field}.onPodConditions", len(conditions), _MAX_PATTERNS))
    found += indexed(f"{field}.onPodConditions", conditions, _pattern)
    if codes is not None and conditions:
        found.append(invalid(field, OMITTED, "specifying both OnExitCodes and OnPodConditions is not supported"))
    if codes is None and not conditions:
        found.append(invalid(field, OMITTED, "specifying one of OnExitCodes and OnPodConditions is required"))
    return found


def _pattern(field: str, pattern: Obj) -> list[FieldError]:
    return label_key(f"{field}.type", pattern.get("type") or "") + _choice(
        f"{field}.status", pattern.get("status"), _STATUSES
    )


def _exit_codes(field: str, codes: Obj, containers: set[Any]) -> list[FieldError]:
    operator, values = codes.get("operator"), items(codes, "values")
    found = _choice(f"{field}.operator", operator, _OPERATORS)
    container = codes.get("containerName")
    if container is not None and container not in containers:
        why = "must be one of the container or initContainer names in the pod template"
        found.append(invalid(f"{field}.containerName", container, why))
    if not values:
        found.append(invalid(f"{field}.values", values, "at least one value is required"))
    elif len(values) > _MAX_EXIT_CODES:
        found.append(too_many(f"{field}.values", len(values), _MAX_EXIT_CODES))
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            found.append(invalid(f"{field}.values[{index}]", value, "must not be 0 for the In operator"))
        if value in seen:
            found.append(duplicate(f"{field}.values[{index}]", value))
        seen.add(value)
    if values != sorted(values):
        found.append(invalid(f"{field}.values", values, "must be ordered"))
    return found


def _replacement(field: str, spec: Obj) -> list[FieldError]:
    policy = spec.get("podReplacementPolicy")
    # A pod's outcome can only be judged once it has ended, so a failure policy leaves no choice.
    allowed = _REPLACEMENTS[:1] if spec.get("podFailurePolicy") is not None else _REPLACEMENTS
    return [] if policy is None or policy in allowed else [not_supported(field, policy, allowed)]


# --- succeeded pods ------------------------------------------------------------------------------------------------


def _success_policy(field: str, spec: Obj) -> list[FieldError]:
    policy, completions = spec["successPolicy"], spec.get("completions")
    if spec.get("completionMode") != "Indexed":
        return [invalid(field, policy, "requires indexed completion mode")]
    rules = items(policy, "rules")
    found: list[FieldError] = []
    if not rules:
        why = "at least one rules must be specified when the successPolicy is specified"
        found.append(required(f"{field}.rules", why))
    if len(rules) > _MAX_RULES:
        found.append(too_many(f"{field}.rules", len(rules), _MAX_RULES))
    return found + indexed(f"{field}.rules", rules, lambda place, rule: _success_rule(place, rule, completions or 0))


def _success_rule(field: str, rule: Obj, completions: int) -> list[FieldError]:
    count, text = rule.get("succeededCount"), rule.get("succeededIndexes")
    found: list[FieldError] = []
    if count is None and text is None:
        found.append(required(field, "at least one of succeededCount or succeededIndexes must be specified"))
    total = 0
    if text is not None:
        if len(text) > _MAX_INDEXES_TEXT:
            found.append(too_long(f"{field}.succeededIndexes", _MAX_INDEXES_TEXT))
        try:
            total = count_indexes(text, completions)
        except ValueError as error:
            found.append(invalid(f"{field}.succeededIndexes", text, f"error parsing succeededIndexes: {error}"))
    if count is not None:
        place = f"{field}.succeededCount"
        found += not_negative(place, count)
        limits = [(completions, "the number of specified completions")]
        if text is not None:
            limits.append((total, "the number of indexes in the specified succeededIndexes field"))
        for limit, what in limits:
            if count > limit:
                found.append(invalid(place, count, f"must be less than or equal to {limit} ({what})"))
    return found


def count_indexes(text: str, completions: int) -> int:
    """How many indexes a text such as `1,3-5,7` names; ValueError says why it is no such text."""
    total, previous = 0, -1
    for fragment in text.split(",") if text else ():
        first, last = index_interval(fragment, completions)
        if previous >= first:
            raise ValueError(f"non-increasing order, previous: {previous}, current: {first}")
        total += last - first + 1
        previous = last
    return total


def index_interval(fragment: str, completions: int) -> tuple[int, int]:
    """First and last index of one part (`3` or `3-5`); ValueError if it is malformed or not below `completions`."""
    limits = fragment.split("-")
    if len(limits) > 2:
        raise ValueError(
            f"the fragment {json.dumps(fragment)} violates the requirement that an index interval can have at most two "
            f"parts separated by '-'"
        )
    numbers = []
    for limit in limits:
        if not re.fullmatch(r"\+?[0-9]+", limit, re.ASCII):
            raise ValueError(f"cannot convert string to integer for index: {json.dumps(limit)}")
        numbers.append(int(limit))
        if numbers[-1] >= completions:
            raise ValueError(f"too large index: {json.dumps(limit)}")
    if len(numbers) == 2 and numbers[0] >= numbers[1]:
        raise ValueError(f"non-increasing order, previous: {numbers[0]}, current: {numbers[1]}")
    return numbers[0], numbers[-1]


# --- who runs it ---------------------------------------------------------------------------------------------------


def _domain_prefixed_path(field: str, value: str) -> list[FieldError]:
    if not value:
        return [required(field)]
    found: list[FieldError] = []
    host, _, path = value.partition("/")
    if not host or not path:
        found.append(invalid(field, value, 'must be a domain-prefixed path (such as "acme.io/foo")'))
    else:
        found += [invalid(field, host, why) for why in names.is_dns1123_subdomain(host)]
        if not _PATH.fullmatch(path):
            found.append(invalid(field, path, names.regex_error("Invalid path", _PATH.pattern)))
    if len(value) > _MAX_MANAGED_BY:
        found.append(too_long(field, _MAX_MANAGED_BY))
    return found
