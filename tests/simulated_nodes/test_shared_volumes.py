"""What probes and hooks of a simulated container see of the files that other containers of its pod write."""

from __future__ import annotations

from typing import Any

import pytest

from haru.simulated_nodes.probes import health_of
from haru.simulated_nodes.stops import stop_of

Obj = dict[str, Any]


def container(name: str, script: str, **more: Any) -> Obj:
    mounts = [{"name": "shared", "mountPath": "/v"}]
    return {"name": name, "command": ["sh", "-c", script], "volumeMounts": mounts, **more}


def pod(*containers: Obj) -> Obj:
    spec = {"containers": list(containers), "volumes": [{"name": "shared", "emptyDir": {}}]}
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}


@pytest.mark.parametrize("field", ["startupProbe", "readinessProbe", "livenessProbe"])
def test_probe_sees_what_another_container_has_written_into_a_volume(field: str) -> None:
    writer = container("w", "sleep 5; touch /v/x; sleep 10; rm /v/x; sleep 100")
    probe = {"exec": {"command": ["cat", "/v/x"]}, "periodSeconds": 1, "failureThreshold": 8}
    main = container("c", "sleep 1000", **{field: probe})
    found = health_of(pod(writer, main), main)
    if field == "startupProbe":
        assert (found.started, found.killed) == (5.0, None)
    elif field == "readinessProbe":
        assert [(turn.at, turn.success) for turn in found.readiness if turn.at] == [(5.0, True), (22.0, False)]
    else:
        assert found.killed == (22.0, "liveness")


def test_hook_sees_what_another_container_has_written_into_a_volume() -> None:
    writer = container("w", "touch /v/x; sleep 100")
    hook = {"preStop": {"exec": {"command": ["sh", "-c", "test -f /v/x && sleep 7"]}}}
    main = container("c", "sleep 1000", lifecycle=hook)
    assert stop_of(pod(writer, main), main, 30.0).after == 7.0
