"""Reference data that is not part of the project: where it is, and how it is read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

LOCAL = Path(__file__).parent.parent / "data" / "cel"


def reference_cases(path: str) -> list[dict[str, Any]]:
    """The cases of one file of the reference data; skips the test without it."""
    root = os.environ.get("HARU_REFERENCE_DATA")
    if not root:
        pytest.skip("HARU_REFERENCE_DATA is not set: the cases of others are not part of the repository")
    return read_cases(Path(root) / "vectors" / path)


def read_cases(path: Path) -> list[dict[str, Any]]:
    """A file with one JSON object a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
