"""The timeline of objects, from conditions and events, the latest first; equal entries are merged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from haru.kube.meta import Obj

_CREATED = "Created"


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
    """Merge entries of one second that differ only in the name of the object."""
    groups: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        text = entry.message.replace(entry.name, "…") if entry.name else entry.message
        groups.setdefault((entry.time, entry.kind, entry.reason, text, entry.warning), []).append(entry)
    for group in groups.values():
        first = group[0]
        names = {entry.name for entry in group}
        yield Entry(first.time, first.kind, first.name, first.reason, first.message, first.warning, len(names))
