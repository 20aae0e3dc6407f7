"""The first line: the one sentence that a person who waits has to hear."""

from __future__ import annotations

from collections.abc import Sequence

from haru.engine import Reason
from haru.explain.diagnosis.diagnosis import Diagnosis
from haru.explain.explanation import Funnel, FunnelStage, NodeGroup, Verdict
from haru.explain.render.wording import brief, dropped_text, funnel_text
from haru.kube.names import counted

# Causes that say all there is to say by themselves.
_PLAIN = frozenset(
    {
        "SchedulerUnknown",
        "NodeLabelMissing",
        "TopologyKeyMissing",
        "MembersPinned",
        "AffinityPodMissing",
        "StorageClassMissing",
        "NoProvisioner",
        "SelectorError",
        "RequestInvalid",
        "TooManyDevices",
        "GaveUp",
        "SchedulerNameMismatch",
        "DeviceClassMissing",
        "ClaimMissing",
        "ClaimDeleting",
        "ClaimForeign",
        "ClaimInFlight",
        "ClaimReservedFull",
        "BindingConditions",
        "VolumeMissing",
        "VolumeUnbound",
        "NoNodes",
    }
)


def headline(verdict: Verdict, reasons: Sequence[Reason], found: Diagnosis) -> str:
    """Why the work waits, in one sentence with numbers."""
    if verdict == "Starting" or not reasons:
        return reasons[0].message if reasons else ""
    plain = _failing(found) or _plain(reasons)
    if plain:
        return plain
    closed = next((reason for reason in reasons if reason.type == "AlternativesExhausted"), None)
    if closed is not None:
        ways = [f for f in found.requests if f.asked.alternative]
        texts = [f"{f.asked.title}: {funnel_text(f)}" for f in ways]
        return f"no alternative of request {closed.data['request']} is open: {'; '.join(texts)}"
    short = [funnel for funnel in found.requests if funnel.short and not funnel.asked.alternative]
    if short:
        return _short(verdict, max(short, key=lambda f: f.short or 0), found)
    domain = next(
        (reason for reason in reasons if reason.type == "TopologyDomain" and "placements" in reason.data), None
    )
    if domain is not None and found.in_domain:
        return _in_domains(domain, found.in_domain)
    quorum = next((reason for reason in reasons if reason.type == "Quorum"), None)
    closest = _closest(found)
    if quorum is not None and int(quorum.data["needed"]) > 1:
        text = f"{quorum.data['fit']} of the {quorum.data['needed']} pods that have to start together find a place"
        return f"{text}; {closest}" if closest and not found.requests else text
    causes = [reason for reason in reasons if reason.type not in ("DevicesUnavailable", "Quorum")]
    devices = [reason for reason in causes if "request" in reason.data]
    if devices:
        return devices[0].message
    return closest or (causes or list(reasons))[0].message


def _plain(reasons: Sequence[Reason]) -> str:
    """The first cause that says all by itself; what is wrong with a volume before that it is not bound."""
    plain = [reason for reason in reasons if reason.type in _PLAIN]
    better = [reason for reason in plain if reason.type in ("StorageClassMissing", "NoProvisioner")]
    unbound = bool(plain) and plain[0].type == "VolumeUnbound"
    return (better if better and unbound else plain)[0].message if plain else ""


def _failing(found: Diagnosis) -> str:
    """A selector that cannot be evaluated, and on how many devices: the whole attempt ends there."""
    for funnel in found.requests:
        for stage in funnel.stages:
            if stage.errors:
                what = f"selector {brief(stage.expression)} of request {funnel.asked.title} cannot be evaluated"
                return f"{what} on {counted(stage.errors, 'device')}: {stage.error}"
    return ""


def _short(verdict: Verdict, funnel: Funnel, found: Diagnosis) -> str:
    count, most = funnel.asked.count or 0, funnel.most_on_node or 0
    if 0 < most < count:
        return f"request {funnel.asked.title} asks for {count} devices on one node: no node has more than {most}"
    what = f"{funnel.needed} {'is' if funnel.needed == 1 else 'are'} needed"
    selected = next((s.left for s in reversed(funnel.stages) if _is_for_good(s)), 0)
    if verdict in ("NeverFits", "FitsIf") and selected < (funnel.needed or 0):
        have = counted(selected, "device") if selected else "no device"
        why = next(
            (
                f" ({dropped_text(funnel, stage)})"
                for stage in reversed(funnel.stages)
                if stage.dropped and stage.stage in ("class", "selector", "capacity", "node")
            ),
            "",
        )
        return f"the whole cluster has {have} for request {funnel.asked.title}, {what}{why}"
    if verdict == "NeverFits" and funnel.stages[-1].stage in ("free", "counters") and (told := _elsewhere(found)):
        return told
    have = counted(funnel.free, "device") if funnel.free else "no device"
    verb = "is" if funnel.free <= 1 else "are"
    last = funnel.stages[-1]
    if last.stage == "scattered":
        return f"{_apart(funnel, last, 'where a claim needs them')}, {what}"
    if last.stage == "constraints":
        return f"{_apart(funnel, last, f'as {last.expression} wants them')}, {what}"
    away = next((stage for stage in funnel.stages if stage.stage == "nodes"), None)
    if away is not None and funnel.free + away.dropped >= (funnel.needed or 0):
        only = _only_wanted(found.nodes)
        if only:
            return only
        where = ", ".join(f"{why} {many}" for why, many in list(away.nodes.items())[:2])
        return f"{_on_nodes(funnel, away)}, {what} ({where})"
    if last.stage == "nodes":
        return f"{have} can be used for request {funnel.asked.title}, {what}: {funnel.short} short"
    return f"{have} {verb} free for request {funnel.asked.title}, {what}: {funnel.short} short"


