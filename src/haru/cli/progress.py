"""Show a progress bar on stderr during a long command, on a terminal only."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TextIO

_WIDTH = 30
_EVERY_SECONDS = 0.1


class Progress:
    """So many steps, each of which may have parts. Nothing is shown where the stream is no terminal."""

    def __init__(self, steps: int, stream: TextIO, *, shown: bool = True) -> None:
        self._steps = max(steps, 1)
        self._stream = stream
        self._shown = shown and stream.isatty()
        self._finished = 0
        self._name = ""
        self._drawn = 0.0

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def begin(self, name: str) -> None:
        """A step of this name begins."""
        self._name = name
        self._draw(0.0)

    def part(self, done: int, of: int) -> None:
        """So much of the step is done."""
        if self._shown and time.monotonic() - self._drawn >= _EVERY_SECONDS:
            self._draw(done / max(of, 1))

    def done(self) -> None:
        """The step is done."""
        self._finished += 1

    def _draw(self, part: float) -> None:
        if not self._shown:
            return
        share = min((self._finished + part) / self._steps, 1.0)
        bar = "#" * round(share * _WIDTH)
        self._stream.write(f"\r\x1b[K[{bar:<{_WIDTH}}] {share:4.0%} {self._name}")
        self._stream.flush()
        self._drawn = time.monotonic()


@contextmanager
def working(text: str, stream: TextIO | None = None, *, after: float = 1.0) -> Iterator[Callable[[str], None]]:
    """Say on a terminal's stderr what is under way, and for how long, once it takes more than `after` seconds.

    What is yielded takes another text.
    """
    to = stream if stream is not None else sys.stderr
    told, ended, began = [text], threading.Event(), time.monotonic()

    def tell() -> None:
        pause = after
        while not ended.wait(pause):
            to.write(f"\r\x1b[K{told[0]}: {time.monotonic() - began:.0f} s")
            to.flush()
            pause = _EVERY_SECONDS
        if pause != after:
            to.write("\r\x1b[K")
            to.flush()

    if not to.isatty():
        yield lambda text: None
        return
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield lambda text: told.__setitem__(0, text)
    finally:
        ended.set()
        teller.join()
