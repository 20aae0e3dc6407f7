"""Takes the pictures of the dashboard in docs/images from a real `haru up`: `python tools/dashboard_pictures.py`.

It needs kubectl, chromium and the development dependencies.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests"), str(ROOT / "tests" / "dashboard")]
from dashboard_driving import CHROMIUM_FLAGS, dashboard_address  # noqa: E402

from haru_process import Up  # noqa: E402

PROFILES = "dgx-h100:1,dgx-a100-80gb-mig:1,t4:6,tpu-v5e:1,cpu:1"
MANIFESTS = ("10-notebooks", "20-training", "30-inference-mig", "50-tpu")
PICTURES = (
    ("map", "light", "/"),
    ("map", "dark", "/"),
    ("queue", "light", "/queue"),
    ("workload", "dark", "/workload/default/job/training"),
)


def main() -> None:
    """Starts the cluster, gives it work, and takes every picture."""
    home = Path(tempfile.mkdtemp())
    up = Up(home, "--ephemeral", "--profile", PROFILES)
    try:
        for name in MANIFESTS:
            up.api.create_all((ROOT / "examples" / "demo" / f"{name}.yaml").read_text(), "default")
        taint = {"simulated.haru.dev/device-taints": "gpu-2=maintenance:NoSchedule"}
        up.api.patch("nodes", "t4-1", {"metadata": {"annotations": taint}})
        time.sleep(8)
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
            _take(browser, dashboard_address(up))
            browser.close()
    finally:
        up.stop()
        shutil.rmtree(home)


def _take(browser: Any, address: str) -> None:
    context = browser.new_context(viewport={"width": 1180, "height": 760})
    page = context.new_page()
    page.goto(address)
    root = page.url.rstrip("/")
    for name, scheme, path in PICTURES:
        page.emulate_media(color_scheme=scheme)
        page.goto(root + path)
        page.get_by_text("live", exact=True).wait_for()
        page.screenshot(path=ROOT / "docs" / "images" / f"dashboard-{name}-{scheme}.png")


if __name__ == "__main__":
    main()
