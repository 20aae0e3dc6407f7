"""Simulated nodes on the real API server, with the real controllers: what the fake client cannot show."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from haru.client.api import ApiClient
from haru.drivers.simulated.objects import OFFLINE, PROFILE_LABEL, PROFILE_SPEC, node_object
from haru.drivers.simulated.profiles import load_profile, profile_names
from haru.drivers.simulated.slices import resource_slices
from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.identity import ADMIN
from haru.embedded.options import UpOptions, parse_profiles
from haru.kube.errors import StatusError
from haru.kube.kinds import Kind, lookup
from haru.kube.meta import get_condition
from waiting import until

Obj = dict[str, Any]


def kind(group: str, plural: str) -> Kind:
    found = lookup(group, "v1", plural)
    assert found is not None
    return found


NODES, PODS, EVENTS = kind("", "nodes"), kind("", "pods"), kind("", "events")
LEASES, SLICES = kind("coordination.k8s.io", "leases"), kind("resource.k8s.io", "resourceslices")


@contextlib.asynccontextmanager
async def up(directory: Path, profiles: str = "") -> AsyncIterator[ApiClient]:
    options = UpOptions(profiles=parse_profiles(profiles) if profiles else (), listen=("127.0.0.1", 0))
    cluster = EmbeddedCluster(options, directory)
    try:
        await cluster.start()
        yield cluster.client(ADMIN)
    finally:
        await cluster.stop()


async def find(client: ApiClient, kind: Kind, name: str, namespace: str = "") -> Obj | None:
    try:
        return await client.get(kind, name, namespace)
    except StatusError as error:
        assert error.code == 404
        return None


async def slices_of(client: ApiClient, node: str) -> list[Obj]:
    return list((await client.list(SLICES, field_selector=f"spec.nodeName={node}"))["items"])


async def pool_of(client: ApiClient, node: str) -> list[Obj]:
    """The slices of a node once they are all there."""
    found = await slices_of(client, node)
    return found if found and len(found) == found[0]["spec"]["pool"]["resourceSliceCount"] else []


async def ready(client: ApiClient, name: str) -> bool:
    node = await find(client, NODES, name)
    return node is not None and (get_condition(node, "Ready") or {}).get("status") == "True"


def labelled(name: str, profile: str, **annotations: str) -> Obj:
    return {"metadata": {"name": name, "labels": {PROFILE_LABEL: profile}, "annotations": annotations}}


async def test_every_profile_is_accepted_by_the_api(tmp_path: Path) -> None:
    async with up(tmp_path, "cpu:0") as client:
        for name in profile_names():
            profile, node = load_profile(name), f"n-{name}"
            objects = [(NODES, node_object(profile, node, internal_ip="10.0.0.1", now="2026-01-01T00:00:00Z"))]
            del objects[0][1]["metadata"]["labels"][PROFILE_LABEL]  # or the fleet would publish first
            objects += [(SLICES, item) for item in resource_slices(profile, node, "uid", {}, 1)]
            for target, obj in objects:
                path = f"/apis/{target.group}/v1/{target.plural}" if target.group else f"/api/v1/{target.plural}"
                status, headers, body = await client.raw(
                    "POST",
                    path,
                    query=[("fieldValidation", "Strict")],
                    headers={"content-type": "application/json"},
                    body=json.dumps(obj).encode(),
                )
                assert status == 201 and "warning" not in headers, (name, body)


async def test_node_stands_where_whoever_creates_it_says(tmp_path: Path) -> None:
    places = {"topology.kubernetes.io/zone": "zone-x", "topology.haru.dev/rack": "row-7"}
    node = labelled("spare-1", "t4")
    node["metadata"]["labels"] |= {**places, "kubernetes.io/hostname": "other"}
    async with up(tmp_path, "cpu:0") as client:
        await client.create(NODES, node)
        await until(lambda: ready(client, "spare-1"))
        labels = (await client.get(NODES, "spare-1"))["metadata"]["labels"]
    assert labels.items() >= {**places, "kubernetes.io/hostname": "spare-1"}.items()
    assert labels["topology.kubernetes.io/region"] == "simulated"


async def test_labelled_nodes_are_added_and_removed_at_runtime(tmp_path: Path) -> None:
    spec = json.dumps({"node": {"cpu": 4, "memory": "16Gi"}, "cards": {"model": "t4-16gb", "count": 3}})
    async with up(tmp_path, "cpu:1") as client:
        await client.create(NODES, labelled("late", "a30-mig"))
        await client.create(NODES, labelled("own", "mine", **{PROFILE_SPEC: spec}))
        await client.create(NODES, labelled("odd", "no-such"))
        await client.create(NODES, {"metadata": {"name": "foreign"}})
        await until(lambda: ready(client, "late"))
        await until(lambda: ready(client, "own"))
        assert (await client.get(NODES, "late"))["metadata"]["labels"]["node.kubernetes.io/instance-type"]
        assert len(await until(lambda: pool_of(client, "late"))) == 5
        assert len((await until(lambda: pool_of(client, "own")))[0]["spec"]["devices"]) == 3
        events = (await client.list(EVENTS, field_selector="reason=UnknownProfile"))["items"]
        assert {e["involvedObject"]["name"] for e in events} == {"odd"}
        assert not await ready(client, "foreign") and await find(client, LEASES, "foreign", "kube-node-lease") is None

        await client.delete(NODES, "late")

        async def all_gone() -> bool:
            return not await slices_of(client, "late") and not await find(client, LEASES, "late", "kube-node-lease")

        await until(all_gone)
        await client.create(NODES, labelled("later", "t4"))
        await until(lambda: ready(client, "later"), "the fleet has seen what came before")
        assert await find(client, NODES, "late") is None and await all_gone()
        await client.create(NODES, labelled("late", "t4"))
        await until(lambda: ready(client, "late"))
        await until(lambda: pool_of(client, "late"))


POD: Obj = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], "tolerations": [{"operator": "Exists"}]}  # fmt: skip # noqa: E501


async def phase(client: ApiClient, name: str, wanted: str) -> Obj | None:
    pod = await find(client, PODS, name, "default")
    return pod if pod is not None and pod["status"].get("phase") == wanted else None


async def test_labelled_nodes_resume_after_restart(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text("node: {cpu: 4, memory: 16Gi}\ncards: {model: t4-16gb, count: 1}\n")
    async with up(tmp_path, f"dgx-h100-mig:1,{file}:1") as client:
        await client.create(NODES, labelled("mine", "t4"))
        await until(lambda: ready(client, "mine"))
        await until(lambda: pool_of(client, "mine"))
        await until(lambda: find(client, LEASES, "mine", "kube-node-lease"))
        before = (await client.list(SLICES))["items"]
        leases = {name: await client.get(LEASES, name, "kube-node-lease") for name in ("mine", "lab-0")}
    file.unlink()
    async with up(tmp_path) as client:
        names = {n["metadata"]["name"] for n in (await client.list(NODES))["items"]}
        assert names == {"dgx-h100-mig-0", "lab-0", "mine"}
        for name, lease in leases.items():
            renewed = await client.get(LEASES, name, "kube-node-lease")
            assert renewed["spec"]["renewTime"] > lease["spec"]["renewTime"]
        # Nothing had to be published anew.
        assert (await client.list(SLICES))["items"] == before


async def test_offline_node_sends_nothing_and_resumes(tmp_path: Path) -> None:
    async with up(tmp_path, "cpu:1") as client:
        await client.patch(NODES, "cpu-0", {"metadata": {"annotations": {OFFLINE: "true"}}})
        await client.create(NODES, labelled("other", "cpu"))
        await until(lambda: ready(client, "other"), "the fleet has seen the annotation")
        await client.create(PODS, {"metadata": {"name": "p"}, "spec": {"nodeName": "cpu-0", **POD}}, "default")
        lost = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "rehearsed"}
        patch = {"status": {"conditions": [lost]}}
        await client.patch(NODES, "cpu-0", patch, type="strategic", subresource="status")
        await client.create(PODS, {"metadata": {"name": "q"}, "spec": {"nodeName": "other", **POD}}, "default")
        await until(lambda: phase(client, "q", "Running"), "the fleet has seen the pods")
        assert await phase(client, "p", "Pending") and not await ready(client, "cpu-0")
        await client.patch(NODES, "cpu-0", {"metadata": {"annotations": {OFFLINE: None}}})
        await until(lambda: ready(client, "cpu-0"))
        await until(lambda: phase(client, "p", "Running"))
        node = await client.get(NODES, "cpu-0")
        assert (get_condition(node, "Ready") or {})["reason"] == "KubeletReady"


@pytest.mark.parametrize("policy", ["OnFailure", "Always"])
async def test_failed_containers_are_restarted(tmp_path: Path, policy: str) -> None:
    async with up(tmp_path, "cpu:1") as client:
        pod = {
            "metadata": {"name": "p", "annotations": {"simulated.haru.dev/fail": "0"}},
            "spec": {**POD, "restartPolicy": policy},
        }
        await client.create(PODS, pod, "default")

        async def backing_off() -> Obj | None:
            found = await find(client, PODS, "p", "default")
            statuses = ((found or {}).get("status") or {}).get("containerStatuses") or [{}]
            waiting = (statuses[0].get("state") or {}).get("waiting")
            return found if waiting and statuses[0]["restartCount"] else None

        found = await until(backing_off)
        status = found["status"]["containerStatuses"][0]
        assert found["status"]["phase"] == "Running" and status["restartCount"] == 1
        assert status["lastState"]["terminated"]["exitCode"] == 1
        assert status["state"]["waiting"]["message"].startswith("back-off 10s restarting failed container=c pod=p_")
        assert (get_condition(found, "Ready") or {})["status"] == "False"

        async def reasons() -> set[str]:
            events = (await client.list(EVENTS, "default", field_selector="source=kubelet"))["items"]
            told = {e["reason"] for e in events if e["involvedObject"]["name"] == "p"}
            return told if {"Pulled", "Created", "Started", "BackOff"} <= told else set()

        assert await until(reasons)
        await client.delete(PODS, "p", "default", grace_period_seconds=1)

        async def gone() -> bool:
            return await find(client, PODS, "p", "default") is None

        await until(gone)


async def test_pod_resize_waits_for_free_resources_and_never_exceeds_node(tmp_path: Path) -> None:
    async with up(tmp_path, "cpu:1") as client:

        def containers(cpu: int) -> list[Obj]:
            return [{"name": "c", "image": "i", "resources": {"requests": {"cpu": str(cpu), "memory": "1Gi"}}}]

        async def resize(cpu: int) -> Obj:
            patch = {"spec": {"containers": containers(cpu)}}
            return await client.patch(PODS, "p", patch, "default", type="strategic", subresource="resize")

        async def pending() -> Obj | None:
            return get_condition(await client.get(PODS, "p", "default"), "PodResizePending")

        async def allocated(cpu: int) -> bool:
            (status,) = (await client.get(PODS, "p", "default"))["status"]["containerStatuses"]
            has = status["allocatedResources"]["cpu"], status["resources"]["requests"]["cpu"]
            return has == (str(cpu), str(cpu)) and await pending() is None

        for name, cpu in (("p", 2), ("other", 24)):
            spec = {"nodeName": "cpu-0", "containers": containers(cpu), "terminationGracePeriodSeconds": 0}
            await client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")
            await until(lambda name=name: phase(client, name, "Running"))
        await resize(4)
        await until(lambda: allocated(4))
        await resize(20)
        condition = await until(pending)
        assert (condition["reason"], condition["observedGeneration"]) == ("Deferred", 3)
        with pytest.raises(StatusError, match="node didn't have enough allocatable resources: cpu, requested: 33000"):
            await resize(33)
        await client.delete(PODS, "other", "default")
        await until(lambda: allocated(20))
