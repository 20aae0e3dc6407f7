#!/usr/bin/env python3
"""Run the tests; those that failed, if they are few, run once more with nothing beside them.

Usage: tools/run_tests.py [pytest's arguments]

Hundreds of tests start processes and share two cores: one that misses a deadline there and keeps it alone has shown a
deadline that is too short, not a fault of Haru. It is printed by name all the same, to be mended. What fails
twice fails the run, and so do failures in more than a handful of modules: what the tests of one share fails for all.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_MOST_MODULES_RUN_AGAIN = 5
_SOME_FAILED = 1


def main(arguments: Sequence[str]) -> int:
    """Return pytest's exit code, of the second run if there was one."""
    with tempfile.TemporaryDirectory() as cache:
        pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}"]
        code = subprocess.run([*pytest, *arguments], check=False).returncode
        failed = _failed(Path(cache))
        modules = {name.partition("::")[0] for name in failed}
        if code != _SOME_FAILED or not 0 < len(modules) <= _MOST_MODULES_RUN_AGAIN:
            return code
        print(f"run_tests: {len(failed)} failed and run once more, alone", flush=True)
        code = subprocess.run([*pytest, *failed], check=False).returncode
        for name in failed:
            print(f"run_tests: {'failed again, or one beside it' if code else 'passed only when run alone'}: {name}")
        return code


def _failed(cache: Path) -> list[str]:
    """The tests that failed, and the modules that could not be collected; none where pytest wrote nothing."""
    try:
        return list(json.loads((cache / "v/cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
