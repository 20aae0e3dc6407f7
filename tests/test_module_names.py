"""Tests import helpers of each other by plain names, so each name stands for one module."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
MODULES = [path for path in TESTS.rglob("*.py") if "data" not in path.relative_to(TESTS).parts]


def test_no_two_modules_of_tests_have_one_name() -> None:
    names = Counter(path.stem for path in MODULES if path.stem not in ("conftest", "__init__"))
    assert [name for name, count in names.items() if count > 1] == []


def test_no_module_of_tests_has_the_name_of_a_module_of_python() -> None:
    assert [path.name for path in MODULES if path.stem in sys.stdlib_module_names] == []


def test_no_test_changes_the_path_of_modules() -> None:
    tricks = re.compile(r"^\s*sys\.path(\.(insert|append|extend)\(| *\+?= )", re.MULTILINE)
    assert [path.name for path in MODULES if tricks.search(path.read_text())] == []
