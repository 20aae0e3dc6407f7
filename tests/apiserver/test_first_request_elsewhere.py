"""The first request to another server does not hold up the event loop: the client for it is imported in a thread."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import haru

SOURCE = Path(haru.__file__).parent

FIRST_WEBHOOK = """
import asyncio, sys, threading
from haru.apiserver.webhook_client import WebhookClient, WebhookError

class Witness:
    importers = []

    def find_spec(self, name, path=None, target=None):
        if name == "aiohttp":
            self.importers.append(threading.current_thread())

async def main():
    assert "aiohttp" not in sys.modules
    sys.meta_path.insert(0, Witness())
    client = WebhookClient(None)
    for _ in range(2):
        try:
            await client.post({"url": "https://127.0.0.1:1/"}, b"{}", 5.0)
        except WebhookError as error:
            print(error)
    await client.stop()
    print(len(Witness.importers), Witness.importers[0] is threading.main_thread())

asyncio.run(main())
"""


def test_first_call_of_a_webhook_imports_the_client_once_and_not_in_the_loop() -> None:
    done = subprocess.run([sys.executable, "-c", FIRST_WEBHOOK], capture_output=True, text=True, timeout=120)
    *errors, imports = done.stdout.splitlines()
    assert imports == "1 False", done.stderr
    assert len(errors) == 2 and all("connection refused" in error for error in errors)


def _imports_in_loop(path: Path) -> list[str]:
    """Async functions of a file that import aiohttp before they have awaited that import in a thread."""
    found = []
    for function in ast.walk(ast.parse(path.read_text())):
        if isinstance(function, ast.AsyncFunctionDef):
            said = [ast.unparse(statement) for statement in function.body]
            before = said[: said.index("import aiohttp")] if "import aiohttp" in said else None
            if before is not None and "await imported('aiohttp')" not in before:
                found.append(f"{path}: {function.name}")
    return found


def test_async_functions_import_the_client_in_a_thread(tmp_path: Path) -> None:
    bad = tmp_path / "bad.py"
    bad.write_text("async def f():\n    import aiohttp\n")
    assert _imports_in_loop(bad)
    assert [line for path in SOURCE.rglob("*.py") for line in _imports_in_loop(path)] == []
