"""What the parts of `haru up` leave out until it is needed: each module makes every start longer."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATER = {
    "haru.apiserver.server": {"aiohttp", "wsproto", "yarl"},
    "haru.scheduler.scheduler": {"haru.explain.entry", "haru.explain.results", "haru.lint"},
    "haru.dashboard.views.usage_history": {"haru.dashboard.views.tables", "haru.dashboard.views.queue"},
}


@pytest.mark.parametrize("part", LATER)
def test_part_does_not_import_what_it_needs_later(part: str) -> None:
    code = f"import sys, {part}; print(sorted({LATER[part]} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
