"""What may only be used where a quota covers it: `limitedResources` of the configuration of ResourceQuota."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from haru.kube.meta import Obj
from haru.kube.quota.scopes import selectors_of
from haru.kube.quota.usage import ZERO, Evaluator, Surroundings, Usage


@dataclass(frozen=True, slots=True)
class Limited:
    """Objects of a resource, as far as they use names that contain one of `contains`, or are in one of `scopes`."""

    group: str
    plural: str
    contains: tuple[str, ...] = ()
    scopes: tuple[Obj, ...] = ()


def uncovered(
    limited: Iterable[Limited],
    evaluator: Evaluator,
    obj: Obj,
    usage: Usage,
    quotas: Iterable[Obj],
    around: Surroundings,
) -> str:
    """Why an object may not be without a quota that covers it; empty where it may, or one does.

    `quotas` are all of the namespace: those that count the object cover what they limit, and a scope is covered by a
    quota that has it.
    """
    mine = [each for each in limited if (each.group, each.plural) == (evaluator.group, evaluator.plural)]
    if not mine:
        return ""
    wanted = {
        name
        for name, amount in usage.items()
        if amount > ZERO and any(p in name for each in mine for p in each.contains)
    }
    covered: set[str] = set()
    scopes: set[str] = set()
    for quota in quotas:
        selectors = [selector for selector in selectors_of(quota) if evaluator.in_scope(selector, obj)]
        scopes |= {str(selector["scopeName"]) for selector in selectors}
        if len(selectors) == len(selectors_of(quota)):
            covered |= set(evaluator.names((quota.get("status") or {}).get("hard") or {}, around))
    if wanted - covered:
        return f"insufficient quota to consume: {','.join(sorted(wanted - covered))}"
    open_scopes = [
        scope
        for each in mine
        for scope in each.scopes
        if evaluator.in_scope(scope, obj) and scope.get("scopeName") not in scopes
    ]
    if open_scopes:
        return f"insufficient quota to match these scopes: [{' '.join(map(_shown, open_scopes))}]"
    return ""


def _shown(scope: Obj) -> str:
    values = " ".join(scope.get("values") or ())
    return f"{{{scope.get('scopeName', '')} {scope.get('operator', '')} [{values}]}}"
