"""What a benchmark yields, and how results are kept."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

CALIBRATION_SECONDS = 0.20


@dataclass(frozen=True)
class Result:
    """One figure. `size` says what it was measured on (`1000 nodes`)."""

    name: str
    value: float
    unit: str
    size: str


def commit() -> str:
    """The commit that was measured, `-dirty` if the tree differs from it."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"], capture_output=True, text=True, check=False
    )
    return described.stdout.strip() or "unknown"


def write(path: Path, results: Iterable[Result]) -> None:
    """Writes the results with the commit; an earlier file is replaced."""
    revision = commit()
    rows = [{**asdict(result), "commit": revision} for result in results]
    path.write_text(json.dumps(rows, indent=1) + "\n")


def show(result: Result) -> None:
    """One line on stdout."""
    print(f"{result.name:<40} {result.value:>10.3f} {result.unit:<6} {result.size}", flush=True)
