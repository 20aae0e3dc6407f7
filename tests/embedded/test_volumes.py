"""Volumes that wait for their first consumer in `haru up`: from the claim to the running pod, failures included."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from haru.client.api import ApiClient
from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.identity import ADMIN
from haru.embedded.options import UpOptions, parse_profiles
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, known_kind
from haru.kube.volume_binding import BIND_COMPLETED, SELECTED_NODE
from waiting import until

Obj = dict[str, Any]
NS = "default"
PODS, CLAIMS, VOLUMES = (known_kind("v1", name) for name in ("Pod", "PersistentVolumeClaim", "PersistentVolume"))
NODES, EVENTS = known_kind("v1", "Node"), known_kind("v1", "Event")
GROUPS = known_kind("scheduling.k8s.io/v1alpha2", "PodGroup")
CLASSES = known_kind("storage.k8s.io/v1", "StorageClass")
FAIL = "simulated.haru.dev/fail-provisioning"


@contextlib.asynccontextmanager
async def up(directory: Path, profiles: str) -> AsyncIterator[ApiClient]:
    cluster = EmbeddedCluster(UpOptions(profiles=parse_profiles(profiles), listen=("127.0.0.1", 0)), directory)
    try:
        await cluster.start()
        yield cluster.client(ADMIN)
    finally:
        await cluster.stop()


def claim(name: str, **spec: Any) -> Obj:
    resources = {"requests": {"storage": "1Gi"}}
    return {"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources, **spec}}


def pod(name: str, *claims: str, group: str = "", **spec: Any) -> Obj:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    volumes = [{"name": one, "persistentVolumeClaim": {"claimName": one}} for one in claims]
    made: Obj = {"containers": [container], "volumes": volumes, **spec}
    if group:
        made["schedulingGroup"] = {"podGroupName": group}
    return {"metadata": {"name": name}, "spec": made}


def local_volume(name: str, node: str) -> Obj:
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    return {
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "5Gi"},
            "storageClassName": "local",
            "local": {"path": "/mnt/x"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        },
    }


LOCAL = {
    "metadata": {"name": "local"},
    "provisioner": "kubernetes.io/no-provisioner",
    "volumeBindingMode": "WaitForFirstConsumer",
}


async def running(client: ApiClient, *names: str) -> list[Obj]:
    pods = [await client.get(PODS, name, NS) for name in names]
    return pods if all(p["status"].get("phase") == "Running" for p in pods) else []


async def gone(client: ApiClient, kind: Kind, name: str, namespace: str = "") -> bool:
    try:
        await client.get(kind, name, namespace)
    except StatusError as error:
        return error.code == 404
    return False


async def reasons(client: ApiClient, name: str) -> set[str]:
    events = (await client.list(EVENTS, NS))["items"]
    return {event["reason"] for event in events if event["involvedObject"]["name"] == name}


async def test_claim_is_provisioned_for_the_pods_node_and_its_volume_goes_with_it(tmp_path: Path) -> None:
    async with up(tmp_path, "cpu:2") as client:
        made = await client.create(CLAIMS, claim("c"), NS)
        assert made["spec"]["storageClassName"] == "simulated"
        await until(lambda: reasons(client, "c"))
        assert await reasons(client, "c") == {"WaitForFirstConsumer"}
        await client.create(PODS, pod("p", "c"), NS)
        (found,) = await until(lambda: running(client, "p"))
        bound = await client.get(CLAIMS, "c", NS)
        node = found["spec"]["nodeName"]
        assert bound["metadata"]["annotations"][SELECTED_NODE] == node
        assert BIND_COMPLETED in bound["metadata"]["annotations"]
        assert bound["status"] == {"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}}
        name = bound["spec"]["volumeName"]
        volume = await client.get(VOLUMES, name)
        assert volume["status"]["phase"] == "Bound"
        (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"][0]["values"] == [node]
        await client.delete(CLAIMS, "c", NS)
        assert not await gone(client, CLAIMS, "c", NS)  # a pod uses it
        await client.delete(PODS, "p", NS, grace_period_seconds=0)
        await until(lambda: gone(client, VOLUMES, name))
        assert await gone(client, CLAIMS, "c", NS)


async def test_pod_whose_volume_cannot_be_provisioned_gets_another_node(tmp_path: Path) -> None:
    async with up(tmp_path, "cpu:2") as client:
        await client.create(CLAIMS, claim("c"), NS)
        # Both fail at first, so that the pod is given back wherever it goes.
        for name in ("cpu-0", "cpu-1"):
            await client.patch(NODES, name, {"metadata": {"annotations": {FAIL: "no space left"}}})
        await client.create(PODS, pod("p", "c"), NS)

        async def refused() -> Any:
            found = await client.get(PODS, "p", NS)
            texts = [c.get("message", "") for c in found["status"].get("conditions") or ()]
            return any('for PVC "c"' in text for text in texts)

        await until(refused)
        assert "ProvisioningFailed" in await reasons(client, "c")
        await client.patch(NODES, "cpu-1", {"metadata": {"annotations": {FAIL: None}}})
        (found,) = await until(lambda: running(client, "p"))
        assert found["spec"]["nodeName"] == "cpu-1"


async def test_gang_is_bound_when_all_its_volumes_are(tmp_path: Path) -> None:
    async with up(tmp_path, "cpu:2") as client:
        await client.create(CLASSES, LOCAL)
        for i in range(2):
            await client.create(CLAIMS, claim(f"c{i}", storageClassName="local"), NS)
        await client.create(VOLUMES, local_volume("v0", "cpu-0"))
        policy = {"schedulingPolicy": {"gang": {"minCount": 2}}}
        await client.create(GROUPS, {"metadata": {"name": "g"}, "spec": policy}, NS)
        for i in range(2):
            await client.create(PODS, pod(f"p{i}", f"c{i}", group="g"), NS)

        async def told() -> Any:
            found = await client.get(PODS, "p1", NS)
            return found["status"].get("conditions")

        await until(told)
        assert not (await client.get(VOLUMES, "v0"))["spec"].get("claimRef"), "a volume is taken for half a gang"
        await client.create(VOLUMES, local_volume("v1", "cpu-1"))
        found = await until(lambda: running(client, "p0", "p1"))
        volumes = [await client.get(VOLUMES, name) for name in ("v0", "v1")]
        assert {v["spec"]["claimRef"]["name"] for v in volumes} == {"c0", "c1"}
        assert {p["spec"]["nodeName"] for p in found} == {"cpu-0", "cpu-1"}


async def test_generic_ephemeral_volume_lives_as_long_as_its_pod(tmp_path: Path) -> None:
    async with up(tmp_path, "cpu:1") as client:
        template = {"spec": claim("x")["spec"]}
        made = pod("p", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])
        await client.create(PODS, made, NS)
        await until(lambda: running(client, "p"))
        bound = await client.get(CLAIMS, "p-scratch", NS)
        await client.delete(PODS, "p", NS, grace_period_seconds=0)
        await until(lambda: gone(client, CLAIMS, "p-scratch", NS))
        await until(lambda: gone(client, VOLUMES, bound["spec"]["volumeName"]))


async def test_released_volume_with_retain_is_kept_and_serves_nobody(tmp_path: Path) -> None:
    async with up(tmp_path, "cpu:1") as client:
        await client.create(CLASSES, {**LOCAL, "volumeBindingMode": "Immediate"})
        await client.create(VOLUMES, local_volume("v", "cpu-0"))
        await client.create(CLAIMS, claim("c", storageClassName="local"), NS)

        async def phase() -> str:
            return str((await client.get(VOLUMES, "v"))["status"]["phase"])

        async def has(wanted: str) -> bool:
            return await phase() == wanted

        await until(lambda: has("Bound"))
        await client.delete(CLAIMS, "c", NS)
        await until(lambda: has("Released"))
        await client.create(CLAIMS, claim("d", storageClassName="local"), NS)
        await asyncio.sleep(0.2)
        assert (await client.get(CLAIMS, "d", NS))["status"]["phase"] == "Pending"
