"""`haru whatif`: from files, from a server that refuses every write, from a data directory; bad changes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.cli import sources
from haru.cli.main import main
from haru.client.api import ApiClient
from haru.kube.gates import FeatureGates
from haru.kube.kinds import known_kind
from haru.storage import SqliteStore

Obj = dict[str, Any]

CLUSTER = """
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 1000
---
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
apiVersion: v1
kind: Pod
metadata: {name: nightly}
spec:
  nodeName: n1
  containers: [{name: main, image: batch, resources: {requests: {cpu: "6"}}}]
status: {phase: Running}
"""
TEMPLATE = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: four}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com, count: 4}}]}}}
"""
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: train}
spec:
  parallelism: 3
  completions: 3
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: x, resources: {requests: {cpu: "4"}, claims: [{name: gpu}]}}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: four}]
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      priorityClassName: urgent
      containers: [{name: main, image: x, resources: {requests: {cpu: "4"}}}]
"""


class Files:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._folder = folder
        self._capsys = capsys

    def write(self, name: str, text: str) -> str:
        (self._folder / name).write_text(text)
        return str(self._folder / name)

    def ask(self, *arguments: str) -> tuple[int, Obj]:
        status = main(["whatif", "-f", self.write("cluster.yaml", CLUSTER), *arguments, "-o", "json"])
        return status, json.loads(self._capsys.readouterr().out)


@pytest.fixture
def files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Files:
    return Files(tmp_path, capsys)


def test_applied_job_adds_its_gang_and_claims(files: Files) -> None:
    given = ["--apply", files.write("t.yaml", TEMPLATE), "--apply", files.write("job.yaml", JOB)]
    status, answer = files.ask("--add-nodes", "dgx-h100:2", *given)
    assert status == 0 and answer["harmless"]
    assert [start["workload"] for start in answer["starts"]] == ["job/train"] * 3
    assert all(len(start["devices"]) == 4 for start in answer["starts"])
    after = answer["usage"]["devices"]["gpu.nvidia.com"]["after"]
    assert (after["total"], after["used"], after["held"], after["free"]) == (16, 12, 12, 4)
    assert answer["changes"][-1] == "apply job default/train", "its pods are not listed one by one"
    status, answer = files.ask("--add-nodes", "dgx-h100", *given)
    assert status == 1 and len(answer["waits"]) == 3 and not answer["starts"], "a gang starts whole or not at all"


def test_applied_deployment_evicts_lower_priority_pod(files: Files) -> None:
    status, answer = files.ask("--apply", files.write("web.yaml", DEPLOYMENT))
    assert status == 1
    [displaced] = answer["displaced"]
    assert (displaced["pod"], displaced["outcome"]) == ("default/nightly", "Lost")
    assert displaced["cause"]["type"] == "Preempted"
    assert displaced["cause"]["for"] == ["default/deployment/web"]
    assert [start["node"] for start in answer["starts"]] == ["n1", "n1"]


def test_changes_are_applied_in_given_order(files: Files) -> None:
    web = files.write("web.yaml", DEPLOYMENT)
    status, answer = files.ask("--delete", "pod/nightly", "--apply", web, "--cordon", "n1")
    assert answer["changes"] == ["delete pod default/nightly", "apply deployment default/web", "cordon node n1"]
    assert status == 1 and {w["reasons"][0]["type"] for w in answer["waits"]} == {"NodeUnschedulable"}
    assert files.ask("--delete", "pod/nightly", "--apply", web)[0] == 0


def test_applied_manifest_is_merged_into_existing_object(files: Files) -> None:
    smaller = files.write("n1.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {rack: a}}\n")
    status, answer = files.ask("--apply", smaller)
    assert status == 0 and answer["usage"]["cpu"]["after"] == {"total": 8, "used": 6}


def test_text_output_names_changes_and_consequences(files: Files, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["whatif", "-f", files.write("c.yaml", CLUSTER), "--taint", "n1", "fan=bad:NoExecute"]) == 1
    assert capsys.readouterr().out.splitlines()[:4] == [
        "change    taint node n1 fan=bad:NoExecute",
        "so        1 pod is displaced; 1 lost",
        "displaced default/pod/nightly from n1: node n1 has the taint fan=bad:NoExecute",
        "            → 1 lost: nobody makes it again",
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "nothing changes: say what, for example --cordon NODE or --apply FILE"),
        (["--cordon", "n2"], 'there is no node "n2"; there is n1'),
        (["--taint", "n1", "fan"], '--taint: "fan": write KEY[=VALUE]:EFFECT'),
        (["--taint", "n1", "fan:None"], '--taint: "fan:None": a node taint has the effect NoSchedule'),
        (["--taint", "n1/gpu-0", "fan:NoExecute"], "--taint: no driver publishes devices here"),
        (["--add-nodes", "dgx-h10:2"], '--add-nodes: no profile is named "dgx-h10"'),
        (["--add-nodes", "cpu:x"], '--add-nodes: Invalid value: "cpu:x": write NAME:COUNT'),
        (["--repartition", "n1"], '--repartition: "n1": write NODE=PROFILE'),
        (["--delete", "nightly"], '--delete: "nightly": write KIND/NAME; KIND is one of csidriver,'),
        (["--delete", "pod/nigtly"], 'there is no pod "default/nigtly"; did you mean default/nightly?'),
        (["--cordon", "n1", "--data-dir", "."], "-f and --data-dir both name the cluster"),
        (["--apply", "nowhere.yaml"], "nowhere.yaml: No such file or directory"),
    ],
)
def test_invalid_changes_are_reported_in_one_line(
    arguments: list[str], message: str, files: Files, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["whatif", "-f", files.write("c.yaml", CLUSTER), *arguments]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"haru whatif: {message}") and told.count("\n") == 1


class ReadOnly:
    """An API server that answers questions and notes every attempt to change something."""

    def __init__(self, server: Any) -> None:
        self._server = server
        self.asked = 0
        self.writes: list[str] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked += 1
        if scope["method"] != "GET":
            self.writes.append(f"{scope['method']} {scope['path']}")
            raise ConnectionRefusedError("nothing is written here")
        await self._server(scope, receive, send)


async def serve(store: SqliteStore) -> ApiServer:
    gates = FeatureGates.accelerator_defaults()
    users = {"admin": UserInfo("admin", ("system:masters",))}
    server = ApiServer(
        ServerConfig(
            store=store,
            gates=gates,
            runtime_config={"api/all": True},
            authentication=AuthenticationOptions(tokens=users),
        )
    )
    await server.start()
    return server


async def furnish(server: ApiServer) -> None:
    client = ApiClient.in_process(server, "admin")
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
    await client.create(known_kind("v1", "ServiceAccount"), account, "default")
    await client.create(known_kind("v1", "Node"), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}})
    node = known_kind("v1", "Node")
    await client.patch(node, "n1", {"status": {"capacity": amounts, "allocatable": amounts}}, subresource="status")
    await client.patch(node, "n1", {"spec": {"taints": None}})
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "6"}}}]}
    await client.create(
        known_kind("v1", "Pod"), {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}, "default"
    )


def test_cluster_is_read_and_never_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = SqliteStore(":memory:")
    made: list[ReadOnly] = []

    async def start() -> ApiServer:
        server = await serve(store)
        await furnish(server)
        return server

    server = asyncio.run(start())

    def connect(options: Any, user_agent: str) -> ApiClient:
        made.append(ReadOnly(server))
        return ApiClient.in_process(made[-1], "admin")

    monkeypatch.setattr(sources, "connect", connect)
    revision = store.revision
    (tmp_path / "web.yaml").write_text(DEPLOYMENT.replace("      priorityClassName: urgent\n", ""))
    changes = ["--taint", "n1", "fan:NoExecute", "--apply", str(tmp_path / "web.yaml"), "--add-nodes", "dgx-h100:2"]
    assert main(["whatif", *changes, "--delete", "pod/a", "-o", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert [d["pod"] for d in answer["displaced"]] == ["default/a"] and len(answer["starts"]) == 2
    assert made[0].asked > 10 and made[0].writes == []
    assert store.revision == revision, "something was written"


def test_data_directory_is_copied_and_unchanged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def fill() -> None:
        store = SqliteStore(tmp_path / "state.db")
        await store.start()
        server = await serve(store)
        await furnish(server)
        await server.stop()
        await store.stop()

    asyncio.run(fill())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["whatif", "--data-dir", str(tmp_path), "--delete", "node/n1", "-o", "json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    [displaced] = answer["displaced"]
    assert (displaced["pod"], displaced["cause"]["type"], displaced["outcome"]) == ("default/a", "NodeGone", "Lost")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert main(["whatif", "--data-dir", str(tmp_path / "none"), "--cordon", "n1"]) == 2
    assert "holds no state.db" in capsys.readouterr().err
