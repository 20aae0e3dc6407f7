"""What an API server imports before it serves: each module makes every start longer."""

from __future__ import annotations

import subprocess
import sys


def test_client_of_other_servers_is_imported_by_the_first_request_to_one() -> None:
    code = "import sys, haru.apiserver.server; print(sorted({'aiohttp', 'yarl'} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
