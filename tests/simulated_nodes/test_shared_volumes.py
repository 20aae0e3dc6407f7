"""What scripts, probes and hooks of a simulated container see of files that others of its pod and `exec` write."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haru.kube.simulated_containers.container_scripts import script_of
from haru.kube.simulated_containers.executed import Executed
from haru.kube.simulated_containers.files import PodSources
from haru.kube.simulated_containers.shell_output import Change
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


BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def executed(at: float, path: str, container: str = "c") -> Executed:
    return Executed(container, 0, BEGAN + timedelta(seconds=at), [Change(0.0, path, "")])


@pytest.mark.parametrize(
    ("script", "by_exec", "ends"),
    [
        ("until [ -f /tmp/go ]; do echo w; sleep 1; done; exit 3", [], None),
        ("until [ -f /tmp/go ]; do echo w; sleep 1; done; exit 3", [executed(2500.5, "/tmp/go")], 2501),
        ("until [ -f /tmp/go ]; do echo w; sleep 1; done; exit 3", [executed(9, "/tmp/go", "other")], None),
        ("while [ ! -f /v/go ]; do sleep 2; done; exit 3", [executed(25.5, "shared:go", "other")], 26),
        ("while ! ls /v/go; do sleep 2; done; exit 3", [executed(25.5, "shared:go")], 26),
        ("while true; do if [ -f /tmp/go ]; then exit 3; fi; echo x; sleep 1; done", [executed(700, "/tmp/go")], 700),
        ("while true; do [ -e /tmp/go ] && break; sleep 1; done; exit 3", [executed(7000, "/tmp/go")], 7000),
        ("i=0; while [ $i -lt 500 ]; do [ -f /tmp/x ]; i=$((i+1)); sleep 1; done; exit 3", [], 500),
    ],
)
def test_loop_of_a_container_goes_on_once_exec_has_written_a_file(
    script: str, by_exec: list[Executed], ends: float | None
) -> None:
    main = container("c", script)
    found = script_of(began(main), main, PodSources(executed=tuple(by_exec)))
    assert found is not None and found.understood and (found.ends_after, found.exit_code) == (ends, 3 if ends else 0)


def began(*containers: Obj) -> Obj:
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    statuses = [{"name": one["name"], "restartCount": 0, "state": state} for one in containers]
    return {**pod(*containers), "status": {"containerStatuses": statuses}}


@pytest.mark.parametrize(
    ("script", "other", "more", "ends"),
    [
        ("until [ -f /v/x ]; do sleep 1; done; exit 3", "sleep 3000; touch /v/x; sleep 9", {}, 3001),
        (
            "until [ -f /v/x ]; do sleep 1; done; exit 3",
            "sleep 99",
            {"command": ["sh", "-c", "sleep 7; touch /v/x"]},
            8,
        ),
        (
            "sleep 5; touch /v/x; until [ -f /v/y ]; do sleep 1; done; exit 3",
            "until [ -f /v/x ]; do sleep 1; done; sleep 2; touch /v/y; sleep 9",
            {},
            8,
        ),
    ],
)
def test_loop_of_a_container_goes_on_once_another_one_has_written_a_file(
    script: str, other: str, more: Obj, ends: float
) -> None:
    main = container("c", script)
    beside = container("o", other, lifecycle={"postStart": {"exec": more}} if more else {})
    found = script_of(began(main, beside), main)
    assert found is not None and (found.ends_after, found.exit_code) == (ends, 3)


def test_endless_loop_that_looks_for_a_file_counts_on() -> None:
    main = container("c", "while true; do [ -f /tmp/stop ] && break; i=$((i+1)); echo $i; sleep 1; done")
    found = script_of(began(main), main)
    assert found is not None and found.printed(5000.5, 4999.5) == [(5000.0, "5001")]
