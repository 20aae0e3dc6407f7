"""The HTML: nothing of the cluster gets into it unescaped, and nothing in it needs what the policy forbids."""

from __future__ import annotations

import re
from typing import Any

import pytest
from engine_objects import allocated, allocation, claim, node, pod, resource_slice

from haru.dashboard.pages.frame import Heading, address, page
from haru.dashboard.pages.map_page import HUES, hue, map_content
from haru.dashboard.pages.queue_page import queue_content
from haru.dashboard.pages.workload_page import workload_content
from haru.dashboard.views.device_map import device_map
from haru.dashboard.views.queue import ShownExplanation, waiting_work
from haru.dashboard.views.story import story
from haru.dashboard.views.workloads import Filter, Workload
from haru.engine import SchedulerCache
from haru.explain.cards import Layouts
from haru.explain.entry import explain
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


def test_filter_is_encoded_in_urls() -> None:
    chosen = Filter("a&b", "job/x y", "n*")
    assert address("/queue", chosen) == "/queue?namespace=a%26b&workload=job%2Fx+y&node=n%2A"
    assert address("/", Filter()) == "/"


def pages() -> dict[str, str]:
    """All pages of a cluster in which every free text is hostile."""
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
    chosen = Filter(node="*")
    event = {
        "metadata": {},
        "reason": EVIL,
        "message": EVIL,
        "involvedObject": {"kind": EVIL, "name": EVIL, "uid": "uid-w"},
    }
    found = waiting_work(snapshot)
    told = {each.workload: ShownExplanation(explain(snapshot, "pod", waiting), NOW) for each in found}
    work = story(snapshot, Workload("default", "pod/w"), [event], NOW)
    assert work is not None
    contents = {
        "/": map_content(device_map(snapshot, Layouts(), chosen), chosen),
        "/queue": (queue_content(found, told, chosen), queue_content(found, {}, chosen)),
        "/workload/default/pod/w": workload_content(work),
    }
    hostile = Filter(EVIL, EVIL, EVIL)
    return {path: page(Heading(path, path, hostile, 1, [EVIL]), content) for path, content in contents.items()}


@pytest.mark.parametrize("path", ["/", "/queue", "/workload/default/pod/w"])
def test_pages_escape_all_values_and_have_no_inline_script(path: str) -> None:
    whole = pages()[path]
    assert "alert(" in whole and "<script>" not in whole and "alert('" not in whole
    tags = re.findall(r"<[a-z][^>]*>", whole)
    assert not [t for t in tags if re.search(r"\s(on\w+|style)=", t)]
    # Every address stays on this server.
    assert {a[0] for a in re.findall(r'(?:href|src|action)="([^"]*)"', whole)} <= {"/", "#"}
    assert whole.count("<h1>") == whole.count("<main") == 1 and '<html lang="en">' in whole


def test_workload_has_same_colour_on_every_page() -> None:
    work = Workload("default", "job/training")
    assert hue(work) == hue(Workload(*work)) == "hue-7"
    assert len({hue(Workload("default", f"job/{n}")) for n in range(200)}) == HUES
