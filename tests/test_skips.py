"""The rules of tests/conftest.py about skips, tried on tests of tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

CASES = """
import gc
import pytest

def test_runs():
    gc.disable()
    gc.set_threshold(1, 1, 1)

def test_collection_is_as_before_that_test():
    assert gc.isenabled() and gc.get_threshold()[0] > 1000

@pytest.mark.skipif(True, reason="no such tool")
def test_marked(): pass

def test_inside(): pytest.skip("nothing to see")

@pytest.mark.host
def test_host(): pytest.skip("no such kernel")

@pytest.mark.nightly
def test_long(): pass

@pytest.mark.xfail(reason="known")
def test_expected(): assert False

def test_reference(reference_data): assert reference_data.is_dir()
"""


def outcome(tmp_path: Path, *, module: str = "", **env: str) -> tuple[int, str]:
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    # What conftest.py imports is found where it is.
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = '{TESTS}'\nmarkers =\n  host: x\n  nightly: x\n")
    (tmp_path / "test_cases.py").write_text(module or CASES)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HARU_", "PYTEST"))}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rfEs",
        "-p",
        "no:cacheprovider",
        "--tb=line",
    ]
    answer = subprocess.run(
        command,
        env={**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **env},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return answer.returncode, answer.stdout


def test_skips_are_reported_with_reason(tmp_path: Path) -> None:
    code, out = outcome(tmp_path)
    assert code == 0, out
    assert "2 passed, 4 skipped, 1 deselected, 1 xfailed" in out
    assert all(reason in out for reason in ("no such tool", "nothing to see", "no such kernel", "HARU_REFERENCE_DATA"))


def test_skips_fail_when_everything_is_required(tmp_path: Path) -> None:
    code, out = outcome(tmp_path, HARU_REQUIRE_ALL="1", HARU_REFERENCE_DATA=str(tmp_path))
    assert code == 1, out
    assert "HARU_REQUIRE_ALL=1 forbids this skip: Skipped: nothing to see" in out
    assert "HARU_REQUIRE_ALL=1 forbids this skip: Skipped: no such tool" in out
    # The marker `host` may skip, and says why; nightly tests are left out without a word.
    assert "no such kernel" in out and "1 skipped, 1 deselected, 1 xfailed" in out


def test_module_level_skip_fails_when_everything_is_required(tmp_path: Path) -> None:
    module = "import pytest\npytest.importorskip('no_such_library')\ndef test_it(): pass\n"
    assert outcome(tmp_path, module=module)[0] in (0, 5)
    code, out = outcome(tmp_path, module=module, HARU_REQUIRE_ALL="1")
    assert code not in (0, 5) and "forbids this skip" in out


def test_nightly_run_includes_nightly_tests(tmp_path: Path) -> None:
    code, out = outcome(tmp_path, HARU_NIGHTLY="1")
    assert code == 0 and "3 passed, 4 skipped, 1 xfailed" in out


def test_missing_reference_data_directory_fails(tmp_path: Path) -> None:
    code, out = outcome(tmp_path, HARU_REFERENCE_DATA=str(tmp_path / "absent"))
    assert code == 1 and "no such directory" in out


@pytest.mark.parametrize("name", ["1.26.3", "1.32.4"])
def test_old_kubectl_is_skipped(tmp_path: Path, name: str) -> None:
    module = "def test_it(kubectl): assert kubectl\n"
    folder = tmp_path / "bin"
    folder.mkdir()
    fake = folder / "kubectl"
    fake.write_text(f'#!/bin/sh\necho \'{{"clientVersion": {{"gitVersion": "v{name}"}}}}\'\n')
    fake.chmod(0o755)
    code, out = outcome(tmp_path, module=module, PATH=f"{folder}:/usr/bin:/bin")
    assert code == 0 and ("1 passed" if name == "1.32.4" else f"kubectl is v{name}; 1.27 or newer is needed") in out
