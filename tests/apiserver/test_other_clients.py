"""Other Python clients, unmodified: kopf (an operator), lightkube, kr8s."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from custom_objects import definition, training
from kubectl_runner import Kubectl, require_kubectl

from waiting import until

OPERATOR = Path(__file__).with_name("operator_of_trainings.py")
Obj = dict[str, Any]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Kubectl]:
    require_kubectl()
    running = Kubectl(tmp_path)
    await running.start()
    yield running
    await running.stop()


def training_definition() -> Obj:
    """As the others, but an operator may keep notes in the status."""
    made = definition()
    schema = made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    status = {**schema["properties"]["status"], "x-kubernetes-preserve-unknown-fields": True}
    schema["properties"] = {**schema["properties"], "status": status}
    return made


async def test_kopf_operator_runs(server: Kubectl) -> None:
    pytest.importorskip("kopf")
    await server.ok("apply", "-f", "-", input=json.dumps(training_definition()))
    said = server.directory / "operator.log"
    with said.open("wb") as output:
        operator = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kopf", "run", "--all-namespaces", "--standalone", str(OPERATOR)),
            env={
                "KUBECONFIG": str(server.directory / "config"),
                "PATH": "/usr/bin:/bin",
                "HOME": str(server.directory),
            },
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
        )
    try:
        await server.ok("create", "-f", "-", input=json.dumps(training("first", replicas=3)))

        async def status() -> Obj:
            found = await server.ok("get", "tr", "first", "-o", "json")
            shown: Obj = json.loads(found).get("status") or {}
            return shown

        async def was_created() -> bool:
            shown = await status()
            return shown.get("phase") == "created for llm" and shown.get("created") == {"seen": 3}

        await until(was_created)
        finalizers = "jsonpath={.metadata.finalizers}"
        assert "example.com/operator" in await server.ok("get", "tr", "first", "-o", finalizers)
        await server.ok("patch", "tr", "first", "--type=merge", "-p", '{"spec":{"replicas":5}}')

        async def was_updated() -> bool:
            return (await status()).get("phase") == "from 3 to 5"

        await until(was_updated)

        async def has_ticked() -> bool:
            return int((await status()).get("replicas") or 0) > 2

        await until(has_ticked)
        # Its finalizer goes when kopf lets the object go, in its own time.
        deleted = await server.run("delete", "tr", "first", "--timeout=120s", timeout=150)
        assert deleted.code == 0, deleted.err
        assert "NotFound" in (await server.run("get", "tr", "first")).err
    finally:
        told = said.read_text()
        operator.kill()  # it takes its time to end by itself, and that is no matter of ours
        await operator.wait()
    assert "farewell first" in told
    assert "Traceback" not in told, told


async def test_lightkube_client_works(server: Kubectl) -> None:
    lightkube = pytest.importorskip("lightkube")
    from lightkube.core.exceptions import ApiError
    from lightkube.generic_resource import create_namespaced_resource
    from lightkube.models.core_v1 import Container, PodSpec
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap, Pod

    await server.ok("apply", "-f", "-", input=json.dumps(definition()))
    config = lightkube.KubeConfig.from_file(str(server.directory / "config"))
    client = lightkube.AsyncClient(config=config, field_manager="tests")
    container = Container(name="main", image="busybox")
    made = await client.create(Pod(metadata=ObjectMeta(name="a"), spec=PodSpec(containers=[container])))
    assert made.metadata.uid and made.status.phase == "Pending"
    await client.patch(Pod, "a", {"metadata": {"labels": {"x": "y"}}})
    assert [pod.metadata.name async for pod in client.list(Pod, labels={"x": "y"})] == ["a"]
    await client.apply(ConfigMap(metadata=ObjectMeta(name="c"), data={"k": "1"}))
    assert (await client.get(ConfigMap, "c")).data == {"k": "1"}

    seen = []

    async def watch() -> None:
        async for event, pod in client.watch(Pod):
            seen.append((event, pod.metadata.name))
            if event == "DELETED":
                return

    watching = asyncio.create_task(watch())
    await until(lambda: asyncio.sleep(0, ("ADDED", "a") in seen))
    await client.delete(Pod, "a", grace_period=0)
    await asyncio.wait_for(watching, 30)
    with pytest.raises(ApiError) as caught:
        await client.get(Pod, "a")
    assert caught.value.status.code == 404
    trainings = create_namespaced_resource("ml.example.com", "v1", "Training", "trainings")
    await client.create(trainings(metadata=ObjectMeta(name="t"), spec={"model": "llm"}))
    found = [item async for item in client.list(trainings)]
    assert [(item.metadata.name, item.spec["replicas"]) for item in found] == [("t", 2)]
    await client.close()


@pytest.mark.filterwarnings("ignore:Kubernetes version v1.36")  # newer than what it knows
async def test_kr8s_client_works(server: Kubectl) -> None:
    pytest.importorskip("kr8s")
    import kr8s
    from kr8s.asyncio.objects import ConfigMap, Pod, new_class

    await server.ok("apply", "-f", "-", input=json.dumps(definition()))
    api = await kr8s.asyncio.api(kubeconfig=str(server.directory / "config"))
    assert (await api.version())["minor"] == "36"
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    pod = await Pod({"apiVersion": "v1", "kind": "Pod", **body}, api=api)
    await pod.create()
    await pod.label({"x": "y"})
    assert [found.name async for found in api.get("pods", label_selector={"x": "y"})] == ["a"]
    settings = await ConfigMap({"metadata": {"name": "c"}, "data": {"k": "1"}}, api=api)
    await settings.create()
    await settings.patch({"data": {"k": "2"}})
    assert settings.data["k"] == "2"
    trainings = new_class(kind="Training", version="ml.example.com/v1", namespaced=True, asyncio=True)
    made = await trainings({"metadata": {"name": "t"}, "spec": {"model": "llm"}}, api=api)
    await made.create()
    assert [found.spec.replicas async for found in api.get("trainings.ml.example.com")] == [2]
    await pod.delete(grace_period=0)
    await pod.wait("delete", timeout=60)
    assert not await pod.exists()
