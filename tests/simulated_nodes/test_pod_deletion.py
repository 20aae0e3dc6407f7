"""Deleted pods of simulated nodes: their containers end one by one within the grace period, then the pod goes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from fleet_stage import Stage

from haru.kube.meta import get_condition
from haru.simulated_nodes.pod_workers import PODS
from haru.simulated_nodes.sources import CONFIG_MAPS
from haru.simulated_nodes.stops import Stop, stops_of, takes_time
from waiting import until

Obj = dict[str, Any]


def pod(*containers: Obj, init: tuple[Obj, ...] = (), annotations: dict[str, str] | None = None) -> Obj:
    def running(some: tuple[Obj, ...]) -> list[Obj]:
        return [{"name": one["name"], "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}} for one in some]

    return {
        "metadata": {"name": "p", "uid": "u", "annotations": annotations or {}},
        "spec": {"containers": list(containers), "initContainers": list(init)},
        "status": {"containerStatuses": running(containers), "initContainerStatuses": running(init)},
    }


def hook(**action: Any) -> Obj:
    return {"lifecycle": {"preStop": action}}


SLOW = "stop-seconds.simulated.haru.dev/c"


@pytest.mark.parametrize(
    ("container", "annotations", "stop"),
    [
        ({}, {}, Stop(0, 143)),
        (hook(sleep={"seconds": 4}), {}, Stop(4, 143)),
        (hook(exec={"command": ["sleep", "5"]}), {}, Stop(5, 143)),
        (hook(exec={"command": ["/drain"]}), {}, Stop(0, 143)),
        (hook(sleep={"seconds": 60}), {}, Stop(30, 143)),
        ({}, {SLOW: "7"}, Stop(7, 143)),
        ({}, {SLOW: "31"}, Stop(30, 137)),
        (hook(sleep={"seconds": 29.5}), {SLOW: "9"}, Stop(31.5, 137)),
    ],
)
def test_container_ends_after_its_hook_and_its_own_time(container: Obj, annotations: Obj, stop: Stop) -> None:
    one = pod({"name": "c", **container}, annotations=annotations)
    assert stops_of(one, 30.0) == {"c": stop}
    assert takes_time(one) == bool(container or annotations)


TERM = "_term(){\n\tsleep 5\n\texit 3\n}\ntrap _term SIGTERM\nwhile true; do\n\tsleep 1\ndone"


@pytest.mark.parametrize(
    ("script", "more", "stop"),
    [
        (TERM, {}, Stop(5, 3)),
        ("trap 'echo saving; sleep 7; exit 0' TERM; python train.py & wait", {}, Stop(7, 0)),
        ("trap 'sleep 2' TERM INT\nsleep infinity & wait", {}, Stop(2, 143)),
        ("save() { sleep 4; exit 0; }; trap save 15; sleep infinity & wait", hook(sleep={"seconds": 3}), Stop(7, 0)),
        ("trap 'sleep 60; exit 0' TERM; sleep infinity & wait", {}, Stop(30, 137)),
        ("trap '' TERM; sleep infinity", {}, Stop(30, 137)),
        ("trap 'exit 9' INT; sleep infinity", {}, Stop(0, 143)),
        ("trap 'exit 9' INT; sleep infinity", {"lifecycle": {"stopSignal": "SIGINT"}}, Stop(0, 9)),
        ("trap 'kill -TERM $child; wait $child' TERM; ./serve & child=$!; wait", {}, Stop(0, 143)),
        ("trap 'kill $P; wait $P; sleep 3; exit 5' TERM; sleep infinity & P=$!; wait $P", {}, Stop(3, 5)),
        ("trap 'kill -TERM \"${P}\"; exit 5' TERM\nsleep 9d &\nP=$!\nwait", {}, Stop(0, 5)),
        ("trap : TERM INT; sleep infinity & wait", {}, Stop(0, 143)),
        ("trap 'exit 9' TERM; trap - TERM; sleep infinity", {}, Stop(0, 143)),
    ],
)
def test_container_ends_as_the_trap_of_its_shell_says(script: str, more: Obj, stop: Stop) -> None:
    one = pod({"name": "c", "command": ["sh", "-c", script], **more})
    assert stops_of(one, 30.0) == {"c": stop}
    assert takes_time(one) or not stop.after


def test_sidecars_end_after_the_others_the_last_first() -> None:
    every = {"simulated.haru.dev/stop-seconds": "2"}
    sidecars = tuple({"name": name, "restartPolicy": "Always"} for name in ("first", "second"))
    stops = stops_of(pod({"name": "c"}, init=sidecars, annotations=every), 30.0)
    assert {name: stop.after for name, stop in stops.items()} == {"c": 2, "second": 4, "first": 6}


async def test_slow_container_is_told_as_ended_before_the_pod_goes() -> None:
    stage = Stage("cpu:1")
    containers = [{"name": "quick", "image": "i"}, {"name": "slow", "image": "i"}]
    async with stage.running() as fleet:
        annotations = {"stop-seconds.simulated.haru.dev/slow": "10"}
        await stage.pod("p", node="cpu-0", containers=containers, annotations=annotations)
        await stage.phase("p", "Running")
        await stage.client.delete(PODS, "p", "default")

        def states() -> list[list[str]]:
            return [list(one["state"]) for one in (stage.stored("p") or {})["status"]["containerStatuses"]]

        await stage.client.until(lambda: states() == [["terminated"], ["running"]])
        assert (stage.stored("p") or {})["status"]["phase"] == "Running"
        assert get_condition(stage.stored("p") or {}, "Ready")["status"] == "False"  # type: ignore[index]
        stage.clock.now += timedelta(seconds=10)
        fleet.pods.sync_node("cpu-0")
        await stage.client.until(lambda: stage.stored("p") is None)
    last = [one for kind, plural, one in stage.client.history if plural == "pods" and kind == "MODIFIED"][-1]
    ended = [one["state"]["terminated"] for one in last["status"]["containerStatuses"]]
    assert last["status"]["phase"] == "Failed"
    assert [one["finishedAt"][-3:] for one in ended] == ["00Z", "10Z"]
    assert stage.reasons("p").count("Killing") == 2


async def test_stop_is_told_of_sidecars_too_and_of_a_hook_that_fails() -> None:
    stage = Stage("cpu:1")
    hook_ = {"preStop": {"exec": {"command": ["false"]}}}
    script = "trap 'echo bye > /dev/termination-log; exit 0' TERM; sleep infinity & wait"
    one = {"name": "c", "image": "i", "command": ["sh", "-c", script], "lifecycle": hook_}
    side = {"name": "s", "image": "i", "restartPolicy": "Always"}
    async with stage.running():
        await stage.pod("p", node="cpu-0", containers=[one], initContainers=[side])
        await stage.phase("p", "Running")
        await stage.client.delete(PODS, "p", "default")
        await stage.client.until(lambda: stage.stored("p") is None)
    told = [(reason, text) for name, reason, text in stage.recorder.events if name == "p"]
    assert ("Killing", "Stopping container s") in told and ("FailedPreStopHook", "PreStopHook failed") in told
    last = [one for kind, plural, one in stage.client.history if plural == "pods" and kind == "MODIFIED"][-1]
    assert last["status"]["containerStatuses"][0]["state"]["terminated"]["message"] == "bye\n"


async def test_deleted_pod_keeps_the_ends_of_containers_that_ended_before() -> None:
    stage = Stage("cpu:1")
    containers = [{"name": "done", "image": "i", "command": ["true"]}, {"name": "c", "image": "i"}]
    async with stage.running():
        await stage.pod("p", node="cpu-0", containers=containers, restartPolicy="Never")
        await stage.phase("p", "Running")
        await stage.client.delete(PODS, "p", "default")
        await stage.client.until(lambda: stage.stored("p") is None)
    last = [one for kind, plural, one in stage.client.history if plural == "pods" and kind == "MODIFIED"][-1]
    codes = [one["state"]["terminated"]["exitCode"] for one in last["status"]["containerStatuses"]]
    assert codes == [143, 0]


async def test_status_says_which_generation_of_the_spec_was_seen() -> None:
    stage = Stage("cpu:1")
    async with stage.running():
        await stage.pod("p", node="cpu-0")
        first = await stage.phase("p", "Running")
        assert first["status"]["observedGeneration"] == 1
        seen = {one["type"]: one.get("observedGeneration") for one in first["status"]["conditions"]}
        assert (seen["Ready"], seen["PodScheduled"]) == (1, 1)
        changed = {"metadata": {"generation": 2}, "spec": {"tolerations": [{"operator": "Exists"}]}}
        await stage.client.patch(PODS, "p", changed, "default")
        await stage.client.until(lambda: (stage.stored("p") or {})["status"]["observedGeneration"] == 2)
        conditions = (stage.stored("p") or {})["status"]["conditions"]
    assert {one["type"] for one in conditions if one.get("observedGeneration") == 2} >= {"Ready", "PodScheduled"}
    assert all(one["status"] == "True" for one in conditions)


async def test_pod_that_wants_a_taken_port_of_the_node_fails() -> None:
    stage = Stage("cpu:1")
    containers = [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]
    async with stage.running():
        await stage.pod("first", node="cpu-0", containers=containers)
        await stage.phase("first", "Running")
        await stage.pod("second", node="cpu-0", containers=containers)
        failed = await stage.phase("second", "Failed")
    assert failed["status"]["reason"] == "NodePorts" == stage.reasons("second")[0]


async def test_nothing_is_kept_of_a_pod_that_is_force_deleted_while_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage("dgx-h100:1")
    reading, go_on = asyncio.Event(), asyncio.Event()
    real = stage.client.get

    async def slow(kind: Any, name: str, namespace: str = "", subresource: str = "") -> Obj:
        if name == "settings":
            reading.set()
            await go_on.wait()
        return await real(kind, name, namespace, subresource)

    monkeypatch.setattr(stage.client, "get", slow)
    await stage.client.create(CONFIG_MAPS, {"metadata": {"name": "settings"}, "data": {"a": "b"}})
    async with stage.running() as fleet:
        workers = fleet.pods
        source = {"envFrom": [{"configMapRef": {"name": "settings"}}]}
        claims = [{"name": "gpu", "resourceClaimName": "c"}]
        made = await stage.pod("p", containers=[{"name": "c", "image": "i", **source}], resourceClaims=claims)
        await stage.claim("c", made)
        await asyncio.wait_for(reading.wait(), 60)
        await stage.client.delete(PODS, "p", "default", grace_period_seconds=0)
        await until(lambda: not workers._pods.store)
        go_on.set()
        uid = made["metadata"]["uid"]
        await stage.pod("next")
        await stage.phase("next", "Running")
        kept = (workers._admitted, workers._began, workers._runs, workers._sources._read, workers._addresses._by_uid)
        assert not [each for each in kept if uid in each]
        assert len(workers.prepared) == 0