def _only_wanted(nodes: Sequence[NodeGroup]) -> str:
    """What the only node says that the pod asks for."""
    wanted = [group for group in nodes if not _is_unwanted(group)]
    if len(wanted) != 1 or wanted[0].count != 1 or len(nodes) < 2:
        return ""
    return f"{wanted[0].text} (the only node that the pod may go to)"


def _elsewhere(found: Diagnosis) -> str:
    """What nodes say if none of them would serve the pod once all is free that is held now."""
    if any(all(_is_held(reason, group) for reason in group.reasons) for group in found.nodes):
        return ""
    return _only_wanted(found.nodes) or _closest(found)


def _is_held(reason: Reason, group: NodeGroup) -> bool:
    """Whether a node lacks what others hold there."""
    if reason.type in ("InsufficientResource", "TooManyPods"):
        return bool(reason.data["requested"] <= reason.data["allocatable"])
    return reason.type == "DevicesUnavailable" and bool(group.devices and group.devices.selected)


def _is_for_good(stage: FunnelStage) -> bool:
    """Whether what the stage excludes would not do either if nobody used it."""
    return stage.stage in ("devices", "class", "selector") or (stage.stage == "capacity" and not stage.holders)


def _apart(funnel: Funnel, stage: FunnelStage, where: str) -> str:
    """How many of the free devices can be had together."""
    count, free = funnel.asked.count or 1, funnel.free + stage.dropped
    some = f"only {funnel.free} of them, {count} together," if funnel.free else f"no {count} of them together"
    some = some if count > 1 else f"only {funnel.free} of them" if funnel.free else "none of them"
    are = "device is" if free == 1 else "devices are"
    return f"{free} {are} free for request {funnel.asked.title}, but {some} {where}"


def _on_nodes(funnel: Funnel, away: FunnelStage) -> str:
    """How many of the free devices are on nodes that the pod can use."""
    free, title = funnel.free + away.dropped, funnel.asked.title
    if free == 1:
        return f"the only free device for request {title} is on a node that the pod cannot use"
    on = "is on a node" if funnel.free <= 1 else "are on nodes"
    return f"{funnel.free or 'none'} of the {free} free devices for request {title} {on} that the pod can use"


def _in_domains(reason: Reason, most: int) -> str:
    """No domain of the required topology has places for all members; `most` of them could be in one."""
    key, domains, needed = reason.data["topologyKey"], int(reason.data["placements"]), int(reason.data["needed"])
    text = f"no domain of {key} takes all {needed} pods"
    best = f"the best of {domains} takes" if domains > 1 else "the only one takes"
    return f"{text}: {best} {most}" if most < needed else f"{text} at once"


def _closest(found: Diagnosis) -> str:
    """What the nodes say that come closest."""
    refusing = [group for group in found.nodes if group.reasons]
    if not refusing:
        return ""
    if len(refusing) == 1 and not any(not group.reasons for group in found.nodes):
        group = refusing[0]
        return f"{group.text} ({'the only node' if group.count == 1 else f'all {group.count} nodes'})"
    told = refusing[:2]
    if all(map(_is_ruled_out, told)):
        # The nodes that the pod may go to are often few, and what they say is what has to change.
        told = [*[group for group in refusing if not _is_ruled_out(group)][:1], *told][:2]
    return "; ".join(f"{counted(group.count, 'node')}: {group.text}" for group in told)


def _is_ruled_out(group: NodeGroup) -> bool:
    """Whether the pod must not go there, however free these nodes are."""
    return all(reason.type in _RULES for reason in group.reasons)


def _is_unwanted(group: NodeGroup) -> bool:
    """Whether the pod itself asks for other nodes, as one of a DaemonSet asks for its own."""
    return bool(group.reasons) and all(reason.type in _ASKED for reason in group.reasons)


_ASKED = frozenset(("NodeNameMismatch", "NodeAffinityMismatch"))
_RULES = frozenset(("NodeUnschedulable", "NodeTaints")) | _ASKED
