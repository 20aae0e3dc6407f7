"""Keep the open streams of one server, to close them when it stops."""

from __future__ import annotations

from typing import Protocol

from haru.storage import Watch


class Closable(Protocol):
    """A stream that the server closes when it stops."""

    def close(self) -> None:
        """End the stream."""


class OpenStreams:
    """Hold the watches and the forwarded connections that clients have open."""

    def __init__(self) -> None:
        self.watches: set[Watch] = set()
        self.others: set[Closable] = set()
        self.stopping = False

    def follow(self, watch: Watch) -> Watch:
        """Register the watch of a stream."""
        if self.stopping:
            watch.close()
        self.watches.add(watch)
        return watch

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
        self.watches = set()
