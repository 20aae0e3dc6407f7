"""A command that serves may have as many connections as the system allows, whatever the shell's soft limit."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

RUN = """
import resource
from haru.cli import main
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
if {serves}:
    main._SERVERS = frozenset({{"version"}})
main.main(["version"])
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(("serves", "expected"), [(True, resource.getrlimit(resource.RLIMIT_NOFILE)[1]), (False, 256)])
def test_soft_limit_is_raised_for_a_command_that_serves(serves: bool, expected: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(serves=serves)], capture_output=True, text=True, timeout=60, check=True
    )

    assert int(done.stdout.splitlines()[-1]) == expected
