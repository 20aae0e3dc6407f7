"""All objects of a namespace against one quota: the status that its controller writes.

Source: Kubernetes `resourcequota-controller`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from haru.kube.quota.checking import in_scopes
from haru.kube.quota.usage import ZERO, Evaluator, Surroundings, Usage, add

Obj = dict[str, Any]


def wanted_evaluators(quota: Obj, evaluators: Iterable[Evaluator], around: Surroundings) -> list[Evaluator]:
    """Those whose objects a quota counts."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    return [evaluator for evaluator in evaluators if evaluator.names(hard, around)]


def status_of(quota: Obj, objects: Sequence[tuple[Evaluator, Iterable[Obj]]], around: Surroundings) -> Obj:
    """The status of a quota: its limits, and what `objects` use of those that somebody counts."""
    hard: Mapping[str, Any] = (quota.get("spec") or {}).get("hard") or {}
    used: Usage = {}
    for evaluator, listed in objects:
        names = evaluator.names(hard, around)
        add(used, dict.fromkeys(names, ZERO))
        for obj in listed if names else ():
            if in_scopes(evaluator, quota, obj):
                usage = evaluator.usage(obj, around)
                add(used, {name: usage[name] for name in names if name in usage})
    before = (quota.get("status") or {}).get("used") or {}
    kept = {name: value for name, value in before.items() if name in hard}
    return {"hard": dict(hard), "used": {**kept, **{name: str(amount) for name, amount in used.items()}}}
