"""What it takes to open the dashboard of a running `haru up` in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

from haru_process import Up, until

MILLISECONDS = 30_000
NETWORK_CHANGED = "ERR_NETWORK_CHANGED"
"""What Chromium says of any request while interfaces of the machine come and go, as in tests of nodes beside it."""

# Chromium on a machine without a display, a sandbox for root, or a network.
CHROMIUM_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def dashboard_address(up: Up) -> str:
    """The address, with the code that lets one browser in, that `haru up` printed."""
    found = until("the dashboard's address", lambda: re.search(r"dashboard, .*: (http://\S+)", up.log.read_text()))
    return found[1]


_COMPLAINTS: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()


def listen(page: Any, complaints: list[str]) -> None:
    """Collect what a page writes to the console, and its errors."""

    def told(text: str) -> None:
        if NETWORK_CHANGED not in text:
            complaints.append(text)

    _COMPLAINTS[page] = complaints
    page.on("console", lambda message: told(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: told(str(error)))


@contextmanager
def steady(playwright: Any) -> Iterator[None]:
    """Let pages be gone to once more where the machine's interfaces changed while they, or a part of them, loaded."""
    once = playwright.Page.goto

    def again(page: Any, *arguments: Any, **more: Any) -> Any:
        failed: list[str] = []

        def note(request: Any) -> None:
            failed.append(request.failure or "")

        page.on("requestfailed", note)
        try:
            for _ in range(10):
                failed.clear()
                before = len(_COMPLAINTS.get(page, ()))
                try:
                    answer = once(page, *arguments, **more)
                    if not any(NETWORK_CHANGED in text for text in failed):
                        return answer
                except playwright.Error as error:
                    if NETWORK_CHANGED not in str(error):
                        raise
                del _COMPLAINTS.get(page, [])[before:]
            return once(page, *arguments, **more)
        finally:
            page.remove_listener("requestfailed", note)

    playwright.Page.goto = again
    try:
        yield
    finally:
        playwright.Page.goto = once
