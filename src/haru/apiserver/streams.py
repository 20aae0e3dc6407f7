"""Keep the open streams of one server, to close them when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from haru.kube.kinds import Kind
from haru.storage import Watch

_LAST_EVENTS_SECONDS = 1.0
"""So long watches of what is served no longer go on: they show what came before, and requests on their way begin."""


class Closable(Protocol):
    """A stream that the server closes when it stops."""

    def close(self) -> None:
        """End the stream."""


class OpenStreams:
    """Hold the watches and the forwarded connections that clients have open."""

    def __init__(self) -> None:
        self.watches: dict[Watch, Kind | None] = {}
        self.others: set[Closable] = set()
        self.stopping = False

    def follow(self, watch: Watch, kind: Kind | None = None) -> Watch:
        """Register the watch of a stream; with a kind, of one that shows its objects."""
        if self.stopping:
            watch.close()
        self.watches[watch] = kind
        return watch

    def leave(self, watch: Watch) -> None:
        """Forget a watch that has ended."""
        self.watches.pop(watch, None)

    def withdraw(self, kinds: Iterable[Kind]) -> None:
        """End soon what watches kinds that are served no longer."""
        if places := {_place(kind) for kind in kinds}:
            asyncio.get_running_loop().call_later(_LAST_EVENTS_SECONDS, self._end, places)

    def _end(self, places: set[tuple[str, str]]) -> None:
        for watch, kind in list(self.watches.items()):
            if kind is not None and _place(kind) in places:
                watch.close()

    def add(self, stream: Closable) -> None:
        """Register a stream that no watch ends; closed at once if the server is stopping."""
        self.others.add(stream)
        if self.stopping:
            stream.close()

    def discard(self, stream: Closable) -> None:
        """Forget a stream that has ended."""
        self.others.discard(stream)

    def stop(self) -> None:
        """Close every open stream, and each stream that starts later."""
        self.stopping = True
        for each in (*self.watches, *self.others):
            each.close()
        self.watches = {}


def _place(kind: Kind) -> tuple[str, str]:
    return kind.api_version, kind.plural
