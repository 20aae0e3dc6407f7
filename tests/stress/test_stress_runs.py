"""Whole runs against Haru in virtual time: its own scheduler breaks nothing, and what others break is found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from haru.client.api import ApiClient
from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.identity import ADMIN
from haru.embedded.options import UpOptions, parse_profiles
from haru.kube.errors import StatusError
from haru.kube.meta import labels_of, name_of, namespace_of
from haru.stress.cluster import StressError, clean_up, survey
from haru.stress.history import Rules
from haru.stress.manifests import CLAIMS, NAMESPACES, PODS, RUN_LABEL, Target
from haru.stress.manifests import NODES as NODE_KIND
from haru.stress.plan import Limits
from haru.stress.report import Report
from haru.stress.run import Settings, StressRun
from haru.stress.seeded_plan import seeded_plan
from haru.testing.virtual_time import Limits as TimeLimits
from haru.testing.virtual_time import VirtualTimeLoop

Obj = dict[str, Any]
NODES = {"simulated.haru.dev/profile": "dgx-h100"}
LIMITS = Limits(units=8, seconds=12, gang_size=4, devices=4)


class World:
    """A cluster of two nodes with eight cards each."""

    def __init__(self, loop: VirtualTimeLoop, cluster: EmbeddedCluster) -> None:
        self._loop, self._cluster, self.client = loop, cluster, cluster.client(ADMIN)

    def _is_busy(self) -> bool:
        assert self._cluster.server is not None
        return self._cluster.server.in_flight > 0

    async def pass_time(self, work: Awaitable[Any]) -> Any:
        """Let time pass until something is done."""
        task = asyncio.ensure_future(work)
        while not task.done():
            await self._loop.advance(1.0, TimeLimits(0.0, 60.0), self._is_busy, lambda: None)
        return task.result()

    async def prepare(self, limits: Limits = LIMITS, scheduler: str = "default-scheduler", seed: int = 1) -> StressRun:
        target = Target(scheduler=scheduler, node_selector=NODES)
        ground = await survey(self.client, target, limits, foreign_work=False)
        settings = Settings(drain_seconds=60, rules=Rules(gang=5, start=20, fit=20, starvation=40))
        return StressRun(self.client, seeded_plan(seed, ground.limits), ground, settings)


def story(tmp_path: Path, tell: Callable[[World], Awaitable[None]]) -> None:
    async def told(loop: VirtualTimeLoop) -> None:
        options = UpOptions(profiles=parse_profiles("dgx-h100:2,cpu:1"), listen=("127.0.0.1", 0))
        cluster = EmbeddedCluster(options, tmp_path, loop.clock)
        try:
            await cluster.start()
            await tell(World(loop, cluster))
        finally:
            await cluster.stop()

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualTimeLoop)
        runner.run(told(loop))


def promises(report: Report) -> set[str]:
    return {one.promise for one in report.broken}


def test_run_of_harus_scheduler_breaks_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        run = await world.prepare()
        report: Report = await world.pass_time(run.run())
        assert promises(report) == set(), report.text()
        works = report.as_dict()["works"]
        assert works["planned"] == 8 and works["notScheduled"] == [] and works["scheduled"] >= 5
        assert report.latencies["creationToRunning"]["count"] > 10 and report.facts.gaps == 0
        with pytest.raises(StressError, match="of an earlier run: remove it with --cleanup"):
            await world.prepare()
        await world.pass_time(clean_up(world.client, "haru-stress"))
        with pytest.raises(StatusError):
            await world.client.get(NAMESPACES, "haru-stress")

    story(tmp_path, tell)


async def plant_double_allocation(client: ApiClient, run: StressRun) -> None:
    """Give a device that a claim of the run holds to another claim."""
    while True:
        await asyncio.sleep(0.1)
        claims = (await client.list(CLAIMS, "haru-stress"))["items"]
        held = next((c for c in claims if (c.get("status") or {}).get("allocation")), None)
        if held is not None:
            spec = {"metadata": {"name": "planted", "namespace": "haru-stress"}, "spec": held["spec"]}
            planted = await client.create(CLAIMS, spec)
            await client.update_status(CLAIMS, {**planted, "status": {"allocation": held["status"]["allocation"]}})
            return


def test_planted_double_allocation_is_found(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        run = await world.prepare(Limits(units=6, seconds=10, gang_size=2, devices=2, kinds=("claims",)))
        planting = asyncio.create_task(plant_double_allocation(world.client, run))
        report: Report = await world.pass_time(run.run())
        await planting
        assert "DeviceHeldTwice" in promises(report)
        found = next(one for one in report.broken if one.promise == "DeviceHeldTwice")
        assert "haru-stress/planted" in found.message and found.revision

    story(tmp_path, tell)


async def schedule_badly(client: ApiClient, name: str) -> None:
    """A scheduler that binds the first member of each gang and forgets the rest."""
    while True:
        await asyncio.sleep(0.2)
        for pod in (await client.list(PODS, label_selector=RUN_LABEL))["items"]:
            if pod["spec"]["schedulerName"] == name and name_of(pod).endswith("-0") and not pod["spec"].get("nodeName"):
                body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name_of(pod)}}
                body |= {"target": {"kind": "Node", "name": "dgx-h100-0"}}
                await client.create_subresource(PODS, name_of(pod), "binding", body, namespace_of(pod))


def test_half_gang_of_a_sabotaged_scheduler_is_found(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        limits = Limits(units=2, seconds=2, gang_size=3, devices=0, kinds=("gangs",))
        run = await world.prepare(limits, scheduler="sabotaged")
        sabotaging = asyncio.create_task(schedule_badly(world.client, "sabotaged"))
        report: Report = await world.pass_time(run.run())
        sabotaging.cancel()
        assert promises(report) == {"HalfGang", "PodStuck"}, report.text()
        assert len(report.facts.unscheduled_works) == 2

    story(tmp_path, tell)


def test_run_is_refused_beside_foreign_work_without_nodes_and_without_an_image_for_real_ones(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        spec = {"containers": [{"name": "c", "image": "i"}]}
        await world.client.create(PODS, {"metadata": {"name": "theirs", "namespace": "default"}, "spec": spec})
        with pytest.raises(StressError, match="others work on this cluster: default/theirs"):
            await world.prepare()
        target = Target(node_selector={"no": "where"})
        with pytest.raises(StressError, match="no Node has the labels no=where"):
            await survey(world.client, target, LIMITS, foreign_work=True)
        await world.client.create(NODE_KIND, {"metadata": {"name": "metal", "labels": {"row": "7"}}})
        target = Target(node_selector={"row": "7"})
        with pytest.raises(StressError, match=r"--image: Required value: nodes .* run the pods \(metal\)"):
            await survey(world.client, target, LIMITS, foreign_work=True)
        ground = await survey(world.client, replace(target, image="pause"), LIMITS, foreign_work=True)
        assert ground.nodes == 1
        ground = await survey(world.client, Target(node_selector=NODES, device_class="none"), LIMITS, foreign_work=True)
        assert "claims" not in ground.limits.kinds and ground.notes == ("no claims: there is no DeviceClass none",)

    story(tmp_path, tell)


def test_namespace_of_somebody_else_is_neither_used_nor_removed(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        await world.client.create(NAMESPACES, {"metadata": {"name": "haru-stress"}})
        with pytest.raises(StressError, match="not of haru stress: take another --namespace"):
            await world.prepare()
        with pytest.raises(StressError, match="it is not of haru stress"):
            await clean_up(world.client, "haru-stress")
        assert RUN_LABEL not in labels_of(await world.client.get(NAMESPACES, "haru-stress"))

    story(tmp_path, tell)


def test_run_with_preemption_breaks_nothing_and_leaves_none_waiting(tmp_path: Path) -> None:
    async def tell(world: World) -> None:
        limits = Limits(units=16, seconds=8, gang_size=2, devices=8, kinds=("claims", "preemption"))
        run = await world.prepare(limits, seed=0)
        report: Report = await world.pass_time(run.run())
        assert promises(report) == set(), report.text()
        assert report.facts.unscheduled_works == ()
        assert report.facts.scheduled_works + report.facts.preempted_works >= 16

    story(tmp_path, tell)
