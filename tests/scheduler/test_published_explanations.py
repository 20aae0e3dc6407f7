"""Why work waits, published by the scheduler in conditions and events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from scheduler_bench import EVENTS, GROUPS, NS, PODS, Bench, Obj, play

from haru.explain import without_explanation
from haru.kube.kinds import known_kind
from haru.scheduler.settings import PublishedNames

NAMESPACES = known_kind("v1", "Namespace")
CLAIM_OF_OTHERS = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "count": 2}}]}}


def published(work: Callable[[Bench], Awaitable[None]], publish: PublishedNames = "counts") -> None:
    bench = Bench()
    bench.publish = publish
    play(work, bench=bench)


async def explained(bench: Bench, name: str, seconds: float = 8.0) -> tuple[str, str]:
    """What the pod's condition says: the scheduler's own words and the explanation."""
    await asyncio.sleep(seconds)
    return without_explanation((await bench.condition(PODS, name, "PodScheduled"))["message"])


async def events(bench: Bench, name: str) -> list[Obj]:
    found = (await bench.api.list(EVENTS, NS))["items"]
    return [e for e in found if e["reason"] == "SchedulingExplained" and e["involvedObject"]["name"] == name]


async def taken_by_others(bench: Bench) -> None:
    """A pod of namespace secret-lab holds two of the four devices."""
    await bench.create(NAMESPACES, {"metadata": {"name": "secret-lab"}})
    claims, pods = known_kind("resource.k8s.io/v1", "ResourceClaim"), PODS
    await bench.api.create(claims, {"metadata": {"name": "hidden-claim"}, "spec": CLAIM_OF_OTHERS}, "secret-lab")
    spec = {
        "containers": [{"name": "c", "image": "i"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "hidden-claim"}],
    }
    await bench.api.create(pods, {"metadata": {"name": "hidden-pod"}, "spec": spec}, "secret-lab")
    await asyncio.sleep(2)


def test_pod_condition_begins_with_words_of_kube_scheduler_and_ends_with_numbers_and_remedy() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=2)
        await bench.claim("three", count=3)
        await bench.pod("p", claim="three")
        own, text = await explained(bench, "p")
        assert own.startswith("0/1 nodes are available: 1 cannot allocate all claims.")
        assert text.startswith("request r needs 3 devices of gpu, 2 are free. ")
        assert "Helps: ask for 2 devices instead of 3. " in text
        assert text.endswith("More: haru explain pod/p -n default")
        [told] = await events(bench, "p")
        assert told["message"] == "request r needs 3 devices of gpu, 2 are free. Helps: ask for 2 devices instead of 3"
        assert (told["type"], told["reportingComponent"]) == ("Warning", "default-scheduler")

    published(scenario)


def test_group_has_whole_text_and_members_one_line() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=2)
        await bench.gang("g", 3)
        for name in ("a", "b", "c"):
            await bench.pod(name, group="g")
        await asyncio.sleep(5)
        group = (await bench.condition(GROUPS, "g", "PodGroupScheduled"))["message"]
        assert group.startswith("pod group is unschedulable")
        _, whole = without_explanation(group)
        assert "Nodes: 1 node: " in whole
        for name in ("a", "b", "c"):
            _, line = await explained(bench, name, 0)
            assert line.startswith("2 of the 3 pods that have to start together find a place")
            assert "Nodes:" not in line
            assert len(await events(bench, name)) == 1
        assert len(await events(bench, "g")) == 1

    published(scenario)


def test_gang_that_lacks_members_is_told_how_many() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node()
        await bench.gang("g", 3)
        await bench.pod("a", group="g")
        own, text = await explained(bench, "a", 20)
        assert own.startswith("waiting for minCount pods from a gang to appear in scheduling queue")
        assert text.startswith("the gang has 1 of the 3 pods that it needs to be tried")
        await bench.pod("b", group="g")
        _, text = await explained(bench, "a", 60)
        assert text.startswith("the gang has 2 of the 3 pods that it needs to be tried")

    published(scenario)


def test_names_of_other_namespaces_are_shown_only_where_asked_for() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=4)
        await taken_by_others(bench)
        await bench.claim("three", count=3)
        await bench.pod("p", claim="three")
        _, text = await explained(bench, "p")
        told = text + str(await events(bench, "p"))
        if bench.publish == "counts":
            assert "2 are free, 2 held by 1 workload of another namespace (priority 0)" in told
            assert "Helps: end 1 pod of another namespace (priority 0)" in told
            assert not [word for word in ("secret-lab", "hidden") if word in told]
        else:
            assert "2 are free, 2 held by secret-lab/pod/hidden-pod" in told

    published(scenario)
    published(scenario, "names")


def test_what_is_published_requeues_nothing_and_is_written_once() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=2)
        await bench.claim("three", count=3)
        await bench.pod("p", claim="three")
        await explained(bench, "p", 10)
        attempts, written = bench.queued("p").attempts, (await bench.api.get(PODS, "p", NS))["metadata"]
        await asyncio.sleep(100)
        assert bench.queued("p").attempts == attempts
        assert (await bench.api.get(PODS, "p", NS))["metadata"]["resourceVersion"] == written["resourceVersion"]
        assert len(await events(bench, "p")) == 1

    published(scenario)


def test_other_attempt_keeps_explanation_until_there_is_a_newer_one() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(gpus=2)
        await bench.claim("five", count=5)
        await bench.pod("p", claim="five")
        _, before = await explained(bench, "p")
        assert "2 are free" in before
        await bench.node("n2", gpus=4)
        changed, text = await explained(bench, "p", 5)
        assert changed.startswith("0/2 nodes are available")
        assert text == "", "it was about one node"
        _, text = await explained(bench, "p", 40)
        assert text.startswith("request r needs 5 devices of gpu, 6 are free, but not 5 together. ")
        assert len(await events(bench, "p")) == 2, "the remedy is another one: 4 devices instead of 5"

    published(scenario)


def test_bound_pod_has_no_explanation() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=1)
        await bench.pod("p", cpu="2")
        assert (await explained(bench, "p"))[1]
        await bench.size("n1", 4)
        await bench.eventually_bound("p")
        await asyncio.sleep(310)
        told = await bench.condition(PODS, "p", "PodScheduled")
        assert (told["status"], told.get("message", "")) == ("True", "")

    published(scenario)


def test_nothing_is_kept_of_gangs_that_have_gone_or_are_scheduled() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.node(cpu=2)
        kept = bench.scheduler._cycle.status.explanations
        for number in range(3):
            for name, cpu in ((f"waits-{number}", "2"), (f"fits-{number}", "500m")):
                await bench.gang(name, 2)
                for member in range(2):
                    await bench.pod(f"{name}-{member}", cpu=cpu, group=name)
            await bench.eventually_bound(f"fits-{number}-0", f"fits-{number}-1")
            assert (GROUPS.plural, f"{NS}/waits-{number}") in kept._own
            for name in (f"waits-{number}", f"fits-{number}"):
                for member in range(2):
                    await bench.delete(f"{name}-{member}")
                await bench.api.patch(GROUPS, name, {"metadata": {"finalizers": None}}, NS, "merge")
                await bench.api.delete(GROUPS, name, NS)
        await bench.pod("p", cpu="9")
        await asyncio.sleep(700)
        await bench.pod("q", cpu="9")
        await asyncio.sleep(60)
        assert set(kept._own) == {(PODS.plural, f"{NS}/p"), (PODS.plural, f"{NS}/q")}

    published(scenario)


def test_gated_pod_and_scheduler_that_publishes_nothing_are_left_alone() -> None:
    async def gated(bench: Bench) -> None:
        await bench.node()
        await bench.pod("p", schedulingGates=[{"name": "example.com/wait"}])
        _, text = await explained(bench, "p", 60)
        assert text == ""
        assert await events(bench, "p") == []

    async def silent(bench: Bench) -> None:
        await bench.node(cpu=1)
        await bench.pod("p", cpu="2")
        _, text = await explained(bench, "p", 60)
        assert text == ""

    published(gated)
    published(silent, "off")
