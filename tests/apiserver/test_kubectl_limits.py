"""Quotas and Pod Security with the real kubectl and the official Python client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from api_caller import ADMIN
from kubectl_runner import Kubectl, require_kubectl

from haru.client.api import ApiClient
from haru.controllers.manager import ControllerManager

Obj = dict[str, Any]
SECONDS = 30.0
MANIFEST = """
apiVersion: v1
kind: Pod
metadata: {name: train}
spec:
  containers:
  - name: main
    image: busybox
    securityContext: {privileged: true}
    resources: {limits: {nvidia.com/gpu: 3}}
"""


@pytest_asyncio.fixture
async def kubectl(tmp_path: Path) -> AsyncIterator[Kubectl]:
    """A server with the controller of quotas."""
    require_kubectl()
    runner = Kubectl(tmp_path)
    await runner.start()
    client = ApiClient.in_process(runner.app, ADMIN, "tests")
    controllers = asyncio.create_task(ControllerManager(client, controllers=["resourcequota-controller"]).run())
    yield runner
    controllers.cancel()
    await asyncio.gather(controllers, return_exceptions=True)
    await runner.stop()


async def used(kubectl: Kubectl, **wanted: str) -> None:
    """Wait until the controller has counted that much."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = json.loads(await kubectl.ok("get", "quota", "cards", "-o", "json"))
            if (found.get("status") or {}).get("used") == wanted:
                return
            await asyncio.sleep(0.05)


async def test_kubectl_resource_quota(kubectl: Kubectl) -> None:
    assert "resourcequota/cards created" in await kubectl.ok(
        "create", "quota", "cards", "--hard=requests.nvidia.com/gpu=4,pods=10"
    )
    await used(kubectl, **{"requests.nvidia.com/gpu": "0", "pods": "0"})
    await kubectl.ok("apply", "-f", "-", input=MANIFEST)
    refused = await kubectl.run("apply", "-f", "-", input=MANIFEST.replace("train", "other"))
    assert refused.code == 1
    assert refused.err.strip().endswith(
        'pods "other" is forbidden: exceeded quota: cards, requested: requests.nvidia.com/gpu=3, '
        "used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=4"
    )
    told = await kubectl.ok("describe", "quota", "cards")
    rows = [line.split() for line in told.splitlines()]
    assert ["requests.nvidia.com/gpu", "3", "4"] in rows and ["pods", "1", "10"] in rows, told
    assert "requests.nvidia.com/gpu: 3/4" in await kubectl.ok("get", "quota")
    described = await kubectl.ok("describe", "namespace", "default")
    assert "Resource Quotas" in described and "cards" in described


async def test_kubectl_pod_security_labels(kubectl: Kubectl) -> None:
    await kubectl.ok("apply", "-f", "-", input=MANIFEST)
    labelled = await kubectl.run("label", "namespace", "default", "pod-security.kubernetes.io/enforce=baseline")
    assert labelled.code == 0
    assert labelled.err.splitlines() == [
        'Warning: existing pods in namespace "default" violate the new PodSecurity enforce level "baseline:latest"',
        "Warning: train: privileged",
    ]
    refused = await kubectl.run("apply", "-f", "-", input=MANIFEST.replace("train", "other"))
    assert refused.err.strip().endswith(
        'pods "other" is forbidden: violates PodSecurity "baseline:latest": privileged (container "main" must not set '
        "securityContext.privileged=true)"
    )
    made = await kubectl.run("create", "deployment", "d", "--image=x", "--dry-run=server")
    assert made.code == 0 and not made.err
    wrong = await kubectl.run("label", "--overwrite", "namespace", "default", "pod-security.kubernetes.io/enforce=none")
    assert wrong.code == 1 and "must be one of privileged, baseline, restricted" in wrong.err


async def test_python_client_reports_quota_denial(kubectl: Kubectl) -> None:
    kubernetes = pytest.importorskip("kubernetes")
    await kubectl.ok("create", "quota", "cards", "--hard=count/configmaps=1")
    await used(kubectl, **{"count/configmaps": "0"})

    def calls() -> None:
        with kubernetes.config.new_client_from_config(str(kubectl.directory / "config")) as client:
            core = kubernetes.client.CoreV1Api(client)
            core.create_namespaced_config_map("default", {"metadata": {"name": "a"}})
            with pytest.raises(kubernetes.client.ApiException) as caught:
                core.create_namespaced_config_map("default", {"metadata": {"name": "b"}})
            assert caught.value.status == 403
            assert json.loads(caught.value.body)["message"] == (
                'configmaps "b" is forbidden: exceeded quota: cards, requested: count/configmaps=1, '
                "used: count/configmaps=1, limited: count/configmaps=1"
            )
            assert core.read_namespaced_resource_quota("cards", "default").status.used == {"count/configmaps": "1"}
            client.rest_client.pool_manager.clear()

    await asyncio.to_thread(calls)
