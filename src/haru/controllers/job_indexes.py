"""Sets of completion indexes as a Job's status writes them: `1,3-5,7` (pure).

Source: KEP-2214 (Indexed Jobs).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from haru.kube.pod_templates import JOB_INDEX

INDEX = JOB_INDEX


def parse_indexes(text: str | None, below: int) -> set[int]:
    """The indexes that a text names; those not below `below` (completions were lowered) are left out."""
    indexes: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            indexes.update(range(int(first), min(int(last) if last.isdigit() else int(first), below - 1) + 1))
    return indexes


def format_indexes(indexes: Collection[int]) -> str:
    """The text for a set of indexes; only runs of three and more become ranges: `1,2,4-6`."""
    runs: list[tuple[int, int]] = []
    for index in sorted(indexes):
        if runs and runs[-1][1] == index - 1:
            runs[-1] = (runs[-1][0], index)
        else:
            runs.append((index, index))
    parts = []
    for first, last in runs:
        if first == last:
            parts.append(str(first))
        elif last == first + 1:
            parts.append(f"{first},{last}")
        else:
            parts.append(f"{first}-{last}")
    return ",".join(parts)


def index_of(pod: Mapping[str, Any]) -> int:
    """The completion index of a pod, -1 if it has none."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX, "")
    return int(text) if text.isdigit() else -1
