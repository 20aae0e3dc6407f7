from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dashboard_driving import CHROMIUM_FLAGS


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A real Chromium without a window, with nothing from any user's profile."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: no browser is driven")
    binary = shutil.which("chromium") or shutil.which("chromium-browser")
    if binary is None:
        pytest.skip("chromium is not installed: tools/setup.sh installs it as root on Debian")
    os.environ.setdefault("DBUS_SESSION_BUS_ADDRESS", "disabled:")
    with playwright.sync_playwright() as driver:
        # playwright gives each browser a new user data directory of its own.
        running = driver.chromium.launch(executable_path=binary, args=CHROMIUM_FLAGS)
        yield running
        running.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, the accessibility checker: a development dependency carries it."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed: no axe-core")
    return (Path(package.__file__).parent / "axe.min.js").read_text()
