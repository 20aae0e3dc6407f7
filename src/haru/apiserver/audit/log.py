"""The file behind the audit log: lines written by a thread, rotated by size, old files removed by count and by age.

Who serves requests never waits: what can not be queued, because the disk is too slow or full, is left out, counted and
told of. Files can be read by their owner only.
Source: kube-apiserver's log backend with its flags `--audit-log-*`, as behaviour.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import orjson

from haru.apiserver.audit.policy import REQUEST, REQUEST_RESPONSE
from haru.clock import utc_now

Obj = dict[str, Any]

QUEUE_EVENTS = 10_000
QUEUE_BYTES = 64 * 1024 * 1024
_OWN_BYTES = 1024
"""About what an event costs beside the bodies that it carries."""
_BATCH = 500
_COMPLAIN_SECONDS = 60.0
_END: Final = None
_LOG = logging.getLogger("haru.apiserver")


@dataclass(slots=True)
class Entry:
    """An event, and the bodies that are still to be put into it."""

    event: Obj
    level: int
    omits_managed_fields: bool = False
    request_body: bytes = b""
    parse: Callable[[bytes], Any] = orjson.loads
    response_body: bytes = b""

    @property
    def size(self) -> int:
        """About how much memory it takes."""
        return _OWN_BYTES + len(self.request_body) + len(self.response_body)

    def line(self) -> bytes:
        """The line of the log."""
        event = self.event
        if self.request_body:
            self._take_request(event)
        if self.response_body and self.level >= REQUEST_RESPONSE:
            event["responseObject"] = orjson.Fragment(self.response_body)
            if self.omits_managed_fields and b'"managedFields"' in self.response_body:
                event["responseObject"] = _bare(orjson.loads(self.response_body))
        return orjson.dumps(event) + b"\n"

    def _take_request(self, event: Obj) -> None:
        try:
            body = self.parse(self.request_body)
        except Exception:
            return  # it was refused for that, as the answer says
        if event["verb"] == "create" and isinstance(body, dict):
            # The name of what is created stands in the body alone.
            name = (body.get("metadata") or {}).get("name")
            if isinstance(name, str) and name and not event.get("objectRef", {}).get("name"):
                event.setdefault("objectRef", {})["name"] = name
        if self.level >= REQUEST:
            event["requestObject"] = _bare(body) if self.omits_managed_fields else body


def _bare(value: Any) -> Any:
    """An object, or a list's items, without managedFields."""
    if not isinstance(value, dict):
        return value
    if isinstance(value.get("metadata"), dict):
        value = {**value, "metadata": {n: v for n, v in value["metadata"].items() if n != "managedFields"}}
    if isinstance(value.get("items"), list):
        value = {**value, "items": [_bare(item) for item in value["items"]]}
    return value


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

    def __init__(self, file: AuditFile, *, events: int = QUEUE_EVENTS, size: int = QUEUE_BYTES) -> None:
        self._file = file
        self._limits = (events, size)
        self._queue: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = [0, 0]
        self._thread: threading.Thread | None = None
        self._complained = -_COMPLAIN_SECONDS
        self.taken = 0
        """Events that were queued."""
        self.lost = 0
        """Events that were left out, or that the disk did not take."""

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

    def put(self, entry: Entry) -> None:
        """Have an event written; never waits."""
        with self._lock:
            if self._waiting[0] >= self._limits[0] or self._waiting[1] + entry.size > self._limits[1]:
                self._lose(1, "the disk is slower than the requests")
                return
            self._waiting[0] += 1
            self._waiting[1] += entry.size
            self.taken += 1
        self._queue.put(entry)

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        now = time.monotonic()
        if now - self._complained >= _COMPLAIN_SECONDS:
            self._complained = now
            _LOG.error("the audit log is incomplete: %d events are missing so far: %s", self.lost, why)

    def _run(self) -> None:
        ending = False
        while not ending:
            entry = self._queue.get()
            batch: list[Entry] = []
            while True:
                if entry is _END:
                    ending = True
                    break
                batch.append(entry)
                if len(batch) >= _BATCH or self._queue.empty():
                    break
                entry = self._queue.get()
            self._write(batch)
        self._file.close()

    def _write(self, batch: list[Entry]) -> None:
        if not batch:
            return
        # The sizes first: a body is counted as long as it is held.
        sizes = sum(entry.size for entry in batch)
        try:
            self._file.write([entry.line() for entry in batch])
        except Exception as error:
            with self._lock:
                self._lose(len(batch), f"{type(error).__name__}: {error}")
        finally:
            with self._lock:
                self._waiting[0] -= len(batch)
                self._waiting[1] -= sizes
