"""Pressure: what the kernel's files say, what is made of it, and a stressed group of this machine."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haru.node.cgroups import host
from haru.node.stats import psi
from haru_process import until

TEXT = "some avg10=0.12 avg60=0.05 avg300=0.01 total=123456\nfull avg10=1.00 avg60=0.00 avg300=0.00 total=4567\n"


def test_some_and_full_lines_are_parsed() -> None:
    found = psi.parse(TEXT, "memory.pressure")
    assert found.some == psi.PsiData(123456, 0.12, 0.05, 0.01)
    assert found.full == psi.PsiData(4567, 1.0, 0.0, 0.0)
    assert found.json()["some"] == {"total": 123456, "avg10": 0.12, "avg60": 0.05, "avg300": 0.01}


def test_older_and_newer_kernel_formats_are_parsed() -> None:
    alone = psi.parse("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n", "cpu.pressure")
    assert alone.full == psi.PsiData() and alone.some.total == 1
    newer = psi.parse("most avg10=9\nsome avg10=0.00 avg900=3 avg60=0.00 avg300=0.00 total=2", "cpu.pressure")
    assert newer.some.total == 2


def test_totals_are_exact_integers() -> None:
    total = (1 << 60) + 1
    found = psi.parse(f"some avg10=0 avg60=0 avg300=0 total={total}", "x")
    assert json.loads(json.dumps(found.json()))["some"]["total"] == total


@pytest.mark.parametrize(
    "text",
    ["", "nothing\n", "some avg10=x total=1", "some avg10=-1 total=1", "some avg10=nan", "some total=-5", "some 3"],
)
def test_malformed_pressure_file_is_named(text: str) -> None:
    with pytest.raises(psi.PsiError, match=r"io\.pressure"):
        psi.parse(text, "/group/io.pressure")


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EOPNOTSUPP])
def test_disabled_psi_gives_no_pressure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_text", refuse)
    assert psi.read(tmp_path, "cpu") is None and not psi.is_available(tmp_path) and psi.read_all(tmp_path) == {}


def test_other_read_errors_are_raised(tmp_path: Path) -> None:
    (tmp_path / "cpu.pressure").mkdir()
    with pytest.raises(OSError, match="Is a directory"):
        psi.read(tmp_path, "cpu")
    assert not psi.is_available(None)


def test_six_metric_families_are_written() -> None:
    found = {resource: psi.parse(TEXT.replace("123456", "2500000"), resource) for resource in psi.RESOURCES}
    told = psi.samples('id="/"', found, 1700)
    assert [family for family, _ in told] == [
        f"container_pressure_{resource}_{kind}_seconds_total"
        for resource in psi.RESOURCES
        for kind in ("waiting", "stalled")
    ]
    assert told[0][1] == 'container_pressure_cpu_waiting_seconds_total{id="/"} 2.5 1700'
    assert psi.samples("", {}, 0) == []


# -- this machine ----------------------------------------------------------------------------------------------------


@pytest.fixture
def group() -> Iterator[Path]:
    """A group of this machine, also on one of which the controllers are of version 1."""
    unified = host.hierarchies().unified
    if unified is None or not psi.is_available(unified):
        pytest.skip(f"the kernel accounts no pressure at {unified}")
    made = unified / f"haru-test-{uuid.uuid4()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"groups cannot be made at {unified}: {error.strerror}")
    yield made
    until("nobody is in the group", lambda: not (made / "cgroup.procs").read_text())
    made.rmdir()


@pytest.mark.host
def test_cpu_pressure_of_stressed_cgroup_is_measured(group: Path) -> None:
    """More loops than processors: some of them wait all the time."""
    count = (os.cpu_count() or 1) * 2 + 1
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        for loop in loops:
            (group / "cgroup.procs").write_text(str(loop.pid))
        before = psi.read(group, "cpu")
        assert before is not None

        def waited() -> bool:
            found = psi.read(group, "cpu")
            return found is not None and found.some.total - before.some.total > 500_000

        until("half a second of stalls", waited)
        found = psi.read_all(group)
        assert set(found) == set(psi.RESOURCES) and found["cpu"].full.total <= found["cpu"].some.total
        switch = group / "cgroup.pressure"
        if switch.exists():
            switch.write_text("0")
            assert psi.read(group, "cpu") is None and psi.read_all(group) == {}
            switch.write_text("1")
            assert psi.read(group, "cpu") is not None
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
