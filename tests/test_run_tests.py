"""tools/run_tests.py runs what failed once more, and fails what fails twice or too much at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

RUNNER = Path(__file__).parents[1] / "tools/run_tests.py"
FAILS_ONCE = """
from pathlib import Path

def test_of_timing():
    runs = Path(__file__).with_suffix(".runs")
    first = not runs.exists()
    runs.write_text("")
    assert not first

def test_that_passes():
    pass
"""
SHARED_FAILS_ONCE = """
from pathlib import Path
import pytest

@pytest.fixture(scope="module")
def shared():
    runs = Path(__file__).with_suffix(".runs")
    first = not runs.exists()
    runs.write_text("")
    assert not first

@pytest.mark.parametrize("case", range(8))
def test_of_what_is_shared(shared, case):
    pass
"""
FAILS_ALWAYS = """
def test_of_a_fault():
    assert 1 == 2
"""


def run(folder: Path, *files: str) -> subprocess.CompletedProcess[str]:
    """Run the runner in a folder of these test modules."""
    for number, text in enumerate(files):
        (folder / f"test_{number}.py").write_text(text)
    command = [sys.executable, RUNNER, "-q"]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(command, cwd=folder, env=bare, capture_output=True, text=True, check=False, timeout=120)


def test_test_that_fails_once_passes_the_run_and_is_named(tmp_path: Path) -> None:
    ended = run(tmp_path, FAILS_ONCE)
    assert ended.returncode == 0, ended.stdout
    assert "passed only when run alone: test_0.py::test_of_timing" in ended.stdout
    assert "test_that_passes" not in ended.stdout


def test_test_that_fails_twice_fails_the_run(tmp_path: Path) -> None:
    ended = run(tmp_path, FAILS_ONCE, FAILS_ALWAYS)
    assert ended.returncode == 1, ended.stdout
    assert "run_tests: 2 failed and run once more" in ended.stdout


def test_tests_of_one_module_whose_shared_part_fails_once_are_run_again(tmp_path: Path) -> None:
    ended = run(tmp_path, SHARED_FAILS_ONCE)
    assert ended.returncode == 0, ended.stdout
    assert "run_tests: 8 failed and run once more" in ended.stdout


def test_many_failures_are_not_run_again(tmp_path: Path) -> None:
    ended = run(tmp_path, *[FAILS_ONCE] * 6)
    assert ended.returncode == 1, ended.stdout
    assert "run_tests" not in ended.stdout


def test_module_that_cannot_be_collected_fails_the_run(tmp_path: Path) -> None:
    ended = run(tmp_path, FAILS_ONCE, "import no_module_of_this_name")
    assert ended.returncode != 0, ended.stdout
