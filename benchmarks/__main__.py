"""Runs every benchmark and writes benchmarks/results.json: `make bench`."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from pathlib import Path

import benchmarks
from benchmarks.results import Result, show, write


def main() -> int:
    results: list[Result] = []
    for module in sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__)):
        if module not in ("__main__", "calibrate", "cluster", "results"):
            for result in importlib.import_module(f"benchmarks.{module}").run():
                show(result)
                results.append(result)
    write(Path(__file__).parent / "results.json", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
