"""Makes the pictures of the dashboard in docs/images: a busy simulated cluster in a real Chromium.

`python tools/dashboard_pictures.py [NAME…]`. The cluster is real (`haru up`); what its usage history tells of the hours
before it started is written by tests/dashboard/dashboard_history.py.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "dashboard")]

PRICES = """\
apiVersion: haru.dev/v1alpha1
kind: CardPrices
currency: EUR
perCardHour: {NVIDIA B200: 4.80, NVIDIA H200: 3.20, NVIDIA H100*: 2.40, NVIDIA A100*80GB: 1.50, NVIDIA A100*: 1.10}
"""


class Picture(NamedTuple):
    """A page at a size; a height of 0 is that of the whole page."""

    name: str
    path: str
    width: int
    height: int
    scheme: str


PICTURES = (
    Picture("overview-light", "/", 1440, 900, "light"),
    Picture("overview-dark", "/", 2560, 1440, "dark"),
    Picture("overview-phone", "/", 390, 844, "light"),
    Picture("map-light", "/map", 1440, 900, "light"),
    Picture("map-dark", "/map?by=pool", 2560, 1440, "dark"),
    Picture("map-phone", "/map", 390, 844, "dark"),
    Picture("map-cards-dark", "/map?zoom=cards&node=dgx-a100-*", 1440, 900, "dark"),
    Picture("timeline-light", "/timeline?range=15m", 1440, 900, "light"),
    Picture("timeline-dark", "/timeline?range=15m", 2560, 1440, "dark"),
    Picture("timeline-phone", "/timeline?range=15m", 390, 844, "light"),
    Picture("usage-light", "/usage", 1440, 900, "light"),
    Picture("usage-dark", "/usage", 2560, 1440, "dark"),
    Picture("queue-light", "/queue", 1440, 900, "light"),
    Picture("queue-phone", "/queue", 390, 844, "dark"),
    Picture("workload-dark", "/workload/research/job/pretrain-moe", 1440, 900, "dark"),
    Picture("workload-light", "/workload/serving/deployment/chat-llm", 1440, 900, "light"),
    Picture("node-light", "/node/hgx-h200-3", 1440, 900, "light"),
    Picture("device-dark", "/device/gpu.nvidia.com/dgx-a100-80gb-mig-0/gpu-0", 1440, 900, "dark"),
    Picture("namespace-light", "/namespace/research", 1440, 900, "light"),
    Picture("whatif-light", "/whatif", 1440, 900, "light"),
    Picture("search-dark", "/search?q=pretrain", 1440, 900, "dark"),
)


def main() -> int:
    """Make the pictures that are named, or all."""
    from busy_cluster import PROFILES, disturb, fill
    from dashboard_history import write

    from haru_process import Process, Up

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--minutes", type=float, default=4, help="how old the cluster is in the pictures (default 4)")
    options = parser.parse_args()
    names = options.names
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        began = int(time.time() * 1000)
        up = Up(home / "up", "--ephemeral", "--profile", PROFILES)
        try:
            fill(up)
            (home / "prices.yaml").write_text(PRICES)
            time.sleep(30 * options.minutes)
            disturb(up)
            time.sleep(30 * options.minutes)
            write(home / "usage.db", int(time.time() * 1000), began)
            flags = ["--history", str(home / "usage.db"), "--card-prices", str(home / "prices.yaml")]
            pages = Process(home, ["dashboard", "--kubeconfig", str(up.kubeconfig), *flags], "dashboard")
            try:
                photograph(pages.line().split()[-1], names)
            finally:
                pages.stop()
        finally:
            up.stop()
    return 0


def photograph(address: str, names: list[str]) -> None:
    """Open each page in a browser, and write what is seen."""
    from dashboard_driving import CHROMIUM_FLAGS
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        page.get_by_text("would fit with").wait_for()
        state, base = context.storage_state(), address.partition("/?")[0]
        for picture in PICTURES:
            if not names or picture.name in names:
                take(browser, picture, base, state)
        browser.close()


def take(browser: Any, picture: Picture, base: str, state: Any) -> None:
    """Make one picture."""
    size = {"width": picture.width, "height": picture.height or 900}
    context = browser.new_context(viewport=size, color_scheme=picture.scheme, storage_state=state, base_url=base)
    page = context.new_page()
    page.goto(picture.path)
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_timeout(2000)  # the charts are drawn, explanations have arrived
    page.screenshot(path=IMAGES / f"dashboard-{picture.name}.png", full_page=not picture.height)
    context.close()
    print(f"dashboard-{picture.name}.png")


if __name__ == "__main__":
    sys.exit(main())
