"""Show where a run of `haru stress` is: some lines that are drawn anew on a terminal, a line every 10 s elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from haru.stress.run import Progress, StressRun

_DRAWN_SECONDS = 0.25
_PLAIN_SECONDS = 10.0
_WIDTH = 40


class Display:
    """Draws on `stream` until it is left."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._lines = 0

    def __enter__(self) -> Display:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._clear()

    async def run(self, running: Callable[[], StressRun | None]) -> None:
        """Draw until cancelled."""
        while True:
            await asyncio.sleep(_DRAWN_SECONDS if self._terminal else _PLAIN_SECONDS)
            run = running()
            if run is None:
                continue
            if self._terminal:
                self._clear()
                last = [f"{one.promise}: {one.message}" for one in run.history.broken[-3:]]
                faults = [f"fault: {fault['kind']} at {fault['at']:.0f} s" for fault in run.faults[-1:]]
                self._draw([*drawn(run.progress()), *faults, *last])
            else:
                self._stream.write(plain(run.progress()) + "\n")
                self._stream.flush()

    def _draw(self, lines: list[str]) -> None:
        self._stream.write("".join(f"{line}\n" for line in lines))
        self._stream.flush()
        self._lines = len(lines)

    def _clear(self) -> None:
        if self._lines:
            self._stream.write(f"\x1b[{self._lines}A\x1b[J")
            self._stream.flush()
            self._lines = 0


def drawn(progress: Progress) -> list[str]:
    """The lines for a terminal."""
    share = progress.deleted / max(progress.planned, 1)
    colour = "\x1b[31m" if progress.broken else "\x1b[32m"
    return [
        f"[{'#' * round(share * _WIDTH):<{_WIDTH}}] {share:4.0%}  {progress.seconds:.0f} s",
        f"works  {progress.created} of {progress.planned} created, {progress.waiting} wait, {progress.deleted} deleted",
        f"pods   {progress.bound} bound, {progress.running} running; {progress.held_devices} devices held",
        f"{colour}{progress.broken} broken promises\x1b[0m; {progress.faults} faults",
    ]


def plain(progress: Progress) -> str:
    """The line for a file or a pipe."""
    return (
        f"{progress.seconds:.0f} s: {progress.created} of {progress.planned} works created, {progress.waiting} wait, "
        f"{progress.deleted} deleted; {progress.running} of {progress.bound} bound pods run; "
        f"{progress.held_devices} devices held; {progress.broken} broken promises; {progress.faults} faults"
    )
