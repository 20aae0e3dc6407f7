"""Makes the pictures of the dashboard in docs/images: a busy simulated cluster in a real Chromium.

`python tools/dashboard_pictures.py [NAME…]`. Each page is seen at 390, 1440 and 2560 px, light and dark: a sheet of
six pictures for each, and some pages in full size for the texts. It prints what the console says, what does not fit
and what axe finds; the exit status is 1 if there is any. The cluster is real (`haru up`); what its usage history tells
of the time before it started is written by tests/dashboard/dashboard_history.py.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "dashboard")]

PRICES = """\
apiVersion: haru.dev/v1alpha1
kind: CardPrices
currency: EUR
perCardHour: {NVIDIA B200: 4.80, NVIDIA H200: 3.20, NVIDIA H100*: 2.40, NVIDIA A100*80GB: 1.50, NVIDIA A100*: 1.10}
"""
WHOLE = {
    "overview": "light", "map": "light", "map-cards": "dark", "timeline": "light", "usage": "light", "queue": "light",
    "workload-waiting": "dark", "whatif": "light",
}  # fmt: skip
"""Pages that the texts show in full size, at 1440 px, in one scheme."""
SHEET_QUALITY, WHOLE_QUALITY = 72, 84
_GAP, _SCALES = 14, {390: 0.62, 1440: 0.58, 2560: 0.36}
"""Pixels between the pictures of a sheet, and how large those of each width are in it."""


def main() -> int:
    """Make the pictures of the pages that are named, or of all."""
    from page_checks import PAGES

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(PAGES)} (default: all)")
    parser.add_argument("--minutes", type=float, default=4, help="how old the cluster is in the pictures (default 4)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster(Path(folder), options.minutes) as address:
        found = photograph(address, [name for name in PAGES if not options.names or name in options.names])
    print("\n".join(found) or "nothing is too wide, the console is silent, axe finds nothing")
    return 1 if found else 0


@contextmanager
def cluster(home: Path, minutes: float) -> Iterator[str]:
    """Run the busy cluster; yields the address of its dashboard."""
    from busy_cluster import PROFILES, disturb, fill
    from dashboard_driving import dashboard_address
    from dashboard_history import write

    from haru_process import Up

    (home / "prices.yaml").write_text(PRICES)
    (home / "data").mkdir(mode=0o700)
    now = int(time.time() * 1000)
    write(home / "data" / "usage.db", now, now)
    flags = ("--data-dir", str(home / "data"), "--card-prices", str(home / "prices.yaml"), "--profile", PROFILES)
    up = Up(home, *flags)
    try:
        fill(up)
        time.sleep(30 * minutes)
        disturb(up)
        time.sleep(30 * minutes)
        yield dashboard_address(up)
    finally:
        up.stop()


def photograph(address: str, names: list[str]) -> list[str]:
    """Look at each page in a browser at each size, write its pictures, and return what is wrong with it."""
    from dashboard_driving import CHROMIUM_FLAGS, steady
    from page_checks import PAGES, SCHEMES, SIZES
    from playwright import sync_api

    found: list[str] = []
    with sync_api.sync_playwright() as driver, steady(sync_api):
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        context = browser.new_context()
        page = context.new_page()
        page.goto(address)
        page.get_by_text("would fit with").wait_for()
        state, base = context.storage_state(), address.partition("/?")[0]
        for name in names:
            taken: dict[tuple[str, int], bytes] = {}
            for scheme in SCHEMES:
                looked = browser.new_context(color_scheme=scheme, storage_state=state, base_url=base)
                for width, height in SIZES.items():
                    taken[scheme, width], wrong = look(looked, PAGES[name], width, height)
                    found += [f"{name}, {width} px, {scheme}: {each}" for each in wrong]
                if WHOLE.get(name) == scheme:
                    write_webp(looked, taken[scheme, 1440], (1440, 900), IMAGES / f"dashboard-{name}.webp")
                looked.close()
            write_sheet(context, taken, IMAGES / f"dashboard-{name}-sheet.webp")
            print(f"dashboard-{name}", flush=True)
        browser.close()
    return found


def look(context: Any, path: str, width: int, height: int) -> tuple[bytes, list[str]]:
    """Return a picture of a page, and what is wrong with it."""
    from dashboard_driving import listen
    from page_checks import shown, too_wide, violations

    page, complaints = context.new_page(), list[str]()
    listen(page, complaints)
    page.set_viewport_size({"width": width, "height": height})
    shown(page, path)
    page.wait_for_timeout(1500)  # the charts are drawn, explanations have arrived
    picture = page.screenshot()
    wrong = [*too_wide(page, [width]), *violations(page, axe_source()), *complaints]
    page.close()
    return picture, wrong


def axe_source() -> str:
    """The accessibility checker."""
    import axe_playwright_python

    return (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()


def write_sheet(context: Any, taken: dict[tuple[str, int], bytes], file: Path) -> None:
    """Write the six pictures of a page as one: a row for each scheme."""
    from page_checks import SCHEMES, SIZES

    size = {width: (round(width * scale), round(SIZES[width] * scale)) for width, scale in _SCALES.items()}
    pieces, y = [], _GAP
    for scheme in SCHEMES:
        x = _GAP
        for width, (wide, high) in size.items():
            source = "data:image/png;base64," + base64.b64encode(taken[scheme, width]).decode()
            pieces.append(f'<img src="{source}" style="left:{x}px;top:{y}px;width:{wide}px;height:{high}px">')
            x += wide + _GAP
        y += max(high for _, high in size.values()) + _GAP
    write_html(context, "".join(pieces), (x, y), file, SHEET_QUALITY)


def write_webp(context: Any, picture: bytes, size: tuple[int, int], file: Path) -> None:
    """Write a picture as WebP."""
    source = "data:image/png;base64," + base64.b64encode(picture).decode()
    write_html(context, f'<img src="{source}" style="left:0;top:0">', size, file, WHOLE_QUALITY)


def write_html(context: Any, body: str, size: tuple[int, int], file: Path, quality: int) -> None:
    """Let the browser draw a page of pictures, and write what it has drawn as WebP."""
    page = context.new_page()
    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.set_content(f"<style>body{{margin:0;background:#8b97a3}}img{{position:absolute}}</style>{body}")
    page.wait_for_function("[...document.images].every((image) => image.complete)")
    session = context.new_cdp_session(page)
    drawn = session.send("Page.captureScreenshot", {"format": "webp", "quality": quality})
    file.write_bytes(base64.b64decode(drawn["data"]))
    page.close()


if __name__ == "__main__":
    sys.exit(main())
