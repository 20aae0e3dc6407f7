from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from dashboard_driving import CHROMIUM_FLAGS, MILLISECONDS, dashboard_address, listen, steady

from haru_process import Up


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
        with steady(playwright):
            yield running
        running.close()


@pytest.fixture(scope="module")
def session(browser: Any, up: Up) -> tuple[str, Any]:
    """The address without the code, and what a browser that has entered the dashboard of a module's `up` keeps."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(dashboard_address(up))
    split = urlsplit(page.url)
    assert (split.path, split.query) == ("/", ""), "the code stays in the address"
    assert page.evaluate("document.cookie") == "", "scripts can read the cookie"
    state = context.storage_state()
    context.close()
    return f"http://{split.netloc}", state


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: Any, session: tuple[str, Any]) -> Iterator[Any]:
    """A page of a browser that has entered. Whatever it complains about fails the test."""
    address, state = session
    context = browser.new_context(base_url=address, storage_state=state, **getattr(request, "param", {}))
    context.set_default_timeout(MILLISECONDS)
    made, complaints = context.new_page(), list[str]()
    listen(made, complaints)
    yield made
    context.close()
    assert complaints == []


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core, the accessibility checker: a development dependency carries it."""
    package = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed: no axe-core")
    return (Path(package.__file__).parent / "axe.min.js").read_text()
