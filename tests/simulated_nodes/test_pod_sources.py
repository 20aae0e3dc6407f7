"""Pods of simulated nodes that name ConfigMaps and Secrets: they wait for what is not there."""

from __future__ import annotations

from typing import Any

from fleet_stage import Stage

from haru.kube.errors import forbidden_error
from haru.kube.kinds import known_kind

CONFIG_MAPS = known_kind("v1", "ConfigMap")
CONFIG: dict[str, Any] = {"metadata": {"name": "config"}, "data": {"key": "value"}}


async def test_pod_with_a_volume_of_a_missing_config_map_runs_once_it_is_created() -> None:
    stage = Stage()
    async with stage.running():
        await stage.pod("p", volumes=[{"name": "v", "configMap": {"name": "config"}}])
        await stage.client.until(lambda: "FailedMount" in stage.reasons("p"))
        waiting = await stage.phase("p", "Pending")
        state = waiting["status"]["containerStatuses"][0]["state"]
        assert state == {"waiting": {"reason": "ContainerCreating"}}
        await stage.client.create(CONFIG_MAPS, CONFIG)
        await stage.phase("p", "Running")


async def test_pod_with_a_config_map_that_nodes_may_not_read_says_so_until_they_may() -> None:
    stage = Stage()
    await stage.client.create(CONFIG_MAPS, CONFIG)
    why = 'User "fleet" cannot get resource "configmaps" in API group "" in the namespace "default"'
    stage.client.fail("get", "configmaps", forbidden_error("", "configmaps", "config", why))
    async with stage.running():
        await stage.pod("p", volumes=[{"name": "v", "configMap": {"name": "config", "optional": True}}])
        await stage.client.until(lambda: "FailedMount" in stage.reasons("p"))
        told = f'MountVolume.SetUp failed for volume "v" : configmaps "config" is forbidden: {why}'
        assert ("p", "FailedMount", told) in stage.recorder.events
        await stage.phase("p", "Running")


async def test_container_with_a_variable_of_a_missing_config_map_is_a_config_error() -> None:
    ref = {"configMapKeyRef": {"name": "config", "key": "key"}}
    container = {"name": "c", "image": "i", "env": [{"name": "A", "valueFrom": ref}], "command": ["sh", "-c", "exit 0"]}
    stage = Stage()
    async with stage.running():
        await stage.pod("p", containers=[container], restartPolicy="Never")
        stored = await stage.client.until(
            lambda: (p := stage.stored("p")) and p["status"].get("containerStatuses") and p
        )  # fmt: skip
        waiting = stored["status"]["containerStatuses"][0]["state"]["waiting"]
        assert waiting == {"reason": "CreateContainerConfigError", "message": 'configmap "config" not found'}
        await stage.client.create(CONFIG_MAPS, CONFIG)
        await stage.phase("p", "Succeeded")
