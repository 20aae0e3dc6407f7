"""A terminal's line editing, for shells of simulated containers: echo, erase, end of input. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Typed(NamedTuple):
    """What follows from a key: what is echoed, and a line, if one is complete; `ends`: the input ends."""

    echo: bytes = b""
    line: str | None = None
    ends: bool = False


class LineInput:
    """Input to lines. With a terminal keys are echoed and edited; without one there are only line breaks."""

    def __init__(self, *, tty: bool) -> None:
        self._tty, self._line = tty, bytearray()

    def feed(self, data: bytes) -> Iterator[Typed]:
        """What follows from some input."""
        for key in data:
            if key in (10, 13):
                yield Typed(b"\r\n" if self._tty else b"", self._taken())
            elif not self._tty:
                self._line.append(key)
            elif key == 4:
                if not self._line:
                    yield Typed(ends=True)
            elif key == 3:
                self._line.clear()
                yield Typed(b"^C\r\n", "")
            elif key in (8, 127):
                if self._line:
                    self._line.pop()
                    yield Typed(b"\b \b")
            elif key >= 32:
                self._line.append(key)
                yield Typed(bytes([key]))

    def rest(self) -> str:
        """The last line, which no line break ends."""
        return self._taken()

    def _taken(self) -> str:
        line = self._line.decode(errors="replace")
        self._line.clear()
        return line
