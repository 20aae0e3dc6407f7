"""Pods of simulated nodes whose containers ask the network: they go on when Services and their endpoints are there."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fleet_stage import Stage

from haru.kube.errors import StatusError
from haru.kube.kinds import known_kind
from haru.simulated_nodes.network import ENDPOINT_SLICES, SERVICES
from haru.simulated_nodes.pod_workers import PODS

Obj = dict[str, Any]
CONFIG_MAPS = known_kind("v1", "ConfigMap")


def shell(name: str, text: str, **more: Any) -> Obj:
    return {"name": name, "image": "busybox", "command": ["sh", "-c", text], **more}


def service(name: str, created: str = "2026-01-01T00:00:00Z") -> Obj:
    return {
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {"clusterIP": "10.96.0.9", "ports": [{"port": 80}]},
    }


def endpoints(of: str, pod: str, *, ready: bool = True) -> Obj:
    endpoint = {"addresses": ["10.0.0.5"], "conditions": {"ready": ready}, "targetRef": {"kind": "Pod", "name": pod}}
    labels = {"kubernetes.io/service-name": of}
    return {"metadata": {"name": f"{of}-x", "labels": labels}, "ports": [{"port": 8080}], "endpoints": [endpoint]}


async def until_waiting(stage: Stage, name: str) -> None:
    await stage.client.until(
        lambda: (p := stage.stored(name)) and p["status"].get("initContainerStatuses", [{}])[0].get("started")
    )


async def test_init_container_waits_for_a_service_and_the_pod_runs_once_it_exists() -> None:
    stage = Stage("cpu:1")
    init = [shell("one", "until nslookup db.default.svc.cluster.local; do echo waiting for db; sleep 0.01; done")]
    async with stage.running():
        await stage.pod("p", node="cpu-0", initContainers=init, containers=[{"name": "c", "image": "i"}])
        await until_waiting(stage, "p")
        stage.clock.now += timedelta(seconds=5)
        await stage.client.create(SERVICES, service("db", "2026-01-01T00:00:05Z"))
        await stage.client.until(lambda: stage.fleet and stage.fleet.pods.network.informers[0].store)
        stage.clock.now += timedelta(seconds=5)
        running = await stage.phase("p", "Running")
    ended = running["status"]["initContainerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["finishedAt"]) == (0, "2026-01-01T00:00:05Z")


async def test_container_that_calls_a_service_succeeds_once_an_endpoint_is_ready() -> None:
    stage = Stage("cpu:1")
    job = shell("c", "until wget -qO- http://web; do sleep 0.01; done")
    async with stage.running():
        await stage.pod("back", node="cpu-0", containers=[{"name": "c", "image": "i"}])
        await stage.phase("back", "Running")
        await stage.client.create(SERVICES, service("web"))
        made = await stage.client.create(ENDPOINT_SLICES, endpoints("web", "back", ready=False))
        await stage.pod("caller", node="cpu-0", containers=[job], restartPolicy="Never")
        await stage.phase("caller", "Running")
        stage.clock.now += timedelta(seconds=5)
        await stage.client.update(ENDPOINT_SLICES, {**made, "endpoints": endpoints("web", "back")["endpoints"]})
        await stage.client.until(lambda: stage.fleet and stage.fleet.pods.network.informers[1].store)
        stage.clock.now += timedelta(seconds=5)
        await stage.phase("caller", "Succeeded")


async def test_pod_is_looked_at_again_only_for_services_that_its_containers_may_still_ask_for() -> None:
    stage = Stage("cpu:1")
    init = [shell("i", "nslookup db || true")]
    async with stage.running() as fleet:
        await stage.pod("done", node="cpu-0", initContainers=init, containers=[{"name": "c", "image": "i"}])
        await until_waiting(stage, "done")
        stage.clock.now += timedelta(seconds=1)
        await stage.phase("done", "Running")
        await stage.pod("asks", node="cpu-0", containers=[shell("c", "nc -z db 1; sleep 600")])
        asks = await stage.phase("asks", "Running")
        network = fleet.pods.network
        assert network.askers_of("default/db") == {asks["metadata"]["uid"]}
        assert network.askers_of("default/other") == set()
        await stage.client.delete(PODS, "asks", "default", grace_period_seconds=0)
        await stage.client.until(lambda: not network.askers_of("default/db"))


async def test_container_that_calls_nobody_fails_as_a_real_one() -> None:
    stage = Stage("cpu:1")
    async with stage.running():
        await stage.pod("p", node="cpu-0", containers=[shell("c", "curl -s http://web")], restartPolicy="Never")
        stage.clock.now += timedelta(seconds=1)
        await stage.phase("p", "Running")
        stage.clock.now += timedelta(seconds=1)
        failed = await stage.phase("p", "Failed")
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 6


async def test_services_are_watched_only_once_a_container_asks() -> None:
    stage = Stage("cpu:1")
    async with stage.running() as fleet:
        await stage.pod("p", node="cpu-0", containers=[shell("c", "echo db; sleep 60")])
        await stage.phase("p", "Running")
        assert not any(informer.has_synced for informer in fleet.pods.network.informers)
        await stage.pod("q", node="cpu-0", containers=[shell("c", "nc -z db 1; sleep 60")])
        await stage.phase("q", "Running")
        assert all(informer.has_synced for informer in fleet.pods.network.informers)


async def test_fleet_that_may_not_watch_services_starts_the_pod_all_the_same() -> None:
    stage = Stage("cpu:1")
    pages = stage.client.pages

    def refusing(kind: Any, *selection: Any, **options: Any) -> Any:
        if kind is SERVICES:
            raise StatusError(403, "Forbidden", "services is forbidden")
        return pages(kind, *selection, **options)

    stage.client.pages = refusing  # type: ignore[method-assign]
    async with stage.running():
        init = [shell("i", "until nslookup db; do sleep 1; done")]
        await stage.pod("p", node="cpu-0", initContainers=init, containers=[{"name": "c", "image": "i"}])
        await stage.phase("p", "Running")
