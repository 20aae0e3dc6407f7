"""What is written on pods of other schedulers, and when: on the real API server, in virtual time."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from engine_objects import pod
from scheduler_bench import EVENTS, NODES, NS, PODS, Bench, Obj, play

import virtual_time
from faulty_api import FaultyApi
from haru.client.api import ApiClient
from haru.engine.state import PodInfo
from haru.explain_server import EXPLAINED_AT, EXPLANATION, PodExplanationPublisher, is_pending
from haru.explanation_worker import InlineWorker
from haru.kube.kinds import known_kind
from haru.kube.partition_names import HOLDER, PARTITION

LEASES, NAMESPACES = known_kind("coordination.k8s.io/v1", "Lease"), known_kind("v1", "Namespace")


class World(Bench):
    """A cluster with a scheduler of Haru for pods that say so, and one that does nothing for all others."""

    async def publish_explanations(self, names: bool) -> None:
        self.writes = FaultyApi(self.server, random.Random(1), 0.0)
        self.writes.kinds = ("refuse 503",)
        self.writes.only = lambda method, path: method == "PATCH" and "/pods/" in path
        client = ApiClient.in_process(self.writes, "admin")
        publisher = PodExplanationPublisher(client, names=names, worker=InlineWorker(), clock=virtual_time.clock())
        self.publishing = asyncio.create_task(publisher.run())

    async def kill_publisher(self) -> None:
        self.publishing.cancel()
        await asyncio.gather(self.publishing, return_exceptions=True)

    async def stop(self) -> None:
        await self.kill_publisher()
        await super().stop()

    async def bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": "n1"}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        await self.api.create_subresource(PODS, name, "binding", body, NS)

    async def told(self, name: str) -> str:
        """What is written on the pod."""
        annotations = (await self.api.get(PODS, name, NS))["metadata"].get("annotations") or {}
        assert (EXPLANATION in annotations) == (EXPLAINED_AT in annotations)
        return str(annotations.get(EXPLANATION, ""))

    async def events(self, name: str) -> list[Obj]:
        found = (await self.api.list(EVENTS, NS))["items"]
        return [e for e in found if e["reason"] == "SchedulingExplained" and e["involvedObject"]["name"] == name]


def published(work: Callable[[World], Awaitable[None]], *, names: bool = False) -> None:
    world = World("haru")

    async def scenario(_: Bench) -> None:
        await world.node(cpu=4)
        await world.publish_explanations(names)
        await work(world)

    play(scenario, bench=world)


def test_waiting_pod_gets_annotation_and_event_and_keeps_its_conditions() -> None:
    async def scenario(world: World) -> None:
        await world.pod("p", cpu="8")
        before = (await world.api.get(PODS, "p", NS)).get("status")
        await asyncio.sleep(3)
        assert await world.told("p") == "", "most pods are bound at once"
        await asyncio.sleep(7)
        text = await world.told("p")
        assert "insufficient cpu" in text.lower() and text.endswith("More: haru explain pod/p -n default")
        [event] = await world.events("p")
        assert (event["type"], event["source"]["component"]) == ("Warning", "haru-explain")
        assert event["message"].partition(". Helps: ")[0] == text.partition(". ")[0]
        assert (await world.api.get(PODS, "p", NS)).get("status") == before

    published(scenario)


def test_annotation_is_removed_when_the_pod_is_bound() -> None:
    async def scenario(world: World) -> None:
        await world.pod("p", cpu="8")
        await asyncio.sleep(10)
        assert await world.told("p")
        await world.bind("p")
        await asyncio.sleep(5)
        assert await world.told("p") == ""
        assert len(await world.events("p")) == 1

    published(scenario)


def test_annotation_of_a_pod_that_was_bound_meanwhile_is_removed_at_the_start() -> None:
    async def scenario(world: World) -> None:
        await world.pod("p", cpu="8")
        await asyncio.sleep(10)
        await world.kill_publisher()
        await world.bind("p")
        await asyncio.sleep(5)
        assert await world.told("p")
        await world.publish_explanations(names=False)
        await asyncio.sleep(5)
        assert await world.told("p") == ""

    published(scenario)


def test_unchanged_explanation_is_written_once() -> None:
    async def scenario(world: World) -> None:
        await world.pod("p", nodeSelector={"disk": "ssd"})
        await asyncio.sleep(10)
        version = (await world.api.get(PODS, "p", NS))["metadata"]["resourceVersion"]
        for number in range(5):
            await world.pod(f"other-{number}", cpu="100m", schedulerName="haru")
            await asyncio.sleep(40)
        assert (await world.api.get(PODS, "p", NS))["metadata"]["resourceVersion"] == version
        assert len(await world.events("p")) == 1

    published(scenario)


def test_other_reason_is_told_within_thirty_seconds_and_not_earlier() -> None:
    async def scenario(world: World) -> None:
        await world.pod("p", cpu="8", nodeSelector={"disk": "ssd"})
        await asyncio.sleep(8)
        first = await world.told("p")
        await world.api.patch(NODES, "n1", {"metadata": {"labels": {"disk": "ssd"}}})
        await asyncio.sleep(15)
        assert await world.told("p") == first
        await asyncio.sleep(25)
        assert await world.told("p") not in (first, "")
        assert len(await world.events("p")) == 2

    published(scenario)


def test_members_of_a_gang_are_told_of_their_gang() -> None:
    async def scenario(world: World) -> None:
        await world.gang("g", 3)
        for name in ("a", "b", "c"):
            await world.pod(name, cpu="2", group="g")
        await asyncio.sleep(15)
        for name in ("a", "b", "c"):
            text = await world.told(name)
            assert text.startswith("2 of the 3 pods that have to start together find a place")
            assert text.endswith("More: haru explain podgroup/g -n default")

    published(scenario)


@pytest.mark.parametrize("names", [False, True])
def test_names_of_other_namespaces_are_shown_only_where_asked_for(names: bool) -> None:
    async def scenario(world: World) -> None:
        await world.create(NAMESPACES, {"metadata": {"name": "secret-lab"}})
        holder = pod("hidden", cpu="3", node="n1")
        await world.api.create(PODS, {**holder, "metadata": {"name": "hidden"}}, "secret-lab")
        await world.pod("p", cpu="2")
        await asyncio.sleep(10)
        told = await world.told("p") + json.dumps(await world.events("p"))
        assert "Helps: end " in told
        assert ("hidden" in told) == ("secret-lab" in told) == names

    published(scenario, names=names)


def test_failed_writes_are_tried_three_times_and_again_after_thirty_seconds() -> None:
    async def scenario(world: World) -> None:
        world.writes.rate = 1.0
        await world.pod("p", cpu="8")
        await asyncio.sleep(25)
        assert sum(world.writes.counts.values()) == 3
        world.writes.rate = 0.0
        await world.pod("other", cpu="1", schedulerName="haru")
        await asyncio.sleep(30)
        assert await world.told("p")
        assert len(await world.events("p")) == 1

    published(scenario)


def test_pods_of_haru_and_gated_pods_are_left_alone() -> None:
    def info(**changes: Any) -> PodInfo:
        made = pod("p", cpu="1")
        return PodInfo.of({**made, "spec": {**made["spec"], **changes}})

    explained = {"type": "PodScheduled", "status": "False", "message": "no nodes. Explanation: 2 are free"}
    assert is_pending(info(), {"haru"})
    assert not is_pending(info(schedulerName="haru"), {"haru"})
    assert not is_pending(info(nodeName="n1"), ())
    assert not is_pending(info(schedulingGates=[{"name": "example.com/wait"}]), ())
    assert not is_pending(PodInfo.of({**pod("p"), "status": {"conditions": [explained]}}), ())


def test_scheduler_that_is_on_a_lease_of_haru_explains_its_pods_itself() -> None:
    async def scenario(world: World) -> None:
        told = json.dumps({"schedulerNames": ["mine"], "partition": {}})
        metadata = {"name": "mine", "namespace": "kube-system", "annotations": {PARTITION: told, HOLDER: "me"}}
        await world.api.create(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "me"}}, "kube-system")
        await world.pod("p", cpu="8", schedulerName="mine")
        await asyncio.sleep(20)
        assert await world.told("p") == "" and await world.events("p") == []

    published(scenario)
