"""`nvidia.com/gpu` in a whole cluster: by devices where a driver publishes them, by the plugin elsewhere (KEP-5004)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from haru.client.api import ApiClient
from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.identity import ADMIN
from haru.embedded.options import UpOptions, parse_profiles
from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from waiting import until

Obj = dict[str, Any]
NS = "default"
PODS, CLAIMS = known_kind("v1", "Pod"), known_kind("resource.k8s.io/v1", "ResourceClaim")
GROUPS = known_kind("scheduling.k8s.io/v1alpha2", "PodGroup")
GPU = "nvidia.com/gpu"


@contextlib.asynccontextmanager
async def up(directory: Path, profiles: str) -> AsyncIterator[ApiClient]:
    cluster = EmbeddedCluster(UpOptions(profiles=parse_profiles(profiles), listen=("127.0.0.1", 0)), directory)
    try:
        await cluster.start()
        yield cluster.client(ADMIN)
    finally:
        await cluster.stop()


def asking(name: str, gpus: int, group: str = "", resource: str = GPU, **annotations: str) -> Obj:
    container = {"name": "main", "image": "i", "resources": {"limits": {resource: str(gpus)}}}
    spec: Obj = {"restartPolicy": "Never", "containers": [container]}
    if group:
        spec["schedulingGroup"] = {"podGroupName": group}
    return {"metadata": {"name": name, "annotations": annotations}, "spec": spec}


async def in_phase(client: ApiClient, phase: str, *names: str) -> list[Obj]:
    pods = [await client.get(PODS, name, NS) for name in names]
    return pods if all(p["status"].get("phase") == phase for p in pods) else []


async def claims(client: ApiClient) -> list[Obj]:
    return list((await client.list(CLAIMS, NS))["items"])


async def message_of(client: ApiClient, name: str) -> str:
    conditions = (await client.get(PODS, name, NS))["status"].get("conditions") or ()
    return next(
        (str(c.get("message")) for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), ""
    )


async def test_pod_with_extended_resource_limit_runs_on_devices_and_releases_them(tmp_path: Path) -> None:
    async with up(tmp_path, "a30:1") as client:
        work = asking("trainer", 2, **{"simulated.haru.dev/run-seconds": "1"})
        await client.create(PODS, work, NS)
        [pod] = await until(lambda: in_phase(client, "Running", "trainer"))
        [claim] = await claims(client)
        assert pod["status"]["extendedResourceClaimStatus"] == {
            "resourceClaimName": claim["metadata"]["name"],
            "requestMappings": [
                {"containerName": "main", "resourceName": GPU, "requestName": "container-0-request-0"},
            ],
        }
        results = claim["status"]["allocation"]["devices"]["results"]
        assert [(r["driver"], r["pool"]) for r in results] == [("gpu.nvidia.com", "a30-0")] * 2
        assert len({r["device"] for r in results}) == 2
        await until(lambda: in_phase(client, "Succeeded", "trainer"))

        async def freed() -> bool:
            return not await claims(client)

        await until(freed)
        assert await client.get(PODS, "trainer", NS)


async def test_device_plugin_and_dra_driver_serve_one_resource_on_different_nodes(tmp_path: Path) -> None:
    async with up(tmp_path, "t4:1,t4-plugin:1") as client:
        for name in ("a", "b"):
            await client.create(PODS, asking(name, 4), NS)
        pods = await until(lambda: in_phase(client, "Running", "a", "b"))
        by_node = {p["spec"]["nodeName"]: p for p in pods}
        assert by_node.keys() == {"t4-0", "t4-plugin-0"}
        assert "extendedResourceClaimStatus" not in by_node["t4-plugin-0"]["status"]
        [claim] = await claims(client)
        assert claim["metadata"]["ownerReferences"][0]["uid"] == by_node["t4-0"]["metadata"]["uid"]
        assert len(claim["status"]["allocation"]["devices"]["results"]) == 4
        await client.create(PODS, asking("late", 1), NS)
        told = await until(lambda: message_of(client, "late"))
        nobody = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 cannot allocate all claims."
        assert told.startswith(nobody)
        await client.delete(PODS, by_node["t4-0"]["metadata"]["name"], NS, grace_period_seconds=0)
        await until(lambda: in_phase(client, "Running", "late"))
        assert (await client.get(PODS, "late", NS))["spec"]["nodeName"] == "t4-0"


async def test_gang_with_extended_resources_starts_whole_or_not_at_all(tmp_path: Path) -> None:
    async with up(tmp_path, "t4:2,t4-plugin:1") as client:
        for name, size in (("fits", 3), ("waits", 2)):
            policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
            await client.create(GROUPS, {"metadata": {"name": name}, "spec": policy}, NS)
            for number in range(size):
                await client.create(PODS, asking(f"{name}-{number}", 4, name), NS)
            if name == "fits":
                await until(lambda: in_phase(client, "Running", "fits-0", "fits-1", "fits-2"))
        assert await until(lambda: message_of(client, "waits-0"))
        for name in ("waits-0", "waits-1"):
            assert "nodeName" not in (await client.get(PODS, name, NS))["spec"]
        assert len(await claims(client)) == 2
        # One place is not enough for two.
        await client.delete(PODS, "fits-0", NS, grace_period_seconds=0)
        container = {"name": "main", "image": "i"}
        await client.create(PODS, {"metadata": {"name": "probe"}, "spec": {"containers": [container]}}, NS)
        await until(lambda: in_phase(client, "Running", "probe"), "the scheduler has seen the deletion")
        assert "nodeName" not in (await client.get(PODS, "waits-0", NS))["spec"]
        await client.delete(PODS, "fits-1", NS, grace_period_seconds=0)
        await until(lambda: in_phase(client, "Running", "waits-0", "waits-1"))


async def test_implicit_extended_resource_name_of_device_class_works(tmp_path: Path) -> None:
    async with up(tmp_path, "t4:1") as client:
        name = "deviceclass.resource.kubernetes.io/gpu.nvidia.com"
        await client.create(PODS, asking("p", 1, resource=name), NS)
        await until(lambda: in_phase(client, "Running", "p"))
        try:
            await client.create(PODS, asking("q", 1, resource="gpu"), NS)
        except StatusError as error:
            assert error.code == 422
        else:
            raise AssertionError("a name without a domain is no extended resource")
