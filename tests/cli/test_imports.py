"""A command imports what it needs and no more: of a short one imports are nearly all of its time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

GANG = str(Path(__file__).parents[2] / "examples" / "gang.yaml")
CODE = """
import sys
from haru.cli.main import main
try:
    main(sys.argv[2:])
except SystemExit:
    pass
print([name for name in sys.modules if f"{name}.".startswith(f"{sys.argv[1]}.")])
"""


@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("haru.engine", ["lint", GANG]),
        ("asyncio", ["lint", GANG]),
        ("asyncio", ["explain", "--help"]),
        ("asyncio", ["explain", "-f", GANG, "--all"]),
        ("asyncio", ["schedule", "-f", GANG]),
        ("asyncio", ["scheduler", "--help"]),
        ("asyncio", ["controllers", "--help"]),
        ("haru.engine", ["top", "--help"]),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value).replace(GANG, "FILE"),
)
def test_command_does_without_a_package(package: str, arguments: list[str]) -> None:
    command = [sys.executable, "-c", CODE, package, *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.stdout.splitlines()[-1:] == ["[]"], answer
