"""What the browser gets of others: fetched by npm in pinned versions, left out with a word where there is no npm."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VENDOR = Path("src/haru/dashboard/static/vendor")


def test_lock_pins_versions_by_checksum_and_names_no_registry() -> None:
    text = (ROOT / "frontend" / "package-lock.json").read_text()
    packages = {name: each for name, each in json.loads(text)["packages"].items() if name}
    assert packages.keys() == {"node_modules/idiomorph", "node_modules/uplot"}
    assert all(each["integrity"].startswith("sha512-") and "resolved" not in each for each in packages.values())
    assert "://" not in text


def build(folder: Path, path: str) -> subprocess.CompletedProcess[str]:
    """Run the build step on a copy of its sources, with a PATH."""
    shutil.copy(ROOT / "hatch_build.py", folder)
    shutil.copytree(ROOT / "frontend", folder / "frontend", dirs_exist_ok=True)
    (folder / "src" / "haru" / "proto").mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "src" / "haru" / "proto" / "kms.proto", folder / "src" / "haru" / "proto")
    (folder / VENDOR).parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "hatch_build.py"]
    return subprocess.run(command, cwd=folder, env={"PATH": path}, capture_output=True, text=True, check=False)


def test_build_without_npm_succeeds_and_says_that_there_are_no_charts(tmp_path: Path) -> None:
    done = build(tmp_path, "")
    assert done.returncode == 0, done.stderr
    assert "without charts" in done.stderr and "npm is not installed" in done.stderr
    assert not (tmp_path / VENDOR).exists()


def test_build_does_not_ask_npm_for_what_is_there(tmp_path: Path) -> None:
    if not (ROOT / VENDOR / "versions.sha256").is_file():
        pytest.skip("npm has brought nothing here: make setup says why")
    shutil.copytree(ROOT / VENDOR, tmp_path / VENDOR)
    done = build(tmp_path, "")
    assert (done.returncode, done.stderr) == (0, "")
