"""Write the scheduler's journal to disk: every decision with its inputs, bounded in size.

A directory has pairs of files: `N.base.jsonl`, the objects as they were when the N-th part began, and `N.log.jsonl`,
what happened since, decisions among it. When a log has grown to its share of the bound the next part begins; its base
is made of the last base and log beside the scheduling, and only then the oldest parts go. A crash costs at most the
last lines. The files hold what the scheduler may read (names, labels, specifications; no Secrets), for their owner
alone.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from haru.engine import Decision
from haru.engine.journal import DecisionInput, RecordedCluster, decided_entry, plain
from haru.engine.state import object_path
from haru.kube.meta import Obj

DEFAULT_MEBIBYTES = 256
_PARTS = 4
_MIB = 1 << 20
_log = logging.getLogger(__name__)


class DecisionLog:
    """Write a journal into a directory of at most about `mebibytes`. `cluster` is the recorded cache."""

    def __init__(self, directory: Path, mebibytes: int = DEFAULT_MEBIBYTES) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._bound = mebibytes * _MIB
        for old in directory.glob("*.jsonl"):
            old.unlink()  # of a scheduler before this one, whose cluster was its own
        self.cluster = RecordedCluster(self._write)
        self._part = 0
        self._size = 0
        self._profiles: dict[int, str] = {}
        self._compacting: threading.Thread | None = None
        (directory / "0.base.jsonl").touch(mode=0o600)
        self._file = self._open()

    def decided(self, given: DecisionInput, decision: Decision) -> None:
        """Write a decision down, before it is carried out."""
        profile = given.options.profile
        name = self._profiles.get(id(profile))
        if name is None:
            name = self._profiles[id(profile)] = f"profile-{len(self._profiles)}"
            self._write({"profile": {"name": name, "profile": plain(profile)}})
        self._write(decided_entry(given, name, decision))
        if self._size > self._bound // _PARTS:
            self._next_part()

    def close(self) -> None:
        """Write out what is written."""
        if self._compacting is not None:
            self._compacting.join()
        self._file.close()

    def _open(self) -> IO[str]:
        descriptor = os.open(self._directory / f"{self._part}.log.jsonl", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        return os.fdopen(descriptor, "w", encoding="utf-8", buffering=1)

    def _write(self, entry: Obj) -> None:
        line = json.dumps(entry, separators=(",", ":"), ensure_ascii=False) + "\n"
        self._size += len(line)
        try:
            self._file.write(line)
        except OSError as error:
            # Scheduling goes on; the part that is broken says so itself when it is replayed.
            _log.warning("%s: %s", self._directory, error)

    def _next_part(self) -> None:
        if self._compacting is not None:
            self._compacting.join()  # done long ago, but on a starved machine: the bound holds there too
        self._file.close()
        self._part += 1
        self._size = 0
        self._profiles.clear()
        self._file = self._open()
        for entry in self.cluster.assumed():
            self._write(entry)
        self._compacting = threading.Thread(target=_compact, args=(self._directory, self._part), name="decision log")
        self._compacting.start()


def entries(directory: Path) -> Iterator[Obj]:
    """The entries of the oldest part that is whole, and of all that follow. Raises ValueError, OSError."""
    parts = sorted(int(path.name.split(".")[0]) for path in directory.glob("*.base.jsonl"))
    if not parts:
        raise ValueError(f"{directory}: no decisions are logged here")
    first = parts[0]
    yield from _lines(directory / f"{first}.base.jsonl")
    yield from _lines(directory / f"{first}.log.jsonl")
    later = sorted(int(path.name.split(".")[0]) for path in directory.glob("*.log.jsonl"))
    for part in later:
        if part > first:
            # The head of a later log repeats what is assumed at that moment: it is known already.
            yield from _lines(directory / f"{part}.log.jsonl")


def _lines(path: Path) -> Iterator[Obj]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return  # cut off by a crash
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}: line {number}: {error}") from None


def _compact(directory: Path, part: int) -> None:
    """Make the base of a part from the part before it; then drop the parts that are too many."""
    before = part - 1
    target = directory / f"{part}.base.jsonl"
    partial = target.with_suffix(".partial")
    try:
        objects = _remaining((directory / f"{before}.base.jsonl", directory / f"{before}.log.jsonl"))
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            for entry in objects:
                file.write(json.dumps(entry, separators=(",", ":"), ensure_ascii=False) + "\n")
        partial.rename(target)
        for old in range(max(0, part - _PARTS + 1)):
            for name in (f"{old}.base.jsonl", f"{old}.log.jsonl"):
                (directory / name).unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        _log.warning("%s: %s", directory, error)


def _remaining(paths: Iterable[Path]) -> Iterator[Obj]:
    """The partition, and the objects that are there at the end, in the order in which they came."""
    known: dict[tuple[str, str], Obj] = {}
    for path in paths:
        for entry in _lines(path):
            if (obj := entry.get("apply")) is not None:
                known[obj["kind"], object_path(obj)] = entry
            elif "partition" in entry:
                known["", "partition"] = entry
            elif (obj := entry.get("remove")) is not None:
                known.pop((obj["kind"], object_path(obj)), None)
    return iter(known.values())
