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
    for module in sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if m.name != "__main__"):
        benchmark = getattr(importlib.import_module(f"benchmarks.{module}"), "run", None)
        for result in benchmark() if benchmark is not None else ():
            show(result)
            results.append(result)
    write(Path(__file__).parent / "results.json", results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
