"""Events as a scheduler tells them: the same again within minutes is a series, not another event.

Events are the same if all is but their message, which is that of the first. The second raises `series.count` to 2, all
later ones are counted here. A series is written every half hour, so that it does not expire, and once more when nothing
was added for six minutes; then the next one is an event of its own. An object that keeps causing others is held to a
trickle as by any recorder. What is remembered is bounded: the count of a series that many others displace is not
written.
Source: client-go `tools/events`, which has no bounds.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import datetime, timedelta

from haru.client.events import EventRecorder, Key, Waiting, Written, shortened
from haru.event_loop import cancelled
from haru.kube.errors import StatusError
from haru.kube.meta import Obj
from haru.kube.names import format_micro_time

_log = logging.getLogger(__name__)

_FINISH = timedelta(minutes=6)
_REFRESH_ROUNDS = 5
"""Half an hour, in rounds of six minutes."""


class SeriesRecorder(EventRecorder):
    """Writes events in the form of events.k8s.io/v1."""

    _series_task: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Write what is left, then stop."""
        await super().close()
        if self._series_task is not None:
            await cancelled(self._series_task)

    def _record(self, event: Obj) -> None:
        event["message"] = shortened(event["message"])
        key = _key(event)
        known = self._written.get(key)
        if known is not None:
            now = self._now()
            if known.count > 1:
                known.count, known.last = known.count + 1, now
                return
            if now - known.last > _FINISH:
                del self._written[key]
        self._take(key, event, self._admitted(event)[1])

    def _content(self, waiting: Waiting) -> Obj:
        kept = {name: value for name, value in waiting.event.items() if name != "source"}
        return {**kept, "series": _series(waiting.count, waiting.last)} if waiting.count > 1 else kept

    def _repeated(self, known: Written, waiting: Waiting) -> Obj:
        return {"series": _series(known.count + waiting.count, waiting.last)}

    def _keep(self, key: Key, name: str, waiting: Waiting, count: int) -> None:
        super()._keep(key, name, waiting, count)
        if count > 1 and (self._series_task is None or self._series_task.done()):
            task = asyncio.get_running_loop().create_task(
                self._write_series(), name=f"events in series {self._component}"
            )
            self._series_task = task

    async def _write_series(self) -> None:
        """Write the counts of series until all have ended."""
        rounds = 0
        while any(known.count > 1 for known in self._written.values()):
            await asyncio.sleep(_FINISH.total_seconds())
            rounds += 1
            for key, known in [*self._written.items()]:
                is_over = self._now() - known.last > _FINISH
                if known.count > 1 and (is_over or rounds % _REFRESH_ROUNDS == 0):
                    await self._write_count(key, known, is_over)

    async def _write_count(self, key: Key, known: Written, is_over: bool) -> None:
        patch = {"series": _series(known.count, known.last)}
        try:
            await self._client.patch(self._kind, known.name, patch, _namespace(key))
        except OSError as error:
            _log.debug("series of %s is not written yet: %s", known.name, error)
            return
        except StatusError as error:
            _log.debug("series of %s was not written: %s", known.name, error)
        if is_over:
            self._written.pop(key, None)


def _series(count: int, last: datetime) -> Obj:
    return {"count": count, "lastObservedTime": format_micro_time(last)}


def _key(event: Obj) -> Key:
    """What equal events have in common: all but their message and time."""
    about, related = event["involvedObject"], event.get("related")
    of = tuple(about.items()), tuple(related.items()) if related else None
    return about.get("namespace"), *of, event["type"], event["reason"], event["action"], event["reportingComponent"]


def _namespace(key: Key) -> str:
    return key[0] or "default"
