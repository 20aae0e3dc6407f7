"""The stories of nodes and devices as text that a person reads in ten seconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from haru.engine import Reason
from haru.explain.card_counts import WHOLE
from haru.explain.render.columns import Block, Table, blocks_text
from haru.explain.render.labels import labelled
from haru.explain.render.wording import amount_text, holders_text, quoted
from haru.explain.stories.values import DeviceState, DeviceStoryData, Draw, NodeStoryData, Wanting
from haru.kube.names import counted
from haru.kube.quantity import Quantity

_MOST_DEVICES = 16
_MOST_WORKLOADS = 6
_MOST_WAITING = 8
_MOST_VALUES = 12
_MOST_REASONS = 3
_WORDS = {"Blocked": "parts of it taken"}


def node_text(story: NodeStoryData) -> str:
    """The lines of a node's story."""
    return blocks_text(node_blocks(story))


def device_text(story: DeviceStoryData) -> str:
    """The lines of a device's story."""
    return "\n".join(_device(story))


def node_blocks(story: NodeStoryData) -> Iterator[Block]:
    """The lines of a node's story, its devices as a table."""
    yield f"Node {story.name}: {story.state}: {story.summary}"
    yield from labelled("because", [r.message for r in story.reasons if r.message not in story.summary])
    pods = [f", {counted(len(holder.pods), 'pod')}" if holder.pods else "" for holder in story.workloads]
    workloads = [holders_text([holder]) + text for holder, text in zip(story.workloads, pods, strict=True)]
    yield from labelled("holds", _shortened(workloads, _MOST_WORKLOADS, "workload"))
    yield from labelled("room", [_room(story)] if story.resources else [])
    yield from labelled("cards", [cards_text(story)] if story.cards is not None else [])
    if story.devices:
        more = len(story.devices) - _MOST_DEVICES
        yield from labelled(
            "devices",
            [counted(len(story.devices), "device") + (f", {_MOST_DEVICES} of them shown:" if more > 0 else "")],
        )
        yield _device_table(story.devices[:_MOST_DEVICES])
    yield from labelled("waiting", _waiting(story.waiting, story.more_waiting))


def _device_table(devices: Sequence[DeviceState]) -> Table:
    rows: list[tuple[str, ...]] = [
        (
            device.device,
            device.product,
            _WORDS.get(device.status, device.status.lower()),
            holders_text(device.holders).replace(" 1 (", " (") if device.holders else "",
            ", ".join(device.taints),
        )
        for device in devices
    ]
    return ("DEVICE", "PRODUCT", "STATUS", "BY", "TAINTS"), rows


def cards_text(story: NodeStoryData) -> str:
    """`8: 5 free, 0 reserved, 3 held (…), 0 unavailable`: the numbers of `haru top`."""
    if story.cards is None:
        return ""
    return f"{story.cards.total / WHOLE:g}: {story.cards}"


def _room(story: NodeStoryData) -> str:
    amounts = [
        f"{a.resource} {amount_text(a.resource, a.free)} of {amount_text(a.resource, a.allocatable)}"
        for a in story.resources
    ]
    return f"{', '.join(amounts)} left"


def _device(story: DeviceStoryData) -> Iterator[str]:
    state = story.state
    yield f"Device {state.path}: {state.status}: {story.summary}"
    nodes = ", ".join(story.nodes[:4]) + (f" and {len(story.nodes) - 4} more" if len(story.nodes) > 4 else "")
    yield from labelled("on", [nodes])
    yield from labelled("claims", [claim for holder in state.holders for claim in holder.claims][:_MOST_DEVICES])
    by = {text: f" (DeviceTaintRule {rule})" for text, rule in story.rules.items()}
    yield from labelled("taints", [text + by.get(text, "") for text in state.taints])
    yield from labelled("counters", _shortened([_draw(draw) for draw in state.draws], _MOST_DEVICES, "counter"))
    parts = [device for device in story.beside if device.status in ("Held", "Shared")]
    free = len(story.beside) - len(parts)
    rest = [f"{counted(free, 'other part')} of it not held"] if free else []
    yield from labelled("beside", [*_shortened([_state(part) for part in parts], _MOST_DEVICES, "part"), *rest])
    yield from labelled("is", [", ".join(_values(story))] if story.attributes or story.capacity else [])
    yield from labelled("waiting", _waiting(story.waiting, story.more_waiting))


def _values(story: DeviceStoryData) -> list[str]:
    values = [f"{name} {quoted(value)}" for name, value in sorted(story.attributes.items())]
    values += [f"{name} {text}" for name, text in sorted(story.capacity.items())]
    return [*values[:_MOST_VALUES], "…"] if len(values) > _MOST_VALUES else values


def _draw(draw: Draw) -> str:
    needs, left, total = (Quantity(value, "BinarySI") for value in (draw.needs, draw.left, draw.total))
    return f"{draw.counter}: takes {needs}, {left} of {total} left" + (": too little" if draw.left < draw.needs else "")


def _state(device: DeviceState) -> str:
    what = f"{device.device}{f' ({device.product})' if device.product else ''}"
    told = _WORDS.get(device.status, device.status.lower())
    if device.holders:
        told += f" by {holders_text(device.holders).replace(' 1 (', ' (')}"
    return f"{what}: {told}" + (f", tainted {', '.join(device.taints)}" if device.taints else "")


def _waiting(units: Sequence[Wanting], more: int) -> Iterable[str]:
    for unit in units[:_MOST_WAITING]:
        pods = f" ({counted(unit.pods, 'pod')}, priority {unit.priority})"
        shown = unit.reasons[:_MOST_REASONS]
        answer = "would fit" if unit.takes else "does not fit"
        yield f"{unit.title}{pods}: {answer}" + (f": {'; '.join(map(_reason, shown))}" if shown else "")
    left = more + len(units[_MOST_WAITING:])
    if left:
        yield f"and {left} more"


def _reason(reason: Reason) -> str:
    """Kubernetes' own message says no numbers."""
    if reason.type not in ("InsufficientResource", "TooManyPods"):
        return reason.message.removeprefix("node(s) ")
    name, data = str(reason.data["resource"]), reason.data
    left = max(0, int(data["allocatable"]) - int(data["used"]))
    return f"insufficient {name}: {amount_text(name, int(data['requested']))} asked, {amount_text(name, left)} left"


def _shortened(lines: Sequence[str], most: int, word: str) -> list[str]:
    return [*lines[:most], f"and {counted(len(lines) - most, word)} more"] if len(lines) > most else list(lines)
