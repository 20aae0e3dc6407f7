"""The reference data of Kubernetes 1.36, read by tests where HARU_REFERENCE_DATA says it is."""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REFERENCE = os.environ.get("HARU_REFERENCE_DATA", "")
needs_reference = pytest.mark.skipif(not REFERENCE, reason="HARU_REFERENCE_DATA names no reference data")


@cache
def interface_facts(name: str) -> dict[str, Any]:
    """schema, wire or paths."""
    path = Path(REFERENCE) / "data" / "kubernetes-1.36" / f"{name}.json"
    facts: dict[str, Any] = json.loads(path.read_text())
    return facts
