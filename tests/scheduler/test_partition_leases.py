"""Partitions of several schedulers: which overlap, and who is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scheduler_bench import Bench, play

import virtual_time
from haru.client.leases import Candidate, LeaderElector
from haru.engine import SchedulerCache
from haru.engine.state import partition_from
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.scheduler.coexistence import (
    LABELS,
    OverlapError,
    PartitionGuard,
    annotations_of,
    instance_of,
    partitions_overlap,
    shared_devices,
)

Obj = dict[str, Any]
LEASES = known_kind("coordination.k8s.io/v1", "Lease")
A, B = {"nodeSelector": "team=a"}, {"nodeSelector": "team=b"}


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ({}, {}, True),
        ({}, A, True),
        (A, A, True),
        (A, B, False),
        (A, {"nodeSelector": "team in (a,b)"}, True),
        (A, {"nodeSelector": "team notin (a)"}, False),
        (A, {"nodeSelector": "!team"}, False),
        (A, {"nodeSelector": "rack=1"}, True),
        ({"nodeSelector": "team"}, {"nodeSelector": "!team"}, False),
        ({"nodeTaint": "team=a:NoSchedule"}, {"nodeTaint": "team=b:NoSchedule"}, False),
        ({"nodeTaint": "team=a:NoSchedule"}, {"nodeTaint": "team=b:NoExecute"}, True),
        ({"nodeTaint": "team=a"}, {"nodeTaint": "other"}, True),
        ({"pools": ["x"]}, {"pools": ["y"]}, False),
        ({"pools": ["x", "y"]}, {"pools": ["y"]}, True),
        ({"pools": ["x"]}, {}, True),
        ({"drivers": ["x"]}, {"drivers": ["y"]}, False),
        ({"deviceClasses": ["x"]}, {"deviceClasses": ["y"]}, False),
        ({"deviceClasses": ["x"], **A}, {"deviceClasses": ["x"], **B}, False),
    ],
)
def test_partitions_overlap_unless_no_device_can_be_in_both(one: Obj, other: Obj, overlap: bool) -> None:
    left, right = partition_from(one), partition_from(other)
    assert partitions_overlap(left, right) == partitions_overlap(right, left) == overlap


def published() -> SchedulerCache:
    """A node of each team with a device of its own, and a fabric device that both nodes see."""
    cluster = SchedulerCache()
    for team in ("a", "b"):
        meta = {"name": f"n-{team}", "uid": team, "labels": {"team": team}}
        cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": {}, "status": {}})
    for name, placement in (("n-a", {"nodeName": "n-a"}), ("n-b", {"nodeName": "n-b"}), ("fabric", {"allNodes": True})):
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        big = {"attributes": {"big": {"bool": name != "fabric"}}}
        spec = {"driver": "d.example.com", "pool": pool, "devices": [{"name": "d0", **big}], **placement}
        cluster.apply(
            {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}
        )
    for name, test in (("big", "== true"), ("small", "== false"), ("any", "in [true, false]")):
        selectors = [{"cel": {"expression": f'device.attributes["d.example.com"].big {test}'}}]
        meta = {"name": name, "uid": name}
        cluster.apply(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": meta,
                "spec": {"selectors": selectors},
            }
        )
    return cluster


@pytest.mark.parametrize(
    ("one", "other", "pools"),
    [
        (A, B, {"fabric"}),
        ({**A, "pools": ["n-a"]}, B, set()),
        ({"deviceClasses": ["big"]}, {"deviceClasses": ["small"]}, set()),
        ({"deviceClasses": ["big"]}, {"deviceClasses": ["any"]}, {"n-a", "n-b"}),
        ({"deviceClasses": ["missing"]}, {}, set()),
    ],
)
def test_devices_of_both_partitions_are_found_among_the_published(one: Obj, other: Obj, pools: set[str]) -> None:
    found = shared_devices(published().snapshot(), partition_from(one), partition_from(other))
    assert {device.pool for device in found} == pools


def elector(bench: Bench, name: str, partition: Obj, namespace: str) -> LeaderElector:
    lease = Candidate(namespace, name, f"holder-of-{name}")
    annotations = annotations_of([name], partition_from(partition))
    return LeaderElector(bench.api, lease, clock=virtual_time.clock(), labels=LABELS, annotations=annotations)


def guard(bench: Bench, name: str, partition: Obj, *, allow: bool = False) -> PartitionGuard:
    return PartitionGuard(bench.api, f"kube-system/{name}", partition_from(partition), allow=allow)


async def leading(bench: Bench, name: str, partition: Obj, namespace: str = "kube-system") -> asyncio.Task[str]:
    one = elector(bench, name, partition, namespace)
    await one.acquire()
    return asyncio.create_task(one.renew())


def test_overlapping_scheduler_is_refused_at_its_start_unless_allowed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        first = await leading(bench, "first", A)
        with pytest.raises(OverlapError, match=r"\(the whole cluster\) and scheduler first \(Lease kube-system/first"):
            await guard(bench, "second", {}).check()
        await guard(bench, "second", B).check()
        await guard(bench, "first", A).check()  # a replica
        await guard(bench, "second", {}, allow=True).check()
        assert "may allocate the same devices" in caplog.text
        first.cancel()
        before = asyncio.get_running_loop().time()
        await guard(bench, "second", {}).check()  # nobody renews it any more
        assert 15 <= asyncio.get_running_loop().time() - before < 20

    play(scenario)


def test_scheduler_with_its_lease_in_another_namespace_is_compared() -> None:
    async def scenario(bench: Bench) -> None:
        first = await leading(bench, "first", A, "default")
        with pytest.raises(OverlapError, match=r"Lease default/first, held by holder-of-first"):
            await guard(bench, "second", A).check()
        second = await leading(bench, "second", A)
        allowed = guard(bench, "second", A, allow=True)
        watching = asyncio.create_task(allowed.watch(bench.scheduler.cluster.snapshot))
        await asyncio.sleep(10)
        assert allowed.overlapping == 1
        for task in (first, second, watching):
            task.cancel()
        await asyncio.gather(first, second, watching, return_exceptions=True)

    play(scenario)


def test_own_namespace_is_compared_where_others_may_not_be_listed(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        listing = bench.api.list

        async def confined(of: Kind, namespace: str = "", **options: Any) -> Any:
            if of.kind == "Lease" and not namespace:
                raise StatusError(403, "Forbidden", "leases is forbidden")
            return await listing(of, namespace, **options)

        renewing = [await leading(bench, "near", A), await leading(bench, "far", B, "default")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(bench.api, "list", confined)
            with pytest.raises(OverlapError, match="Lease kube-system/near"):
                await guard(bench, "second", A).check()
            await guard(bench, "second", B).check()
        assert "partitions of other schedulers in other namespaces are not compared" in caplog.text
        for task in renewing:
            task.cancel()
        await asyncio.gather(*renewing, return_exceptions=True)

    play(scenario)


def test_of_two_that_start_at_once_the_later_one_stops() -> None:
    async def scenario(bench: Bench) -> None:
        await asyncio.gather(*(guard(bench, name, A).check() for name in ("one", "two")))
        renewing = [await leading(bench, name, A) for name in ("one", "two")]
        watching = [
            asyncio.create_task(guard(bench, name, A).watch(bench.scheduler.cluster.snapshot))
            for name in ("one", "two")
        ]
        await asyncio.wait(watching, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert not watching[0].done()
        assert isinstance(watching[1].exception(), OverlapError)
        for task in (*renewing, *watching):
            task.cancel()
        await asyncio.gather(*renewing, *watching, return_exceptions=True)

    play(scenario)


def test_change_of_a_partition_is_seen_by_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(bench: Bench) -> None:
        renewing = [await leading(bench, "one", A), await leading(bench, "two", B)]
        watched = guard(bench, "one", A)
        watching = asyncio.create_task(watched.watch(bench.scheduler.cluster.snapshot))
        await asyncio.sleep(10)
        assert not watched.overlapping
        renewing[1].cancel()
        await asyncio.sleep(20)
        renewing.append(await leading(bench, "two", {}))  # the next replica has another configuration
        await asyncio.sleep(10)
        assert watched.overlapping
        assert not watching.done()  # it was there first
        assert "may allocate the same devices" in caplog.text
        for task in (*renewing, watching):
            task.cancel()
        await asyncio.gather(*renewing, watching, return_exceptions=True)

    play(scenario)


def test_annotations_of_another_holder_do_not_count() -> None:
    async def scenario(bench: Bench) -> None:
        (await leading(bench, "kube-scheduler", A)).cancel()
        lease = await bench.api.get(LEASES, "kube-scheduler", "kube-system")
        found = instance_of(lease)
        assert found is not None
        assert (found.names, found.partition) == (("kube-scheduler",), partition_from(A))
        assert 0 < found.since < int(lease["metadata"]["resourceVersion"])
        lease["spec"]["holderIdentity"] = "kube-scheduler"
        assert instance_of(lease) is None
        lease["spec"].pop("holderIdentity")
        assert instance_of(lease) is None

    play(scenario)
