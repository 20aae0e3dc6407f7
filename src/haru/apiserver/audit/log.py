"""The file behind the audit log: lines written by a thread, rotated by size, old files removed by count and by age.

Unless it is told otherwise, who serves requests never waits: what can not be queued, because the disk is too slow or
full, is left out, counted and told of. Files can be read by their owner only.
Source: kube-apiserver's log backend with its flags `--audit-log-*`, as behaviour.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from haru.apiserver.audit.entries import Entry, Losses
from haru.apiserver.audit_options import Delivery
from haru.clock import utc_now

PLUGIN = "log"
TRUNCATE = "truncate"
QUEUE_BYTES = 64 * 1024 * 1024
_BATCH = 500
_END: Final = None
_Queued = tuple[Entry, asyncio.Future[bool] | None]


class AuditFile:
    """A file of lines that is put aside when it has grown; `-` is the standard output."""

    def __init__(
        self,
        path: str,
        megabytes: int = 100,
        backups: int = 0,
        days: int = 0,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._path = Path(path)
        self._console = path == "-"
        self._limit = megabytes * 1024 * 1024
        self._backups, self._days = backups, days
        self._now = now
        self._file: int | None = None
        self._size = 0

    def open(self) -> None:
        """Begin, or go on with what is there. OSError when it can not be written."""
        if self._console:
            return
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.fchmod(self._file, 0o600)
        self._size = os.fstat(self._file).st_size
        self._remove_old()

    def close(self) -> None:
        """The end."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def write(self, lines: list[bytes]) -> None:
        """Append lines; OSError when the disk does not take them."""
        if self._console:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
            return
        start = 0
        while start < len(lines):
            end, size = start, 0
            while end < len(lines) and (not (self._size + size) or self._size + size + len(lines[end]) <= self._limit):
                size += len(lines[end])
                end += 1
            if end > start:
                self._append(b"".join(lines[start:end]))
            if end < len(lines):
                self._rotate()
            start = end

    def _append(self, data: bytes) -> None:
        if self._file is None:
            self.open()
        assert self._file is not None
        while data:
            written = os.write(self._file, data)
            self._size += written
            data = data[written:]

    def _rotate(self) -> None:
        """Put the file aside under the time, and begin a new one."""
        self.close()
        moment = self._now()
        while True:
            stamp = moment.strftime("%Y-%m-%dT%H-%M-%S.") + f"{moment.microsecond // 1000:03d}"
            aside = self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}")
            if not aside.exists():
                break
            moment += timedelta(milliseconds=1)
        self._path.rename(aside)
        self.open()

    def backups(self) -> list[Path]:
        """The files that were put aside, oldest first."""
        start, end = f"{self._path.stem}-", self._path.suffix
        found = [path for path in self._path.parent.iterdir() if path.name.startswith(start) and path.suffix == end]
        return sorted(path for path in found if _stamp_of(path, start, end) is not None)

    def _remove_old(self) -> None:
        found = self.backups()
        gone = found[: -self._backups] if self._backups else []
        if self._days:
            oldest = self._now() - timedelta(days=self._days)
            start, end = f"{self._path.stem}-", self._path.suffix
            gone += [path for path in found if (_stamp_of(path, start, end) or oldest) < oldest]
        for path in set(gone):
            with contextlib.suppress(OSError):
                path.unlink()


def _stamp_of(path: Path, start: str, end: str) -> datetime | None:
    """When a file was put aside; None for a file that only has a similar name."""
    text = path.name.removeprefix(start).removesuffix(end)
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H-%M-%S.%f").replace(tzinfo=UTC)
    except ValueError:
        return None


class AuditLog:
    """The queue, and the thread that writes what is in it."""

    def __init__(
        self, file: AuditFile, delivery: Delivery | None = None, *, events: int = 0, size: int = QUEUE_BYTES
    ) -> None:
        self._file = file
        self._delivery = delivery = delivery or Delivery()
        self._limits = (events or delivery.buffer, size)
        self._queue: queue.SimpleQueue[_Queued | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = [0, 0]
        self._thread: threading.Thread | None = None
        self.losses = Losses("the audit log")
        self.taken = 0
        """Events that were queued."""

    @property
    def lost(self) -> int:
        """Events that were left out, or that the disk did not take."""
        return self.losses.counts.total()

    def start(self) -> None:
        """Open the file and begin. OSError when it can not be written."""
        self._file.open()
        self._thread = threading.Thread(target=self._run, name="haru-audit-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what is queued, and end."""
        if self._thread is not None:
            self._queue.put(_END)
            self._thread.join()
            self._thread = None

    def put(self, entry: Entry) -> asyncio.Future[bool] | None:
        """Have an event written. In a mode that waits: a future that says whether it was."""
        written: asyncio.Future[bool] | None = None
        if self._delivery.waits and self._thread is not None:
            written = asyncio.get_running_loop().create_future()
        with self._lock:
            full = self._waiting[0] >= self._limits[0] or self._waiting[1] + entry.size > self._limits[1]
            if written is None and full:
                self.losses.add(PLUGIN, 1, "the disk is slower than the requests")
                return None
            self._waiting[0] += 1
            self._waiting[1] += entry.size
            self.taken += 1
        self._queue.put((entry, written))
        return written

    def _run(self) -> None:
        ending = False
        while not ending:
            queued = self._queue.get()
            batch: list[_Queued] = []
            while True:
                if queued is _END:
                    ending = True
                    break
                batch.append(queued)
                if len(batch) >= _BATCH or self._queue.empty():
                    break
                queued = self._queue.get()
            self._write(batch)
        self._file.close()

    def _write(self, batch: list[_Queued]) -> None:
        if not batch:
            return
        lines: list[bytes] = []
        failed = False
        try:
            for entry, _ in batch:
                text = entry.json(self._delivery.most_bytes)
                if text is None:
                    self.losses.add(TRUNCATE, 1, "an event is too large even without its bodies")
                else:
                    lines.append(text + b"\n")
            self._file.write(lines)
        except Exception as error:
            failed = True
            self.losses.add(PLUGIN, len(lines) or len(batch), f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._waiting[0] -= len(batch)
                self._waiting[1] -= sum(entry.size for entry, _ in batch)
            for _, written in batch:
                if written is not None:
                    _settle(written, not failed)


def _settle(written: asyncio.Future[bool], done: bool) -> None:
    """Tell who waits, from the thread."""

    def set_result() -> None:
        if not written.done():
            written.set_result(done)

    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        written.get_loop().call_soon_threadsafe(set_result)
