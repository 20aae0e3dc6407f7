"""Pages of nodes, devices, namespaces, YAML and what-if, asked for as a browser does."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any

import pytest
from dashboard_pages import FixedWatch, browser_of
from engine_objects import DRIVER, allocated, allocation, claim, device_class, node, pod, pod_group, resource_slice
from tenant_pages import people_of

from haru.dashboard.signin.viewer import Viewer, Visibility
from haru.dashboard.views.difference import difference_page
from haru.dashboard.views.usage import Span, Use
from haru.dashboard.views.usage_history import UsageHistory
from haru.dashboard.views.workloads import Workload
from haru.engine import SchedulerCache
from haru.explain.card_counts import CardCounts
from haru.whatif import Comparison
from haru.whatif.comparison_data import Start
from haru.whatif.usage import Amount

Obj = dict[str, Any]
SLICES = [resource_slice("a", 2), resource_slice("b", 2)]


def cluster() -> list[Obj]:
    """Two nodes of two devices; `train` holds one, a gang of three waits for three."""
    train = pod("train", node="a", claims=["train"])
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "most", "namespace": "default"}}
    quota |= {"status": {"hard": {"requests.cpu": "10"}, "used": {"requests.cpu": "2500m"}}}
    ready = [{"type": "Ready", "status": "True"}]
    nodes = [node("a", labels={"pool": "x"}), node("b", taints=[{"key": "k", "effect": "NoSchedule"}])]
    for each in nodes:
        each["status"]["conditions"] = ready
    members = [pod(f"gang-{n}", group="gang", claims=[f"gang-{n}"]) for n in range(3)]
    return [
        *nodes,
        *SLICES,
        device_class(),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
        quota,
        train,
        allocated(claim("train"), allocation("a", "gpu-0"), train),
        pod_group("gang", 3),
        *members,
        *(claim(f"gang-{n}") for n in range(3)),
    ]


def watch() -> FixedWatch:
    about = {"kind": "Node", "name": "a", "uid": "x"}
    event = {"metadata": {"namespace": "default"}, "reason": "Rebooted", "message": "node a", "involvedObject": about}
    return FixedWatch(SchedulerCache.of(cluster()).snapshot(), [event])


async def slices() -> Sequence[Obj]:
    return SLICES


def measured(since: int, until: int) -> list[Span]:
    return [Span(until - 3_600_000, until, 3_600_000, {Use("held", Workload("default", "pod/train")): 7_200_000.0})]


def plain(text: str) -> str:
    return html.unescape(" ".join(re.sub(r"<[^>]+>", " ", text).split()))


async def test_page_of_a_node_has_devices_pods_taints_events_and_links() -> None:
    async with browser_of(watch()) as browser:
        answer = await browser.get("/node/a")
        text = plain(answer.text)
        assert answer.status_code == 200 and "Rebooted" in text and "pool=x" in text
        for link in (f"/device/{DRIVER}/a/gpu-0", "/workload/default/pod/train", "/yaml/Node/-/a", "/map?node=a"):
            assert f'href="{link}"' in answer.text, link
        # What waits as a PodGroup has the name, and so the look, of the workload that the queue shows.
        assert "podgroup/gang" in text and answer.text.count('data-label="Fits here"') == 1
        assert "k:NoSchedule" in plain((await browser.get("/node/b")).text)
        gone = await browser.get("/node/c")
        assert (gone.status_code, '<a href="/">Overview</a>' in gone.text) == (404, True)


async def test_page_of_a_device_has_its_holder_and_its_node() -> None:
    async with browser_of(watch()) as browser:
        answer = await browser.get(f"/device/{DRIVER}/a/gpu-0")
        assert answer.status_code == 200 and "Held" in plain(answer.text)
        assert 'href="/workload/default/pod/train"' in answer.text and 'href="/node/a"' in answer.text
        assert "Nobody holds it" in plain((await browser.get(f"/device/{DRIVER}/a/gpu-1")).text)
        assert (await browser.get(f"/device/{DRIVER}/a/gpu-9")).status_code == 404


async def test_page_of_a_namespace_has_quotas_workloads_claims_and_card_hours() -> None:
    async with browser_of(watch(), history=UsageHistory(spans=measured)) as browser:
        answer = await browser.get("/namespace/default", params={"work.sort": "-hours"})
        text = plain(answer.text)
        assert "requests.cpu 2500m 10 25 %" in text
        assert "default/ pod/train 1 0 1 0" in text and "2.0" in text
        assert (await browser.get("/namespace/none")).status_code == 404


async def test_yaml_is_shown_to_who_may_get_the_object_alone() -> None:
    async def only_pods(verb: str, group: str, resource: str, namespace: str) -> bool:
        return (verb, group, resource, namespace) == ("get", "", "pods", "default")

    tenant = Viewer(Visibility(namespaces=frozenset({"default"})), "ann", allowed=only_pods)
    async with people_of(watch(), tenant) as (person,):
        shown = await person.get("/yaml/Pod/default/train")
        assert shown.status_code == 200 and "nodeName: a" in shown.text and "data-live" not in shown.text
        for path in ("/yaml/Node/-/a", "/yaml/ResourceClaim/default/train", "/yaml/Secret/default/x", "/yaml/Pod/x/y"):
            assert (await person.get(path)).status_code == 404, path


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({"change": "cordon", "node": "a"}, ("harmless", "Nothing changes for any pod")),
        ({"change": "drain", "node": "a"}, ("somebody loses", "is lost", "pod/train")),
        ({"change": "taint", "node": "a", "taint": "x:NoExecute"}, ("somebody loses", "pod/train")),
        ({"change": "min-count", "group": "default/gang", "count": "1"}, ("harmless", "1 pod starts", "podgroup/gang")),
        ({"change": "add-nodes", "profile": "cpu", "count": "2"}, ("harmless", "Nothing changes for any pod")),
    ],
)
async def test_what_if_shows_before_and_after(query: dict[str, str], expected: tuple[str, ...]) -> None:
    async with browser_of(watch(), slices=slices) as browser:
        answer = await browser.get("/whatif", params=query)
        text = plain(answer.text)
        assert answer.status_code == 200 and "Before and after" in text
        for each in expected:
            assert each in text, text
        assert '<option value="default/gang">' in answer.text


def test_pods_of_one_workload_to_which_the_same_happens_are_one_row() -> None:
    starts = tuple(Start(f"ml/p-{n}", "job/train", f"node-{n}") for n in range(6))
    usage = {
        "devices x": tuple(Amount(total, 4.0, CardCounts(unmeasured=4000, free=1000 * (total - 4))) for total in (4, 8))
    }
    found = difference_page(Comparison(("add 4 nodes",), starts, (), (), (), usage, 0, (0, 0)), {})
    [row] = found.table.rows
    assert [cell.text for cell in row] == [
        "ml/job/train", "6", "starts", "", "node-0, node-1, node-2, node-3 and 2 more", ""
    ]  # fmt: skip
    assert found.counts == (("6 pods start", "good"),) and row[4].links[0] == ("node-0", "/node/node-0")
    [level] = found.levels
    # Both bars have one scale: that of the larger cluster.
    assert [(part.look, part.x, part.width) for part in level.before.segments] == [("in-use", 0.0, 50.0)]
    assert [(part.look, part.x, part.width) for part in level.after.segments] == [
        ("in-use", 0.0, 50.0), ("free", 50.0, 50.0)
    ]  # fmt: skip


async def test_taint_of_a_device_displaces_its_holder() -> None:
    query = {"change": "taint-device", "device": f"{DRIVER}/a/gpu-0", "taint": "x=y:NoExecute"}
    async with browser_of(watch(), slices=slices) as browser:
        text = plain((await browser.get("/whatif", params=query)).text)
        assert "somebody loses" in text and "pod/train" in text


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ({"change": "cordon", "node": "z"}, "there is no node"),
        ({"change": "explode"}, "say what changes"),
        ({"change": "taint", "node": "a", "taint": "x"}, '"x": write'),
        ({"change": "add-nodes", "profile": "../x"}, "there is no profile"),
        ({"change": "add-nodes", "profile": "cpu", "count": "999999999"}, "from 1 to 1000"),
        ({"change": "min-count", "group": "default/gang", "count": "-1"}, "write a number"),
        ({"change": "min-count", "group": "other/gang", "count": "1"}, "there is no PodGroup"),
        ({"change": "taint-device", "device": "x", "taint": "a=b:NoExecute"}, "there is no device"),
    ],
)
async def test_change_that_makes_no_sense_is_refused_with_the_reason(query: dict[str, str], problem: str) -> None:
    async with browser_of(watch(), slices=slices) as browser:
        answer = await browser.get("/whatif", params=query)
        assert answer.status_code == 200 and problem in plain(answer.text) and "Before and after" not in answer.text


async def test_what_if_of_a_tenant_counts_work_of_others_without_names() -> None:
    objects = cluster()
    for obj in objects:
        if obj["metadata"].get("name") == "train" and "namespace" in obj["metadata"]:
            obj["metadata"]["namespace"] = "secret"
    found = FixedWatch(SchedulerCache.of(objects).snapshot())
    tenant = Viewer(Visibility(namespaces=frozenset({"default"})), "ann")
    async with people_of(found, tenant, slices=slices) as (person,):
        answer = await person.get("/whatif?change=drain&node=a")
        text = plain(answer.text)
        assert "another namespace" in text and "is lost" in text
        assert "train" not in text and "secret" not in text and "hidden-" not in text
