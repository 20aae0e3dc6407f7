"""Words for numbers, expressions and values, short enough to be read at a glance."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from haru.explain.explanation import Asked, Funnel, FunnelStage, Holder, Later
from haru.kube.names import counted

_UNITS = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_PATH = re.compile(r"""device\.(?:attributes|capacity)\[(?:"[^"]*"|'[^']*')\]\.""")
_MOST = 3
_MOST_AWAITED = 3


def amount_text(resource: str, value: int) -> str:
    """An amount as one would write it: cpu comes in thousandths."""
    if resource == "cpu":
        return str(value // 1000) if value % 1000 == 0 else f"{value}m"
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for unit, size in _UNITS:
            if abs(value) >= size:
                return f"{value / size:.4g}{unit}" if value % size else f"{value // size}{unit}"
    return str(value)


def brief(expression: str) -> str:
    """An expression without the paths to the attributes it reads."""
    text = _PATH.sub("", " ".join(expression.split()))
    return text if len(text) <= 90 else text[:87] + "…"


def quoted(value: object) -> str:
    """A value as CEL would write it."""
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def values_text(values: Mapping[str, object]) -> str:
    """`architecture is "Ampere"`; a device that has nothing of what is read is known by its driver."""
    driver = values.get("driver")
    read = {name: value for name, value in values.items() if name != "driver"}
    known = [f"{_short(name)} is {quoted(value)}" for name, value in read.items() if value is not None]
    missing = [f"no {_short(name)}" for name, value in read.items() if value is None]
    if not known:
        return f"driver is {quoted(driver)}" + (f", {' and '.join(missing)}" if missing else "")
    return ", ".join([*known, *missing])


def _short(name: str) -> str:
    return name.rpartition("/")[2]


def found_text(stage: FunnelStage) -> str:
    """With which values devices fail a selector, the most frequent first."""
    parts = [f"{values_text(values)} on {count}" for values, count in stage.values[:_MOST]]
    if len(parts) == 1 and stage.values[0][1] == stage.dropped:
        parts = [values_text(stage.values[0][0])]
    if len(stage.values) > _MOST:
        rest = sum(count for _, count in stage.values[_MOST:])
        parts.append(f"other values on {rest}")
    if stage.errors:
        parts.append(f"{stage.error} on {stage.errors}")
    return "; ".join(parts)


def holder_text(holder: Holder) -> str:
    """`deployment/notebooks 11 (priority 0, since …)`."""
    details = []
    if holder.priority is not None:
        details.append(f"priority {holder.priority}")
    else:
        details.append("no pod uses it")
    if holder.since:
        details.append(f"since {holder.since}")
    if holder.idle:
        details.append("idle" if holder.idle >= holder.devices else f"{holder.idle} of them idle")
    where = "" if holder.namespace in ("", "default") else f"{holder.namespace}/"
    count = f" {holder.devices}" if holder.devices else ""  # on a node there are also those that hold none
    return f"{where}{holder.name}{count} ({', '.join(details)})"


def holders_text(holders: Sequence[Holder], unnamed: tuple[int, int] = (0, 0), devices: int | None = None) -> str:
    """Up to three holders, then how many more there are; and what several share, where they hold `devices` together."""
    shown = [holder_text(holder) for holder in holders[:_MOST]]
    workloads, rest = unnamed
    workloads, rest = workloads + len(holders[_MOST:]), rest + sum(h.devices for h in holders[_MOST:])
    more = f"{workloads} more" + (f" with {rest}" if rest else "")
    told = ", ".join([*shown, more] if workloads else shown)
    shared = 0 if devices is None else rest + sum(h.devices for h in holders[:_MOST]) - devices
    return f"{told}; {shared} of these shared" if shared > 0 else told


def asked_text(asked: Asked) -> str:
    """`6 × gpu: 1 of gpu.nvidia.com with …`."""
    amount = "all" if asked.count is None else str(asked.count)
    text = f"{asked.claims} × {asked.title}: {amount} of {asked.device_class or 'no class'}"
    conditions = [" ".join(s.split()) for s in asked.selectors] + [f"{k} {v}" for k, v in asked.capacity.items()]
    text += f" with {' and '.join(conditions)}" if conditions else ""
    return text + (" (admin access)" if asked.admin else "") + (" (one of several ways)" if asked.alternative else "")


def pods_text(pods: int, resources: Mapping[str, int]) -> str:
    """`6 × pod: cpu 8, memory 64Gi`."""
    return f"{pods} × pod: " + ", ".join(f"{name} {amount_text(name, value)}" for name, value in resources.items())


def sum_text(free: int, needed: int | None, short: int | None) -> str:
    """`5 free, 6 needed: 1 short`."""
    if needed is None:
        return f"{free} free, all are needed"
    if short is None:
        return f"{free} with room, which several claims may share; {needed} needed"
    return f"{free} free, {needed} needed" + (f": {short} short" if short else "")


def left_word(funnel: Funnel) -> str:
    """What the devices that are left are: `free`, or `usable` where others are free, but of no use to the work."""
    return (
        "usable"
        if any(s.dropped and s.stage in ("nodes", "constraints", "scattered") for s in funnel.stages)
        else "free"
    )


def funnel_text(funnel: Funnel) -> str:
    """`5 free, 6 needed: 1 short` of a request."""
    return sum_text(funnel.free, funnel.needed, funnel.short).replace(" free,", f" {left_word(funnel)},")


def dropped_text(funnel: Funnel, stage: FunnelStage, *, sums: bool = False) -> str:
    """What keeps so many devices back, in words; with `sums` also how many of them several holders share."""
    count = stage.dropped
    if stage.stage == "class":
        return f"{count} not of class {funnel.asked.device_class}" + _why(found_text(stage))
    if stage.stage == "selector":
        cannot = f", {stage.errors} cannot be evaluated" if stage.errors else ""
        return f"{count - stage.errors} fail {brief(stage.expression)}{cannot}" + _why(found_text(stage))
    if stage.stage == "taints":
        places = f" ({', '.join(stage.where)}{', …' if count > len(stage.where) else ''})"
        return f"{count} tainted {', '.join(stage.taints)}" + places
    if stage.stage == "free":
        return f"{count} taken" + _why(holders_text(stage.holders, stage.unnamed, count if sums else None))
    if stage.stage == "counters":
        short = ", ".join(list(stage.counters)[:3])
        return f"{count} used in part, short of {short}" + _why(holders_text(stage.holders, stage.unnamed))
    if stage.stage == "capacity":
        return f"{count} without the capacity asked for" + _why(holders_text(stage.holders, stage.unnamed))
    if stage.stage == "nodes":
        nodes = ", ".join(f"{why} {many}" for why, many in list(stage.nodes.items())[:3])
        return f"{count} on nodes that the pod cannot use" + _why(nodes)
    if stage.stage == "constraints":
        return f"{count} that {stage.expression} keeps apart"
    if stage.stage == "scattered":
        return f"{count} left over where not {counted(funnel.asked.count or 1, 'device')} can be had together"
    return f"{count} " + {"offered": "not offered: a feature is off", "node": "not usable on their node"}[stage.stage]


def _why(text: str) -> str:
    return f": {text}" if text else ""


def later_text(later: Later | None) -> list[str]:
    """When it starts, where that can be said; what has to end without a limit is told with the remedies."""
    if later is None or not later.until:
        return []
    named = ", ".join(later.pods[:_MOST_AWAITED])
    more = len(later.pods) - _MOST_AWAITED
    awaited = f"{named} and {more} more" if more > 0 else named
    return [
        f"it starts by {later.until} at the latest, when {awaited} {'has' if len(later.pods) == 1 else 'have'} ended"
    ]
