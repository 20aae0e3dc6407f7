"""`haru top` reads the pressure on pods with devices from kubelets through the API server, without delay."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from forwarding_cluster import Cluster, cluster, node_object
from kubelet_pieces import NODE, Source

from haru.api.pressure import ask
from haru.cli.main import main
from haru.client.api import ApiClient

Obj = dict[str, Any]
RESOURCES = "/apis/resource.k8s.io/v1"
CLAIMS = f"{RESOURCES}/namespaces/default/resourceclaims"
SUMMARY = json.loads((Path(__file__).parent / "golden" / "summary.json").read_text())
CLASS = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {}}
[RECORDED] = SUMMARY["pods"]


class Recorded(Source):
    """Tells the pods of a recorded summary, under the UIDs that the cluster's pods have."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.uids: list[str] = []

    def summary(self, only_cpu_and_memory: bool = False) -> Obj:
        pods = []
        for uid in self.uids:
            pod = copy.deepcopy(RECORDED)
            pod["podRef"]["uid"] = uid
            pods.append(pod)
        return {**SUMMARY, "pods": pods}


async def holder(api: Cluster, name: str, node: str) -> str:
    """A card of its own on a node, and a pod there that holds it; the pod's UID."""
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec: Obj = {"driver": "gpu.example.com", "nodeName": node, "pool": pool, "devices": [{"name": "gpu-0"}]}
    meta = {"name": f"{node}-gpus"}
    await api.create(
        f"{RESOURCES}/resourceslices",
        {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": meta, "spec": spec},
    )
    requests = [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]
    claim = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    await api.create(CLAIMS, {**claim, "spec": {"devices": {"requests": requests}}})
    containers = [{"name": "main", "image": "x", "resources": {"claims": [{"name": "gpu"}]}}]
    claims = [{"name": "gpu", "resourceClaimName": name}]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    pods = "/api/v1/namespaces/default/pods"
    await api.create(pods, {**pod, "spec": {"nodeName": node, "containers": containers, "resourceClaims": claims}})
    uid: str = (await api.ask("GET", f"{pods}/{name}"))[1]["metadata"]["uid"]
    result = {"request": "gpu", "driver": "gpu.example.com", "pool": node, "device": "gpu-0"}
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    }
    _, stored = await api.ask("GET", f"{CLAIMS}/{name}")
    code, said = await api.ask("PUT", f"{CLAIMS}/{name}/status", body={**stored, "status": status})
    assert code == 200, said
    return uid


@asynccontextmanager
async def held(directory: Path) -> AsyncGenerator[tuple[Cluster, Recorded], None]:
    """A pod with a card on the real node, and one on the simulated node."""
    source = Recorded(directory)
    async with cluster(directory, source=source) as api:
        await api.create(f"{RESOURCES}/deviceclasses", CLASS)
        source.uids.append(await holder(api, "real", NODE))
        await holder(api, "ghost", "simulated")
        yield api, source


def kubeconfig(api: Cluster, user: str) -> Path:
    file = api.authority.parent / f"{user}.kubeconfig"
    name = {"name": "c"}
    here = {"server": api.url, "certificate-authority": str(api.authority)}
    file.write_text(
        json.dumps(
            {
                "current-context": "c",
                "clusters": [{**name, "cluster": here}],
                "users": [{**name, "user": {"token": user}}],
                "contexts": [{**name, "context": {"cluster": "c", "user": "c"}}],
            }
        )
    )
    return file


async def top(api: Cluster, capsys: pytest.CaptureFixture[str], *more: str, user: str = "root") -> str:
    """What `haru top` prints."""
    status = await asyncio.to_thread(main, ["top", "--kubeconfig", str(kubeconfig(api, user)), *more])
    told = capsys.readouterr()
    assert (status, told.err) == (0, "")
    return told.out


def cells(text: str, owner: str) -> list[str]:
    [line] = [line for line in text.splitlines() if owner in line]
    return line.split()


async def add_node(api: Cluster, name: str, port: int) -> None:
    await api.create("/api/v1/nodes", node_object(name, port))
    assert (await api.ask("PUT", f"/api/v1/nodes/{name}/status", body=node_object(name, port)))[0] == 200


