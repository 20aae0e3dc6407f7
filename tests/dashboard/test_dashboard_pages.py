"""The pages: nothing of the cluster gets into one unescaped, and nothing in one needs what the policy forbids."""

from __future__ import annotations

import re
from typing import Any

import pytest
from dashboard_pages import FixedWatch, address_of, browser_of
from engine_objects import allocated, allocation, claim, node, pod, resource_slice

from haru.dashboard.pages import PAGES
from haru.dashboard.views.looks import look
from haru.dashboard.views.workloads import OTHER, Workload
from haru.engine import SchedulerCache
from haru.markup import Html, tag

Obj = dict[str, Any]
EVIL = "<script>alert('x')</script>\"&"
NOW = "2026-03-01T12:00:00Z"


def test_elements_escape_text_and_attributes() -> None:
    assert tag(
        "a", "1 < 2 & ", Html("<b>3</b>"), href='/?a="b"', hidden=True, title=None, aria_label="x", class_="y"
    ) == ('<a href="/?a=&quot;b&quot;" hidden aria-label="x" class="y">1 &lt; 2 &amp; <b>3</b></a>')
    assert tag("input", name="n", value="") == '<input name="n" value="">'
    assert tag("p", None, ["a", ("b", None)]) == "<p>ab</p>"


def hostile_watch() -> FixedWatch:
    """A cluster in which every free text is hostile."""
    made = pod("p", node="a", claims=["c"])
    waiting = pod("w", cpu="99")
    waiting["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "message": EVIL, "reason": EVIL, "lastTransitionTime": NOW}
    ]
    waiting["metadata"] |= {"creationTimestamp": NOW}
    device = {
        "name": "gpu-0",
        "attributes": {"productName": {"string": EVIL}},
        "taints": [{"key": "k", "value": EVIL, "effect": "NoSchedule"}],
    }
    held = allocated(claim("c"), allocation("a", "gpu-0"), made)
    tainted = node("a", taints=[{"key": EVIL, "effect": "NoSchedule"}])
    snapshot = SchedulerCache.of([tainted, resource_slice("a", [device]), made, waiting, held]).snapshot()
    event = {
        "metadata": {},
        "reason": EVIL,
        "message": EVIL,
        "involvedObject": {"kind": EVIL, "name": EVIL, "uid": "uid-w"},
    }
    return FixedWatch(snapshot, [event], [EVIL])


@pytest.mark.parametrize("path", [address_of(page) for page in PAGES])
async def test_pages_escape_all_values_and_have_no_inline_script(path: str) -> None:
    async with browser_of(hostile_watch()) as browser:
        answer = await browser.get(path, params={"namespace": "", "workload": "", "node": "*", "x": EVIL})
    whole = answer.text
    assert answer.status_code == 200, whole
    assert "alert(" in whole and "<script>" not in whole and "alert('" not in whole
    tags = re.findall(r"<[a-z][^>]*>", whole)
    assert not [t for t in tags if re.search(r"\s(on\w+|style)=", t)]
    # Every address stays on this server.
    assert {a[0] for a in re.findall(r'(?:href|src|action)="([^"]*)"', whole)} <= {"/", "#"}
    assert whole.count("<h1>") == whole.count("<main") == 1 and '<html lang="en">' in whole
    assert "Not allowed to read" in whole


async def test_page_without_vendored_scripts_says_that_charts_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    from haru.dashboard import template_engine

    monkeypatch.setitem(template_engine.environment().globals, "charts", False)
    spec = {"x": [0, 1], "series": []}
    made = template_engine.environment().from_string(
        '{% from "macros.html" import chart with context %}{{ chart("a", "A", spec) }}'
    )
    assert "has no charts: it was made without npm" in made.render(spec=spec)


def test_workload_has_same_look_on_every_page() -> None:
    work = Workload("default", "job/training")
    assert look(work) == look(Workload(*work)) != "cx p0"
    assert look(OTHER) == "cx p0"
