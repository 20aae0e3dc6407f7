"""Volumes and limits of storage with a real containerd: read-only copies of objects, evictions by what was written."""

from __future__ import annotations

from typing import Any

import pytest
from machine import Machine, container

pytestmark = pytest.mark.nightly
Obj = dict[str, Any]
FILL = "dd if=/dev/zero of={} bs=1M count=5; exec sleep 1000"


def events(machine: Machine, name: str) -> list[tuple[str, str]]:
    """Events of a pod: reasons and messages."""
    listed = machine.api.list("events", "default")
    return [(one["reason"], one["message"]) for one in listed if one["involvedObject"]["name"] == name]


def test_pods_that_write_more_than_they_may_are_evicted(machine: Machine) -> None:
    limits = {"limits": {"ephemeral-storage": "1Mi"}}
    mounts = [{"name": "v", "mountPath": "/v"}]
    limited = [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}]
    machine.create("volume", [container("main", FILL.format("/v/x"), volumeMounts=mounts)], volumes=limited)
    machine.create("layer", [container("main", FILL.format("/x"), resources=limits)])
    unlimited = [{"name": "v", "emptyDir": {}}]
    machine.create("free", [container("main", FILL.format("/v/x"), volumeMounts=mounts)], volumes=unlimited)
    texts = {
        "volume": 'Usage of EmptyDir volume "v" exceeds the limit "1Mi". ',
        "layer": "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
    }
    for name, text in texts.items():
        status = machine.until_phase(name, "Failed")["status"]
        assert (status["reason"], status["message"]) == ("Evicted", text)
        assert ("Evicted", text) in events(machine, name)
    assert machine.until_ready("free")["status"]["phase"] == "Running"


def test_files_of_objects_can_not_be_written(machine: Machine) -> None:
    meta = {"name": "fixed", "namespace": "default"}
    machine.api.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"key": "1"}})
    mounts = [{"name": "v", "mountPath": "/v"}, {"name": "e", "mountPath": "/v/deep/er"}]
    script = "(echo 2 >/v/key) 2>/dev/null || echo refused; echo 3 >/v/deep/er/file && cat /v/key /v/deep/er/file"
    volumes = [{"name": "v", "configMap": {"name": "fixed"}}, {"name": "e", "emptyDir": {}}]
    machine.create("reader", [container("main", script, volumeMounts=mounts)], volumes=volumes, restartPolicy="Never")
    pod = machine.until_phase("reader", "Succeeded")
    machine.until_said(pod, "refused\n13")
