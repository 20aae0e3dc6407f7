"""The lines of a container's log as a runtime writes them. Pure.

Each is a time, a stream, tags and a text: `2026-01-02T03:04:05.123456789Z stdout F a text`; the tag P says that the
text goes on in the next line. Source: the CRI's log format.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from haru.node.api.sources import LogOptions

_LINE = re.compile(rb"([0-9T:.Z+-]{20,35}) (stdout|stderr) ([^ \n]+) ?([^\n]*)\n?", re.DOTALL)
_FRACTION = re.compile(r"\.(\d+)")
_STREAMS = {"Stdout": b"stdout", "Stderr": b"stderr"}


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line; `text` has its line break unless it is a part."""

    time: bytes
    stream: bytes
    text: bytes


def parse(line: bytes) -> LogLine | None:
    """A line of a log; None for what is none."""
    found = _LINE.fullmatch(line)
    if found is None:
        return None
    time, stream, tags, text = found.groups()
    return LogLine(time, stream, text if tags.split(b":")[0] == b"P" else text + b"\n")


def moment(time: bytes) -> tuple[datetime, int]:
    """A time to compare by: its second, and nanoseconds. Raises ValueError."""
    text = time.decode("ascii")
    fraction = _FRACTION.search(text)
    nanoseconds = int(fraction[1].ljust(9, "0")[:9]) if fraction else 0
    return datetime.fromisoformat(_FRACTION.sub("", text).replace("Z", "+00:00")), nanoseconds


class LineWriter:
    """What is shown of lines: as bytes, until the limit is reached."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._left = options.limit_bytes
        self._since: tuple[datetime, int] | None = None
        self._at_start: dict[bytes, bool] = {}
        self._stream = _STREAMS.get(options.stream)
        if options.since is not None:
            since = options.since
            self._since = since.replace(microsecond=0), since.microsecond * 1000

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._left == 0

    def show(self, line: bytes) -> bytes:
        """What is shown of a line; nothing for one that is before the first time, of another stream, or no line."""
        found = parse(line)
        if found is None or (self._stream is not None and found.stream != self._stream):
            return b""
        if self._since is not None:
            try:
                if moment(found.time) < self._since:
                    return b""
            except ValueError:
                return b""
            self._since = None  # later lines are later
        shown = found.text
        if self._options.timestamps and self._at_start.get(found.stream, True):
            shown = found.time + b" " + shown
        self._at_start[found.stream] = shown.endswith(b"\n")
        if self._left is not None:
            shown = shown[: self._left]
            self._left -= len(shown)
        return shown
