"""Tests import helpers of each other by plain names, so each name stands for one module."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
MODULES = [path for path in TESTS.rglob("*.py") if "data" not in path.relative_to(TESTS).parts]


def test_test_module_names_are_unique() -> None:
    names = Counter(path.stem for path in MODULES if path.stem not in ("conftest", "__init__"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_test_module_shadows_the_standard_library() -> None:
    assert [path.name for path in MODULES if path.stem in sys.stdlib_module_names] == []


def test_no_test_changes_sys_path() -> None:
    tricks = re.compile(r"^\s*sys\.path(\.(insert|append|extend)\(| *\+?= )", re.MULTILINE)
    assert [path.name for path in MODULES if tricks.search(path.read_text())] == []
