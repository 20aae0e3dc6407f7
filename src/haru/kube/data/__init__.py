"""Facts of Kubernetes 1.36 that are written by hand, as tables of words; `haru.kube.tables` holds the derived ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def rows(name: str) -> Iterator[list[str]]:
    """Yield the words of each line of NAME.txt; lines that start with `#` are comments."""
    for line in (Path(__file__).parent / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            yield line.split()
