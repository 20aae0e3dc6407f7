"""What it takes to open the dashboard of a running `haru up` in a browser."""

from __future__ import annotations

import re

from haru_process import Up, until

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
