"""Events: what happened to an object, for its reader - never in the way of the one who tells.

Recording never blocks and never raises: events go through a bounded queue to a task that writes them. The same event
again raises `count` of the one that stands, or that waits to be written; many similar ones of an object are folded into
one; an object that keeps causing events is held to a trickle, whose counts include those that were held back.
Source: client-go `tools/record` (the 10th similar within 10 minutes of the last; for each component, object and type
bursts of 25, then one every 5 minutes; 12 tries).
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from cachetools import LRUCache

from haru.client.api import ApiClient
from haru.clock import utc_now
from haru.event_loop import cancelled
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.names import format_micro_time, format_time

_log = logging.getLogger(__name__)

EventType = Literal["Normal", "Warning"]

# client-go has 1,000, but writes as many at once as there are; here one is written after the other.
_QUEUE = 20_000
_REMEMBERED = 4096
_APART = 9
"""So many similar events stand for themselves; others are folded."""
_SIMILAR_SECONDS = 600.0
_BURST = 25.0
_REFILL_PER_SECOND = 1 / 300
_MAX_MESSAGE = 1024
_TRIES = 12
_PAUSE_SECONDS = 10.0
"""How often an event is tried to be written to an API that does not answer, and after what pauses."""


@dataclass(slots=True)
class _Similar:
    last: float
    messages: tuple[str, ...] = ()


@dataclass(slots=True)
class _Told:
    """What a component told of an object in events of one type: how many more it may have, and messages by reason."""

    tokens: float
    at: float
    similar: dict[str, _Similar] = field(default_factory=dict)


@dataclass(slots=True)
class Written:
    """An event that the API has, how often it has happened, and when at last."""

    name: str
    count: int
    last: datetime


@dataclass(slots=True)
class Waiting:
    """An event that waits to be written, and how often it has happened since the first time."""

    event: Obj
    first: datetime
    last: datetime
    count: int = 0
    name: str = ""
    """Once it was tried to write it."""


Key = tuple[Any, ...]


class Correlator:
    """Decides whether an event is written, and under which message (no clock of its own)."""

    def __init__(self) -> None:
        self._objects: LRUCache[Key, _Told] = LRUCache(_REMEMBERED)

    def admit(self, about: Key, type: str, reason: str, message: str, now: float) -> tuple[str, bool]:
        """The message to write, and whether it may be written: not if there are too many events."""
        told = self._objects.setdefault((*about, type), _Told(_BURST, now))
        similar = told.similar.setdefault(reason, _Similar(now))
        if now - similar.last > _SIMILAR_SECONDS:
            similar.messages = ()
        similar.last = now
        if message not in similar.messages:
            if len(similar.messages) < _APART:
                similar.messages += (message,)
            else:
                message = f"(combined from similar events): {message}"
        told.tokens = min(_BURST, told.tokens + (now - told.at) * _REFILL_PER_SECOND)
        told.at = now
        may_be_written = told.tokens >= 1
        told.tokens -= may_be_written
        return message, may_be_written


class EventRecorder:
    """Writes events as `component`, in the name of a `host` if it is a node's."""

    def __init__(
        self,
        client: ApiClient,
        component: str,
        *,
        instance: str = "",
        host: str = "",
        now: Callable[[], datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        kind = kinds.lookup("", "v1", "events")
        assert kind is not None
        self._kind = kind
        self._client = client
        self._component = component
        self._host = {"host": host} if host else {}
        self._instance = instance or f"{component}-{socket.gethostname()}"
        self._now, self._monotonic = now, monotonic
        self._correlator = Correlator()
        self._queue: asyncio.Queue[Key] = asyncio.Queue(_QUEUE)
        self._waiting: dict[Key, Waiting] = {}
        """What is in the queue."""
        self._held_back: LRUCache[Key, Waiting] = LRUCache(_REMEMBERED)
        """What was one too many, for the next time."""
        self._written: LRUCache[Key, Written] = LRUCache(_REMEMBERED)
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        self._has_told = False
        """That events are dropped, since the queue was empty."""
        self.dropped = 0

    def event(
        self,
        obj: Mapping[str, Any],
        type: EventType,
        reason: str,
        message: str,
        action: str = "",
        related: Mapping[str, Any] | None = None,
        component: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Tell that something happened to `obj`, in the name of another `component` if given; best effort."""
        try:
            source = component or self._component
            self._record(
                {
                    "involvedObject": reference_of(obj),
                    "type": type,
                    "reason": reason,
                    "message": message,
                    "source": {"component": source, **self._host},
                    "reportingComponent": source,
                    "reportingInstance": self._instance,
                    # An event with an eventTime must name an action.
                    "action": action or reason,
                    **({} if related is None else {"related": reference_of(related)}),
                    **({"metadata": {"annotations": dict(annotations)}} if annotations else {}),
                }
            )
        except Exception:
            self.dropped += 1
            _log.debug("event %s was dropped", reason, exc_info=True)

    def _record(self, event: Obj) -> None:
        text, may_be_written = self._admitted(event)
        event["message"] = shortened(text)
        self._take(_key(event), event, may_be_written)

    def _admitted(self, event: Obj) -> tuple[str, bool]:
        """The message to write, and whether it may be written."""
        subject = event["source"]["component"], *_subject(event["involvedObject"])
        return self._correlator.admit(subject, event["type"], event["reason"], event["message"], self._monotonic())

    def _take(self, key: Key, event: Obj, may_be_written: bool) -> None:
        """Have an event written, or hold it back."""
        now, waits = self._now(), key in self._waiting
        before = self._waiting if waits else self._held_back
        waiting = before[key] if key in before else Waiting(event, now, now)
        waiting.event, waiting.last = event, now
        waiting.count += 1
        if waits:
            return
        if not may_be_written or self._queue.full():
            self.dropped += 1
            self._held_back[key] = waiting
            self._warn_if_full()
            return
        self._held_back.pop(key, waiting)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._write_all(), name=f"events {self._component}")
        self._waiting[key] = waiting
        self._queue.put_nowait(key)

    def _warn_if_full(self) -> None:
        if self._queue.full() and not self._has_told:
            self._has_told = True
            _log.warning("%d events wait to be written: more are dropped", self._queue.maxsize)

    async def flush(self, timeout: float = 5.0) -> None:
        """Wait until what was told so far is written, at most `timeout` seconds."""
        if self._task is None or self._task.done():
            return
        try:
            async with asyncio.timeout(timeout):
                await self._queue.join()
        except TimeoutError:
            _log.debug("%d events were not written in time", self._queue.qsize())

    async def close(self) -> None:
        """Write what is left, then stop."""
        await self.flush(2.0)
        if self._task is not None:
            await cancelled(self._task)
            self._task = None

    async def _write_all(self) -> None:
        while True:
            key = await self._queue.get()
            waiting = self._waiting.pop(key)
            try:
                await self._write_patiently(key, waiting)
            except (StatusError, OSError) as error:
                self.dropped += waiting.count
                _log.debug("event %s was not written: %s", waiting.event["reason"], error)
            except Exception:
                self.dropped += waiting.count
                _log.exception("event %s was not written", waiting.event["reason"])
            finally:
                self._queue.task_done()
                self._has_told = self._has_told and not self._queue.empty()

    async def _write_patiently(self, key: Key, waiting: Waiting) -> None:
        """Write an event; again, under its name, while the API does not answer."""
        for _ in range(_TRIES - 1):
            try:
                return await self._write(key, waiting)
            except OSError as error:
                _log.debug("event %s is not written yet: %s", waiting.event["reason"], error)
                await asyncio.sleep(_PAUSE_SECONDS)
        return await self._write(key, waiting)

    async def _write(self, key: Key, waiting: Waiting) -> None:
        namespace, known = namespace_of(waiting.event), self._written.get(key)
        if known is not None:
            try:
                await self._client.patch(self._kind, known.name, self._repeated(known, waiting), namespace)
            except StatusError as error:
                if error.code != 404:
                    raise
            else:
                self._keep(key, known.name, waiting, known.count + waiting.count)
                return
        name, is_first = waiting.name or self._new_name(waiting), not waiting.name
        waiting.name = name
        body = self._content(waiting)
        body["metadata"] = {"name": name, "namespace": namespace, **body.get("metadata", {})}
        # eventTime: events.k8s.io/v1 requires it, and strict clients do not read lists where it is missing.
        body["eventTime"] = format_micro_time(waiting.first)
        try:
            await self._client.create(self._kind, {"apiVersion": "v1", "kind": "Event", **body})
        except StatusError as error:
            if is_first or error.code != 409:
                raise  # else it was written when nobody heard the answer
        self._keep(key, name, waiting, waiting.count)

    def _content(self, waiting: Waiting) -> Obj:
        """A new event, with how often it has happened."""
        first, last = format_time(waiting.first), format_time(waiting.last)
        return {**waiting.event, "firstTimestamp": first, "lastTimestamp": last, "count": waiting.count}

    def _repeated(self, known: Written, waiting: Waiting) -> Obj:
        """The patch of an event that has happened again."""
        count, last = known.count + waiting.count, format_time(waiting.last)
        return {"count": count, "lastTimestamp": last, "message": waiting.event["message"]}

    def _keep(self, key: Key, name: str, waiting: Waiting, count: int) -> None:
        """Remember what was written."""
        self._written[key] = Written(name, count, waiting.last)

    def _new_name(self, waiting: Waiting) -> str:
        self._number += 1
        stamp = f"{int(waiting.first.timestamp() * 1e6) + self._number:x}"
        return f"{waiting.event['involvedObject'].get('name', '')[:220]}.{stamp}"


def _subject(about: Obj) -> Key:
    members = "apiVersion", "kind", "namespace", "name", "uid"
    return tuple(about.get(member) for member in members)


def namespace_of(event: Obj) -> str:
    """Where an event is written."""
    return event["involvedObject"].get("namespace") or "default"


def _key(event: Obj) -> Key:
    """What an event has in common with the same one later; folded events differ in their text only."""
    about, message = event["involvedObject"], event["message"]
    kind = event["source"]["component"], event["type"], event["reason"]
    if message.startswith("(combined"):
        return (*_subject(about), *kind)
    return (*_subject(about), about.get("fieldPath"), *kind, message)


def reference_of(obj: Mapping[str, Any]) -> Obj:
    """An ObjectReference to an object, or to what of it `fieldPath` names."""
    metadata = obj.get("metadata") or {}
    reference = {
        "apiVersion": obj.get("apiVersion", ""),
        "kind": obj.get("kind", ""),
        "namespace": metadata.get("namespace", ""),
        "name": metadata.get("name", ""),
        "uid": metadata.get("uid", ""),
        "resourceVersion": metadata.get("resourceVersion", ""),
        "fieldPath": obj.get("fieldPath", ""),
    }
    return {k: v for k, v in reference.items() if v}


def shortened(message: str) -> str:
    """A message of at most as many bytes as events may have."""
    data = message.encode()
    return message if len(data) <= _MAX_MESSAGE else data[: _MAX_MESSAGE - 3].decode("utf-8", "ignore") + "..."
