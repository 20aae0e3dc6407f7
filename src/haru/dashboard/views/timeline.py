"""The timeline of objects, from conditions and events, the latest first; equal entries are merged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from haru.kube.meta import Obj

_CREATED = "Created"
_TOGETHER = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry about `count` objects of a kind, one of them `name`. `time` is RFC 3339."""

    time: str
    kind: str
    name: str
    reason: str
    message: str
    warning: bool = False
    count: int = 1
    times: int = 1
    """How often it happened to the one object."""


def timeline(objects: Iterable[Obj], events: Iterable[Obj]) -> tuple[Entry, ...]:
    """Make the timeline of objects from them and their events."""
    found: list[Entry] = [entry for obj in objects for entry in _conditions(obj)]
    found += [_event(event) for event in events]
    return tuple(_merged(sorted(found, key=lambda e: (e.time, e.reason != _CREATED, e.kind, e.name, e.reason))))[::-1]


def _conditions(obj: Obj) -> Iterator[Entry]:
    metadata = obj["metadata"]
    name, kind = str(metadata["name"]), str(obj["kind"])
    if metadata.get("creationTimestamp"):
        yield Entry(str(metadata["creationTimestamp"]), kind, name, _CREATED, "")
    for condition in (obj.get("status") or {}).get("conditions") or ():
        when = condition.get("lastTransitionTime")
        if when:
            title = str(condition["type"]) + (
                "" if condition.get("status") == "True" else f" {condition.get('status')}"
            )
            reason, message = condition.get("reason") or "", condition.get("message") or ""
            text = f"{reason}: {message}" if reason and message else str(reason or message)
            bad = condition.get("status") == "False" and condition.get("type") == "PodScheduled"
            yield Entry(
                str(when), kind, name, title, text, bad or condition.get("type") in ("Failed", "DisruptionTarget")
            )


def _event(event: Obj) -> Entry:
    about: Mapping[str, Any] = event.get("involvedObject") or {}
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("lastTimestamp"), event.get("eventTime"))
    when = next((str(time) for time in times if time), str(event["metadata"].get("creationTimestamp") or ""))
    return Entry(
        _seconds(when),
        str(about.get("kind") or ""),
        str(about.get("name") or ""),
        str(event.get("reason") or ""),
        str(event.get("message") or ""),
        event.get("type") == "Warning",
    )


def _seconds(time: str) -> str:
    """`2026-01-02T03:04:05.123456Z` without the part below a second, so that texts sort as times."""
    return f"{time.partition('.')[0].removesuffix('Z')}Z" if time else ""


def _merged(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Merge entries of some seconds that differ only in names of objects."""
    open_groups: dict[tuple[object, ...], list[Entry]] = {}
    groups: list[list[Entry]] = []
    for entry in entries:
        key = (entry.kind, entry.reason, _without_names(entry), entry.warning)
        group = open_groups.get(key)
        if group is None or _apart(group[0].time, entry.time):
            group = open_groups[key] = []
            groups.append(group)
        group.append(entry)
    for group in groups:
        first, names = group[0], {entry.name for entry in group}
        times = len(group) if len(names) == 1 else 1
        yield Entry(first.time, first.kind, first.name, first.reason, first.message, first.warning, len(names), times)


def _without_names(entry: Entry) -> str:
    """A message without the name of its object, and without names that were made from that."""
    if not entry.name:
        return entry.message
    text = re.sub(rf"{re.escape(entry.name)}[\w.-]*", "…", entry.message)
    return re.sub(r"(?<=to )\S+$", "…", text) if entry.reason == "Scheduled" else text


def _apart(one: str, other: str) -> bool:
    """Whether two times are so far apart that they are told of separately."""
    try:
        return abs(datetime.fromisoformat(other) - datetime.fromisoformat(one)) > _TOGETHER
    except ValueError:
        return one != other
