"""What a condition or an event says of an explanation: its numbers, and the first remedy.

`condition_line` is one line, short enough for the note of an event; `condition_text` is all of it, for the condition of
a PodGroup, or of a pod without one. Both come after kube-scheduler's own words (`with_explanation`). Whoever may read
the object reads them: names of other namespaces are taken out before (`redaction.redacted`).
Source: limits of Kubernetes (message of a condition 32768 bytes, note of an event 1024 bytes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from haru.engine import Reason
from haru.explain.explanation import ExplanationData, Funnel, FunnelStage, Holder
from haru.explain.render.marked_message import MARKER, MOST_BYTES, shortened
from haru.explain.render.short import command_of
from haru.explain.render.wording import brief
from haru.kube.names import counted

MOST_LINE_BYTES = 1024
_MOST_HOLDERS, _MOST_NODES, _MOST_REMEDIES, _MOST_COMMAND = 3, 4, 3, 160
_SELECTING = ("class", "selector")
_APART = ("constraints", "scattered")
"""Devices that are free, but not together."""
_WELL_KNOWN_LABELS = re.compile(
    r"(?<![\w.-])((beta\.)?kubernetes\.io/(hostname|os|arch)"
    r"|(topology\.kubernetes\.io|failure-domain\.beta\.kubernetes\.io)/(zone|region)"
    r"|(node\.kubernetes\.io|beta\.kubernetes\.io)/instance-type)(?![\w.-])"
)


def is_waiting(explanation: ExplanationData) -> bool:
    """Whether there is something to publish: the work waits, and not just for its turn."""
    return explanation.verdict in ("FitsLater", "FitsIf", "NeverFits")


def condition_line(explanation: ExplanationData) -> str:
    """The cause with its numbers and the first confirmed remedy, in at most 1024 bytes."""
    helps = next(_remedies(explanation), "")
    end = f". Helps: {helps}" if helps else ""
    text = shortened(_cause(explanation), MOST_LINE_BYTES - len(MARKER) - min(len(end.encode()), 400))
    return shortened(f"{text}{end}", MOST_LINE_BYTES - len(MARKER))


def condition_text(explanation: ExplanationData) -> str:
    """The cause, what else is short, what the nodes say, when it starts, remedies with commands that are short."""
    return shortened(". ".join(_sentences(explanation)), MOST_BYTES // 2)


def change_key(explanation: ExplanationData) -> tuple[str, str, str]:
    """What an event is worth telling for: the verdict, the type of the first reason, the first remedy."""
    first = explanation.reasons[0].type if explanation.reasons else ""
    return explanation.verdict, first, next(_remedies(explanation), "")


def _sentences(explanation: ExplanationData) -> Iterator[str]:
    yield _cause(explanation)
    for funnel in _short_funnels(explanation)[1:]:
        yield _funnel_text(funnel, explanation.namespace)
    groups = [f"{counted(group.count, 'node')}: {group.text}" for group in explanation.nodes[:_MOST_NODES]]
    if groups:
        yield f"Nodes: {'; '.join(groups)}"
    if explanation.later is not None and explanation.later.until:
        yield f"Starts by {explanation.later.until} at the latest"
    ways = [text for text, _ in zip(_remedies(explanation, commands=True), range(_MOST_REMEDIES), strict=False)]
    if ways:
        yield f"Helps: {'; or '.join(ways)}"
    yield f"More: {command_of(explanation)}"


# -- the cause --------------------------------------------------------------------------------------------------------


def _short_funnels(explanation: ExplanationData) -> list[Funnel]:
    """The requests that lack devices, the one that lacks most first."""
    short = [f for f in explanation.requests if f.short and not f.error and not f.asked.alternative]
    short = [f for f in short if not any(stage.errors for stage in f.stages)]
    return sorted(short, key=lambda f: -(f.short or 0))


def _cause(explanation: ExplanationData) -> str:
    unknown = next((reason for reason in explanation.reasons if reason.type == "SchedulerUnknown"), None)
    if unknown is not None:
        return f"no scheduler {unknown.data['schedulerName']} is known here"
    short = _short_funnels(explanation)
    if short and not any(reason.type == "Gated" for reason in explanation.reasons):
        return f"{_members(explanation.reasons)}{_funnel_text(short[0], explanation.namespace)}"
    return explanation.summary


def _members(reasons: Sequence[Reason]) -> str:
    quorum = next((reason for reason in reasons if reason.type == "Quorum"), None)
    if quorum is None or int(quorum.data["needed"]) < 2:
        return ""
    return f"{quorum.data['fit']} of {quorum.data['needed']} members fit: "


def _funnel_text(funnel: Funnel, own: str) -> str:
    """`request gpu needs 6 devices of gpu.nvidia.com, 5 are free, 3 held by deployment/notebooks`.

    `own` is the namespace of the work.
    """
    asked, needed = funnel.asked, funnel.needed or 0
    parts = [f"request {asked.title} needs {counted(needed, 'device')} of {asked.device_class or 'no class'}"]
    apart = sum(stage.dropped for stage in funnel.stages if stage.stage in _APART)
    parts.append(f"{funnel.free + apart} {'is' if funnel.free + apart == 1 else 'are'} free")
    parts += [_stage_text(funnel, stage, own) for stage in funnel.stages if _matters(stage, needed)]
    return ", ".join(parts)


def _matters(stage: FunnelStage, needed: int) -> bool:
    """Whether a condition is worth telling; that devices are of another class or kind only if too few others are."""
    if not stage.dropped or stage.stage == "devices":
        return False
    return stage.stage not in _SELECTING or stage.left < needed


def _stage_text(funnel: Funnel, stage: FunnelStage, own: str) -> str:
    many = stage.dropped
    if stage.stage == "class":
        return f"{many} of other classes"
    if stage.stage == "selector":
        return f"{many} without {brief(stage.expression)}"
    if stage.stage == "taints":
        return f"{many} tainted {' and '.join(list(stage.taints)[:2])}"
    if stage.stage in ("free", "counters", "capacity"):
        what = {"free": "held", "counters": "held in part", "capacity": "without the capacity"}[stage.stage]
        who = _holders_text(stage, own)
        return f"{many} {what}{' by ' if who else ''}{who}"
    if stage.stage == "nodes":
        return f"{many} on nodes that the pod cannot use ({' and '.join(list(stage.nodes)[:2])})"
    if stage.stage in _APART:
        wanted = f" as {stage.expression} wants them" if stage.stage == "constraints" else ""
        return f"but not {funnel.asked.count} together{wanted}"
    return f"{many} {'not offered' if stage.stage == 'offered' else 'not usable on their node'}"


def _holders_text(stage: FunnelStage, own: str) -> str:
    """`deployment/notebooks (3), 2 workloads of other namespaces (8, priority 0)`."""
    holders = sorted(stage.holders, key=lambda holder: (holder.namespace != own, -holder.devices))
    if len(holders) == 1 and not any(stage.unnamed) and holders[0].devices == stage.dropped:
        priority = _priority(holders[0])
        return _holder_name(holders[0], own) + (f" ({priority})" if priority else "")
    named = [f"{_holder_name(holder, own)} ({_devices(holder)})" for holder in holders[:_MOST_HOLDERS]]
    rest = holders[_MOST_HOLDERS:]
    if rest or stage.unnamed[0]:
        devices = sum(holder.devices for holder in rest) + stage.unnamed[1]
        named.append(f"{len(rest) + stage.unnamed[0]} more ({devices})")
    return ", ".join(named)


def _holder_name(holder: Holder, own: str) -> str:
    return holder.name if holder.namespace in ("", own) else f"{holder.namespace}/{holder.name}"


def _devices(holder: Holder) -> str:
    return ", ".join(filter(None, (str(holder.devices), _priority(holder))))


def _priority(holder: Holder) -> str:
    """Of those that are counted only: their priority says whether they can be preempted."""
    return f"priority {holder.priority}" if not holder.namespace and holder.priority is not None else ""


# -- what helps -------------------------------------------------------------------------------------------------------


def _remedies(explanation: ExplanationData, *, commands: bool = False) -> Iterator[str]:
    """The remedies that were tried with success, the cheapest first."""
    for remedy in explanation.remedies:
        if remedy.confirmed and not _WELL_KNOWN_LABELS.search(remedy.summary):
            told = commands and 0 < len(remedy.command) <= _MOST_COMMAND
            yield f"{remedy.summary} ({remedy.command})" if told else remedy.summary
