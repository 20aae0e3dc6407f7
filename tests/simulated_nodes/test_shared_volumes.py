"""Volumes that pods share: what a fleet reads of their claims."""

from __future__ import annotations

from typing import Any

import pytest
from fleet_stage import Stage

from haru.kube.kinds import Kind
from haru.simulated_nodes.shared_volumes import CLAIMS, PODS

Obj = dict[str, Any]


class Reads:
    """Counts how often a stage's claims are read."""

    def __init__(self, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count, get = 0, stage.client.get

        async def counted(kind: Kind, name: str, namespace: str = "", subresource: str = "") -> Obj:
            self.count += kind is CLAIMS
            return await get(kind, name, namespace, subresource)

        monkeypatch.setattr(stage.client, "get", counted)


async def begin(stage: Stage, name: str, script: str = "sleep infinity") -> Obj:
    mounts = [{"name": "v", "mountPath": "/data"}]
    container = {"name": "c", "image": "i", "command": ["sh", "-c", script], "volumeMounts": mounts}
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    await stage.pod(name, node="cpu-0", containers=[container], volumes=volumes, restartPolicy="Never")
    return await stage.phase(name, "Running")


async def make_claim(stage: Stage) -> None:
    provisioned = {"volume.kubernetes.io/storage-provisioner": "volumes.simulated.haru.dev"}
    await stage.client.create(CLAIMS, {"metadata": {"name": "data", "annotations": provisioned}, "spec": {}})


async def test_claim_is_read_once_for_all_pods_that_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("cpu:1")
    await make_claim(stage)
    async with stage.running():
        reads = Reads(stage, monkeypatch)
        for number in range(20):
            await begin(stage, f"p-{number}")
        assert reads.count == 1


async def test_claim_that_nobody_has_any_more_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("cpu:1")
    await make_claim(stage)
    async with stage.running():
        reads = Reads(stage, monkeypatch)
        await begin(stage, "first", "echo 1 > /data/x; sleep 1")
        await stage.client.delete(PODS, "first", "default")
        await stage.client.until(lambda: stage.stored("first") is None)
        await stage.client.delete(CLAIMS, "data", "default")
        await make_claim(stage)
        await begin(stage, "second", "[ -f /data/x ] && exit 1; sleep infinity")
        assert reads.count == 2
