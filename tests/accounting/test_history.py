"""The history is bounded, is read while it is written, and is whole after kill -9."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from haru.accounting.device_states import WHOLE, UsageKey
from haru.accounting.history import HOUR, KEPT, NAME, History, HistoryError, read
from haru.accounting.ledger import Interval, total

FREE, HELD = UsageKey("Free", "", "", "d"), UsageKey("Held", "team", "job/a", "d", "unmeasured")
DAY = 24 * HOUR


def interval(began: int, ended: int, **units: int) -> Interval:
    length = ended - began
    kinds = {"free": FREE, "held": HELD}
    return Interval(began, ended, length, {kinds[k]: n * WHOLE * length for k, n in units.items()})


def test_written_intervals_are_read_back_after_reopen(tmp_path: Path) -> None:
    history = History(tmp_path / "deep" / NAME)
    history.put(interval(0, 10, free=2))
    history.put(interval(0, 30, free=2))
    history.put(interval(30, 40, free=1, held=1))
    history.put(interval(40, 40, free=1))
    expected = [interval(0, 30, free=2), interval(30, 40, free=1, held=1)]
    assert history.intervals(0, 100) == expected and history.last_end() == 40
    assert read(tmp_path / "deep", 0, 100) == expected == read(tmp_path / "deep" / NAME, 0, 100), "while it is open"
    assert history.intervals(30, 100) == expected[1:] and history.intervals(0, 30) == expected[:1]
    assert (tmp_path / "deep" / NAME).stat().st_mode & 0o077 == 0
    history.close()
    again = History(tmp_path / "deep" / NAME)
    assert again.intervals(0, 100) == expected
    again.close()


def test_old_intervals_are_merged_by_hour_and_dropped_without_changing_totals(tmp_path: Path) -> None:
    history = History(tmp_path / NAME)
    now, step = 10 * DAY, HOUR // 60
    for began in range(now - 2 * DAY, now, step):
        history.put(interval(began, began + step, free=1, held=began // step % 3))
    history.put(interval(now - KEPT - DAY, now - KEPT - DAY + HOUR, free=9))
    before = total(history.intervals(now - 2 * DAY, now), now - 2 * DAY, now)
    history.tidy(now + HOUR // 2)
    rows = history.intervals(0, now + HOUR)
    assert len(rows) == 48 and all(row.ended - row.began == HOUR for row in rows)
    after = total(rows, now - 2 * DAY, now)
    assert after == before and after.observed == 2 * DAY
    history.tidy(now + HOUR // 2)
    assert history.intervals(0, now + HOUR) == rows
    history.put(interval(now, now + HOUR // 4, free=1))
    history.put(interval(now + HOUR // 4, now + HOUR // 2, free=2))
    history.tidy(now + HOUR // 2)
    assert len(history.intervals(now, now + HOUR)) == 2, "the hour that goes on is not merged"
    history.tidy(now + KEPT + 2 * DAY)
    assert history.intervals(0, now + KEPT) == []
    history.close()


WRITER = """
import sys
from pathlib import Path
from haru.accounting.history import History, HOUR
from haru.accounting.ledger import Meter
from haru.accounting.device_states import UsageKey
history, meter, now, step = History(Path(sys.argv[1])), Meter(), 0, 0
while True:
    held = 1000 * (step % 4)
    units = {UsageKey("Held", "team", f"job/{step % 7}", "d"): held} if held else {}
    ended = meter.observe({**units, UsageKey("Free", "", "", "d"): 4000 - held}, now)
    for one in (ended, meter.current()):
        if one is not None:
            history.put(one)
    if step % 50 == 0:
        history.tidy(now)
    print(history.last_end(), flush=True)
    now, step = now + HOUR // 20 + step % 11, step + 1
    history.put(meter.extend(now))
"""


@pytest.mark.parametrize("lines", [3, 57, 150])
def test_history_stays_readable_after_sigkill_during_writes(tmp_path: Path, lines: int) -> None:
    file = tmp_path / NAME
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(file)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout is not None
    said = 0
    for _ in range(lines):
        said = int(writer.stdout.readline())
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    rows = read(file, 0, 1 << 60)
    assert rows[-1].ended >= said, "what was written is there"
    for row in rows:
        assert sum(row.amounts.values()) == 4 * WHOLE * (row.ended - row.began)
        assert row.observed == row.ended - row.began
    assert all(one.ended == other.began for one, other in pairwise(rows))
    database = sqlite3.connect(file)
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    history = History(file)
    history.put(interval(rows[-1].ended + 5, rows[-1].ended + 9, free=4))
    history.close()


def test_missing_corrupt_or_newer_history_raises_history_error(tmp_path: Path) -> None:
    with pytest.raises(HistoryError, match=r"usage\.db: there is no history: haru up begins one"):
        read(tmp_path, 0, 1)
    (tmp_path / NAME).write_text("no database, but long enough to be looked at as one" * 50)
    with pytest.raises(HistoryError, match="it is no usage history"):
        read(tmp_path, 0, 1)
    with pytest.raises(HistoryError, match=NAME):
        History(tmp_path / NAME)
    (tmp_path / "file").touch()
    with pytest.raises(HistoryError, match=r"/file: File exists; name a directory that can be written$"):
        History(tmp_path / "file" / NAME)
    newer = sqlite3.connect(tmp_path / "newer.db")
    newer.execute("PRAGMA user_version=99")
    newer.close()
    for use in (lambda: read(tmp_path / "newer.db", 0, 1), lambda: History(tmp_path / "newer.db")):
        with pytest.raises(HistoryError, match="schema 99 is newer than this Haru"):
            use()


@pytest.mark.parametrize("content", [b"no database, but long enough to be looked at as one" * 50, None])
def test_refused_history_is_closed(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / NAME
    if content is None:
        with closing(sqlite3.connect(file)) as newer:
            newer.execute("PRAGMA user_version=99")
    else:
        file.write_bytes(content)
    with pytest.raises(HistoryError) as refused:
        History(file)
    opened = {os.path.realpath(descriptor) for descriptor in Path("/proc/self/fd").iterdir()}
    assert str(file) not in opened, refused
