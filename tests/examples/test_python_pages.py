"""The Python of the pages is run as it stands, and prints what the pages say; so does each example program."""

from __future__ import annotations

import doctest
import re
import subprocess
import sys
from pathlib import Path

import pytest

from haru_process import environment

ROOT = Path(__file__).parents[2]
PAGES = sorted(page for page in (ROOT / "docs").rglob("*.md") if "```python\n" in page.read_text())


def test_python_pages_exist() -> None:
    assert {"ask-from-python", "python"} <= {page.stem for page in PAGES}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_python_examples_of_page_print_documented_output(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S)
    assert all(block.startswith(">>> ") for block in blocks), "a block that is not a session cannot be checked"
    monkeypatch.chdir(ROOT)
    flags = doctest.ELLIPSIS | doctest.REPORT_NDIFF
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, page.stem, str(page), 0)
    told: list[str] = []
    runner = doctest.DocTestRunner(optionflags=flags)
    runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)
    assert runner.tries >= len(blocks)


def test_capacity_example_prints_needed_nodes(tmp_path: Path) -> None:
    program = str(ROOT / "examples" / "python" / "capacity.py")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, program, *arguments],
            env=environment(tmp_path),
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    answer = run("examples/gang.yaml")
    assert (answer.returncode, answer.stderr) == (0, "")
    assert answer.stdout.splitlines()[-1] == "examples/gang.yaml needs 2 × dgx-h100"
    assert run("nowhere.yaml").returncode == 2
    assert run().stdout.splitlines()[-1].endswith("examples/gang.yaml needs 2 × dgx-h100")