async def test_pressure_of_pods_on_real_nodes_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with held(tmp_path) as (api, _):
        text = await top(api, capsys)
        assert cells(text, "pod/real")[6:8] == ["0.25%/0.05%", "0.25%/0.05%"]
        assert cells(text, "pod/ghost")[6:8] == ["-", "-"] and "(no pressure" not in text
        answer = json.loads(await top(api, capsys, "-o", "json"))
        pods = {pod["name"]: pod for pod in answer["pods"]}
        assert pods["real"]["io"] == {"psi": RECORDED["io"]["psi"]}
        assert pods["real"]["memory"] == {"psi": RECORDED["memory"]["psi"]}
        assert "io" not in pods["ghost"] and "memory" not in pods["ghost"] and answer["pressureErrors"] == []
        # The simulated node's owner alone: no kubelet is asked.
        before = len(api.node.reviews.asked)
        assert cells(await top(api, capsys, "--owner", "ghost"), "pod/ghost")[6:8] == ["-", "-"]
        assert len(api.node.reviews.asked) == before


async def test_pressure_of_pod_with_other_uid_is_ignored(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with held(tmp_path) as (api, source):
        source.uids[:] = ["an-earlier-one"]
        assert cells(await top(api, capsys), "pod/real")[6:8] == ["-", "-"]


async def test_unreachable_or_refusing_kubelets_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with held(tmp_path) as (api, _):
        api.node.reviews.grants["kube-apiserver-kubelet-client"].clear()
        text = await top(api, capsys)
        assert cells(text, "pod/real")[6:8] == ["-", "-"]
        assert f"(no pressure from the kubelet of {NODE}: GET " in text and "subresource(s)=[stats]" in text
        await api.node.server.stop()
        text = await top(api, capsys)
        assert f"\n(no pressure from the kubelet of {NODE}: error trying to reach" in text
        [failure] = json.loads(await top(api, capsys, "-o", "json"))["pressureErrors"]
        assert failure["node"] == NODE and "error trying to reach service" in failure["message"]


async def test_missing_permission_for_nodes_proxy_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async with held(tmp_path) as (api, _):
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "looks"}}
        rules = [{"apiGroups": ["*"], "resources": [r], "verbs": ["list"]} for r in ("nodes", "pods", "deviceclasses")]
        rules += [{"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["list"]}]
        await api.create(f"{rbac}/clusterroles", {**kind, "kind": "ClusterRole", "rules": rules})
        to = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "looks"}}
        who = {"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]}
        await api.create(f"{rbac}/clusterrolebindings", {**kind, "kind": "ClusterRoleBinding", **to, **who})
        text = await top(api, capsys, user="alice")
        assert cells(text, "pod/real")[6:8] == ["-", "-"]
        expected = f"(no pressure from the kubelet of {NODE}: not allowed: it takes the right to get nodes/proxy)"
        assert expected in text.splitlines()


async def test_silent_kubelet_does_not_delay_others(tmp_path: Path) -> None:
    """It takes connections and never answers; what the others say is there nevertheless."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(-1)
        writer.close()

    listener = await asyncio.start_server(silent, "127.0.0.1", 0)
    async with held(tmp_path) as (api, source), listener:
        await add_node(api, "dumb", listener.sockets[0].getsockname()[1])
        async with ApiClient.http(api.url, token="root", ca_pem=api.authority.read_bytes()) as client:
            # The one that answers has all the time that it needs.
            found = await ask(client, [NODE], each=60, in_all=60)
            assert set(found.pods) == set(source.uids) and found.failed == {}
            found = await ask(client, ["dumb"], each=0.5, in_all=60)
            assert found.pods == {} and found.failed == {"dumb": "no answer within 0.5 s"}
            found = await ask(client, ["dumb", "nowhere"], each=60, in_all=0.5)
            assert found.failed["dumb"] == "was not reached within the 0.5 s that all nodes have"


async def test_malformed_summary_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with held(tmp_path) as (api, source):
        async with ApiClient.http(api.url, token="root", ca_pem=api.authority.read_bytes()) as client:
            monkeypatch.setattr(source, "summary", lambda only_cpu_and_memory=False: {"pods": None})
            found = await ask(client, [NODE, "nowhere"], each=60, in_all=60)
        assert found.pods == {}
        assert found.failed[NODE] == "/stats/summary: pods: expected a list, found None"
        assert 'nodes "nowhere" not found' in found.failed["nowhere"]
