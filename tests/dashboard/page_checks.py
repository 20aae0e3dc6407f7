"""Every page of the busy cluster, and what has to hold of each at any width: it fits, and axe finds nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

SIZES = {390: 844, 1440: 900, 2560: 1440}
"""Widths in px with the heights of their screens."""
SCHEMES = ("light", "dark")
PAGES = {
    "overview": "/",
    "map": "/map",
    "map-cards": "/map?zoom=cards&node=dgx-a100-*",
    "timeline": "/timeline?range=1h",
    "usage": "/usage",
    "queue": "/queue",
    "workload-waiting": "/workload/research/job/pretrain-moe",
    "workload-running": "/workload/serving/deployment/chat-llm",
    "node": "/node/hgx-h200-3",
    "device": "/device/gpu.nvidia.com/dgx-a100-80gb-mig-0/gpu-0",
    "namespace": "/namespace/research",
    "yaml": "/yaml/Node/-/hgx-h200-3",
    "whatif": "/whatif?change=add-nodes&profile=dgx-h100&count=8",
    "whatif-drain": "/whatif?change=drain&node=dgx-h100-0",
    "search": "/search?q=pretrain",
}
_AXE = (
    "async options => JSON.stringify((await axe.run(document, {resultTypes: ['violations'], ...options})).violations)"
)
COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}
"""axe-core's default rules about colours, which are all that another colour scheme has to do with."""


_CUT = "names => names.filter(name => name.scrollWidth > name.clientWidth).map(name => name.innerText)"
"""The names of a timeline that are not shown whole: those of nodes differ at their ends."""


def shown(page: Any, path: str) -> None:
    """Go to a page, and wait until it is live if it is one that is."""
    page.goto(path)
    if page.locator("#content[data-live]").count():
        page.get_by_text("live", exact=True).wait_for()


def too_wide(page: Any, widths: Sequence[int]) -> list[str]:
    """The widths at which something of a page lies outside of the window."""
    found = []
    for width in widths:
        page.set_viewport_size({"width": width, "height": SIZES.get(width, 900)})
        wide = page.evaluate("document.documentElement.scrollWidth")
        if wide > width:
            found.append(f"{wide} px wide at {width} px")
        found += [f"cut at {width} px: {name}" for name in page.locator(".row .name").evaluate_all(_CUT)]
    return found


def violations(page: Any, axe: str, **options: Any) -> list[str]:
    """What the accessibility checker finds on a page as it is shown; `options` are those of `axe.run`."""
    page.evaluate(axe)
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in json.loads(page.evaluate(_AXE, options))
        for node in each["nodes"][:3]
    ]
