"""An explanation in five lines: the verdict, what is missing, who holds it, the first remedy, where to read more."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from haru.explain.explanation import ExplanationData, Funnel, FunnelStage, HeldClaim, Remedy
from haru.explain.render.labels import labelled
from haru.explain.render.wording import amount_text, holders_text, later_text, left_word
from haru.explain.stories.values import DeviceStoryData, NodeStoryData, Wanting
from haru.kube.meta import Obj
from haru.kube.names import counted

_PARTS = {
    "free": "held",
    "counters": "blocked by another partition",
    "capacity": "without the capacity asked for",
    "taints": "tainted",
    "nodes": "free on nodes that the pod cannot use",
    "constraints": "free, but apart",
    "scattered": "free, but apart",
    "": "not matching",
}
_HOLDING = ("free", "counters", "capacity")
_MOST_DEVICES = 4
_KIND_WORDS = {"ResourceClaim": "claim"}


@dataclass(frozen=True, slots=True)
class Shortage:
    """What the work lacks most (`1 device of gpu.nvidia.com`), and the numbers that it comes from."""

    text: str
    numbers: str


def shortage(explanation: ExplanationData) -> Shortage | None:
    """What is missing in numbers; None where it is not a matter of numbers."""
    if explanation.verdict in ("Runs", "Starting"):
        return None
    funnel = _short_request(explanation)
    if funnel is not None:
        return Shortage(f"{counted(funnel.short or 0, 'device')} of {_class_of(funnel)}", _numbers(funnel))
    for reason in explanation.reasons:
        if reason.type == "TooFewMembers" and "members" in reason.data:
            have, need = int(reason.data["members"]), int(reason.data["minCount"])
            return Shortage(f"{counted(need - have, 'pod')} of the gang", f"{need} needed, {have} there")
        if reason.type == "Quorum" and 0 < int(reason.data["fit"]) < int(reason.data["needed"]):
            fit, need = int(reason.data["fit"]), int(reason.data["needed"])
            return Shortage(f"{counted(need - fit, 'place')} of {need}", f"{fit} of its pods find a place")
    return _resource_shortage(explanation)


def shortage_json(explanation: ExplanationData) -> Obj:
    """The field `shortBy`, where something is missing in numbers."""
    missing = shortage(explanation)
    return {} if missing is None else {"shortBy": {"text": missing.text, "numbers": missing.numbers}}


def _short_request(explanation: ExplanationData) -> Funnel | None:
    """The request that misses most devices; of alternatives the one that comes closest, where no other is short."""
    short = [f for f in explanation.requests if f.short and not f.error and not _is_free_elsewhere(f)]
    fixed = [funnel for funnel in short if not funnel.asked.alternative]
    if fixed:
        return max(fixed, key=lambda funnel: funnel.short or 0)
    is_closed = any(reason.type == "AlternativesExhausted" for reason in explanation.reasons)
    return min(short, key=lambda funnel: funnel.short or 0) if short and is_closed else None


def _is_free_elsewhere(funnel: Funnel) -> bool:
    """Tell whether enough devices are free, if only the pod could use their nodes."""
    elsewhere = sum(stage.dropped for stage in funnel.stages if stage.stage == "nodes")
    return bool(elsewhere) and funnel.free + elsewhere >= (funnel.needed or 0)


def _class_of(funnel: Funnel) -> str:
    return funnel.asked.resource or funnel.asked.device_class or f"request {funnel.asked.title}"


def _numbers(funnel: Funnel) -> str:
    """`6 needed; of 16 devices 5 are free, 11 held`: the parts make up the whole."""
    parts = dict.fromkeys(_PARTS.values(), 0)
    taints: dict[str, int] = {}
    for stage in funnel.stages:
        parts[_PARTS.get(stage.stage, _PARTS[""])] += stage.dropped
        taints.update(stage.taints)
    named = {_PARTS["taints"]: f"{_PARTS['taints']} {', '.join(list(taints)[:2])}".rstrip()}
    told = "".join(f", {count} {named.get(word, word)}" for word, count in parts.items() if count)
    are = "is" if funnel.free == 1 else "are"
    return (
        f"{funnel.needed} needed; of {counted(funnel.devices, 'device')} {funnel.free} {are} {left_word(funnel)}{told}"
    )


def _resource_shortage(explanation: ExplanationData) -> Shortage | None:
    """How much of a resource the node lacks that has most of it left; None if something else refuses the pod too."""
    best: dict[str, tuple[int, int]] = {}
    for group in explanation.nodes:
        if group.devices is not None and not group.devices.selected:
            continue  # without the devices that are asked for, no amount would do
        is_known = group.count == 1 or bool(group.left)
        only = is_known and all(r.type == "InsufficientResource" for r in group.reasons)
        for reason in group.reasons if only else ():
            name, asked = str(reason.data["resource"]), int(reason.data["requested"])
            left = max(0, group.left.get(name, int(reason.data["allocatable"]) - int(reason.data["used"])))
            best[name] = max(best.get(name, (0, asked)), (left, asked))
    if not best:
        return None
    name, (left, asked) = next(iter(best.items()))
    missing, most = amount_text(name, asked - left), amount_text(name, left)
    return Shortage(f"{name} {missing}", f"{amount_text(name, asked)} asked, the most left on a node is {most}")


def holding_stage(explanation: ExplanationData) -> FunnelStage | None:
    """The condition of the short request that devices break because others hold them."""
    funnel = _short_request(explanation)
    stages = funnel.stages if funnel is not None else ()
    return next((stage for name in _HOLDING for stage in stages if stage.stage == name and stage.holders), None)


def holding_text(stage: FunnelStage) -> str:
    """Who holds the devices that a condition excludes; parts of cards and shares are not counted one by one."""
    return holders_text(stage.holders, stage.unnamed, stage.dropped if stage.stage == "free" else None)


def answer_lines(explanation: ExplanationData) -> list[str]:
    """The verdict and what is missing, without the name of the work: the same wherever work that waits is told of."""
    missing = shortage(explanation)
    short = [f"short by {missing.text}: {missing.numbers}"] if missing is not None else []
    return [f"{explanation.verdict}: {explanation.summary}", *short]


def command_of(explanation: ExplanationData) -> str:
    """The command that explains the object again."""
    kind = _KIND_WORDS.get(explanation.kind, explanation.kind.lower())
    return f"haru explain {kind}/{explanation.name} -n {explanation.namespace}"


def title_text(explanation: ExplanationData) -> str:
    """The first line: what it is, the verdict, and the sentence that says why."""
    head = f"{explanation.kind} {explanation.namespace}/{explanation.name}: {explanation.verdict}"
    return f"{head}: {explanation.summary}" if explanation.summary else head


def remedy_text(remedy: Remedy) -> str:
    """The change, and the command that makes it."""
    doubt = "" if remedy.confirmed else " (not confirmed)"
    return f"{remedy.summary}{doubt}" + (f": {remedy.command}" if remedy.command else "")


def to_short(explanation: ExplanationData, command: str = "") -> str:
    """Five lines at most; `command` is the one that asked, without `--wide`."""
    return "\n".join(_lines(explanation, command or command_of(explanation))) + "\n"


def _lines(explanation: ExplanationData, command: str) -> Iterator[str]:
    yield title_text(explanation)
    missing, stage = shortage(explanation), holding_stage(explanation)
    yield from labelled("short by", [f"{missing.text}: {missing.numbers}"] if missing is not None else [])
    soon = later_text(explanation.later)
    holders = [holding_text(stage)] if stage is not None and not soon else []
    yield from labelled("later", soon)
    yield from labelled("held by", holders)
    yield from labelled("holds", _held(explanation.holds))
    yield from labelled("read", log_commands(explanation)[:1])
    yield from labelled("helps", [remedy_text(remedy) for remedy in explanation.remedies[:1]])
    yield from labelled("more", [_more(explanation, command)])


def log_commands(explanation: ExplanationData) -> list[str]:
    """The commands that print the logs of containers that ended."""
    return list(dict.fromkeys(str(r.data["command"]) for r in explanation.reasons if "command" in r.data))


def _held(holds: Sequence[HeldClaim]) -> list[str]:
    """All that it holds in one line."""
    devices = [device for held in holds for device in held.devices]
    if not devices:
        return []
    products = Counter(device.product or device.driver for device in devices)
    what = ", ".join(f"{count} × {product}" for product, count in products.items())
    names = ", ".join(f"{device.pool}/{device.device}" for device in devices[:_MOST_DEVICES])
    more = f" and {len(devices) - _MOST_DEVICES} more" if len(devices) > _MOST_DEVICES else ""
    return [f"{what}: {names}{more}"]


def _more(explanation: ExplanationData, command: str) -> str:
    others = len(explanation.remedies) - 1
    parts = [
        counted(others, "other remedy") if others > 0 else "",
        counted(len(explanation.requests), "request") if explanation.requests else "",
        counted(len(explanation.nodes), "group") + " of nodes" if explanation.nodes else "",
        counted(len(explanation.holds), "claim") if explanation.holds else "",
    ]
    told = ", ".join(part for part in parts if part)
    return f"{command} --wide" + (f" ({told})" if told else "")


def node_short(story: NodeStoryData, command: str = "") -> str:
    """A node in five lines."""
    return "\n".join(_node(story, command or f"haru explain node/{story.name}")) + "\n"


def _node(story: NodeStoryData, command: str) -> Iterator[str]:
    yield f"Node {story.name}: {story.state}: {story.summary}"
    holding = [holder for holder in story.workloads if holder.devices]
    yield from labelled("held by", [holders_text(holding)] if holding else [])
    yield from labelled("runs", [holders_text(story.workloads)] if story.workloads and not holding else [])
    left = [f"{a.resource} {amount_text(a.resource, a.free)}" for a in story.resources]
    yield from labelled("free", [", ".join(left)] if left else [])
    yield from labelled("waiting", _waiting(story.waiting, story.more_waiting))
    yield from labelled("more", [f"{command} --wide ({counted(len(story.devices), 'device')})"])


def device_short(story: DeviceStoryData, command: str = "") -> str:
    """A device in five lines."""
    return "\n".join(_device(story, command or f"haru explain device/{story.state.path}")) + "\n"


def _device(story: DeviceStoryData, command: str) -> Iterator[str]:
    state = story.state
    yield f"Device {state.path}: {state.status}: {story.summary}"
    yield from labelled("held by", [holders_text(state.holders)] if state.holders else [])
    yield from labelled("taints", [", ".join(state.taints)] if state.taints else [])
    yield from labelled("waiting", _waiting(story.waiting, story.more_waiting))
    parts = f" ({counted(len(story.beside), 'other part')} of the same card)" if story.beside else ""
    yield from labelled("more", [f"{command} --wide{parts}"])


def _waiting(units: Sequence[Wanting], more: int) -> list[str]:
    """The most urgent work that waits for it, and how much there is besides."""
    if not units:
        return []
    first = units[0]
    why = "would fit" if first.takes else "does not fit"
    reason = f": {first.reasons[0].message.removeprefix('node(s) ')}" if first.reasons else ""
    others = len(units) - 1 + more
    return [f"{first.title}: {why}{reason}" + (f"; and {others} more" if others else "")]
