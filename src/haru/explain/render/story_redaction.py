"""Remove the names of other namespaces' objects from the stories of nodes and devices, and from lists of what waits."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from haru.engine import Snapshot
from haru.explain.pending_list import PendingList
from haru.explain.render.redaction import HiddenWords, named_namespaces, redacted, shown_holders
from haru.explain.results import DeviceStory, NodeStory
from haru.explain.stories.values import DeviceState, Wanting


def namespaces_in_story(story: NodeStory | DeviceStory) -> tuple[str, ...]:
    """Return the namespaces whose objects a story names."""
    holders = [holder for device in _devices(story) for holder in device.holders]
    holders += story.workloads if isinstance(story, NodeStory) else ()
    found = [*(holder.namespace for holder in holders), *(unit.namespace for unit in story.waiting)]
    return tuple(dict.fromkeys(filter(None, found)))


def namespaces_in_list(found: PendingList) -> tuple[str, ...]:
    """Return the namespaces whose objects a list names."""
    named = [each for row in found.rows for each in (row.namespace, *named_namespaces(row.explanation))]
    return tuple(dict.fromkeys(named))


def redacted_story(
    story: NodeStory | DeviceStory, snapshot: Snapshot, shown: Collection[str]
) -> NodeStory | DeviceStory:
    """Return the story as somebody may read it who may see the objects of the namespaces `shown` only."""
    waiting = tuple(unit for unit in story.waiting if unit.namespace in shown)
    more = story.more_waiting + len(story.waiting) - len(waiting)
    reasons = [*story.reasons, *(reason for unit in waiting for reason in unit.reasons)]
    words = HiddenWords.among(reasons, (story.summary,), _public(story), snapshot, shown)
    told = replace(
        story,
        summary=words.hidden(story.summary),
        reasons=tuple(map(words.reason, story.reasons)),
        waiting=tuple(_unit(unit, words) for unit in waiting),
        more_waiting=more,
    )
    if isinstance(told, NodeStory):
        return replace(told, devices=_states(told.devices, shown), workloads=shown_holders(told.workloads, shown))
    [state] = _states((told.state,), shown)
    return replace(told, state=state, beside=_states(told.beside, shown))


def redacted_list(found: PendingList, snapshot: Snapshot, shown: Collection[str]) -> PendingList:
    """Return the list without the names of hidden namespaces; those of a row's own namespace stay."""
    rows = (
        replace(row, explanation=redacted(row.explanation, snapshot, {row.namespace, *shown})) for row in found.rows
    )
    return replace(found, rows=tuple(rows))


def _devices(story: NodeStory | DeviceStory) -> Iterable[DeviceState]:
    return story.devices if isinstance(story, NodeStory) else (story.state, *story.beside)


def _states(devices: Iterable[DeviceState], shown: Collection[str]) -> tuple[DeviceState, ...]:
    return tuple(replace(device, holders=shown_holders(device.holders, shown)) for device in devices)


def _unit(unit: Wanting, words: HiddenWords) -> Wanting:
    return replace(
        unit, reasons=tuple(map(words.reason, unit.reasons)), requests=tuple(map(words.hidden, unit.requests))
    )


def _public(story: NodeStory | DeviceStory) -> set[str]:
    """The words that are names of nodes and devices, or of what is shown."""
    found = {part for device in _devices(story) for part in (device.driver, device.pool, device.device)}
    return found | (set(story.nodes) if isinstance(story, DeviceStory) else {story.name})
