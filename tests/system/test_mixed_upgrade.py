"""An upgrade as it happens: servers of two versions under a client, one after the other ended and started again."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mixed_world import ADMIN, GATES, World, acquainted
from upgrade_world import GIVE_UP_SECONDS, OBJECTS, Everything, Upgrade

from etcd_process import Etcd
from haru.apiserver.auth import certificates
from haru.files import write_whole
from haru.kube.kinds import group_versions
from haru_process import Api, free_port, until

SEED = int(os.environ.get("HARU_SEED", "0")) or 20261122
SECONDS = 120.0
"""Of the long run."""


@pytest.fixture
def world(etcd_binary: str, tmp_path: Path) -> Iterator[Upgrade]:
    etcd = Etcd(etcd_binary, tmp_path)
    etcd.start()
    found = Upgrade(tmp_path, etcd, {"a": "1.35", "b": "1.36", "c": "1.36"})
    try:
        for name in found.ports:
            found.start(name, wait=False)
        for name in found.ports:
            found.wait(name)
        until("the older server knows of the newer ones", lambda: knows(found), GIVE_UP_SECONDS)
        yield found
        found.stop()
    finally:
        for process in found.processes.values():
            process.stop(signal.SIGKILL)
        etcd.stop()


def knows(world: Upgrade) -> bool:
    """Whether the older server has learned what both newer ones serve."""
    api = world.api("a")
    try:
        _, text = api.call("GET", "/metrics")
        lines = [line for line in text.splitlines() if line.startswith("apiserver_rerouted_request_total{")]
        discovery = [line for line in lines if 'group="",resource="",version=""' in line and 'code="200"' in line]
        # Two questions to each of two peers.
        return bool(discovery) and int(discovery[0].rpartition(" ")[2]) >= 4
    finally:
        api.close()


def objects() -> list[dict[str, object]]:
    """The objects of the client; a bundle of certificates is made for the run."""
    from datetime import UTC, datetime

    bundle = certificates.new_authority(datetime.now(UTC)).certificate.decode()
    return [{**obj, "spec": {"trustBundle": bundle}} if obj["kind"] == "ClusterTrustBundle" else obj for obj in OBJECTS]


def test_test_client_writes_to_every_stored_group() -> None:
    kept = {group for group, _ in group_versions()}
    # Reviews keep nothing; definitions and both groups' events have tests of their own.
    kept -= {"authentication.k8s.io", "authorization.k8s.io", "apiextensions.k8s.io", "events.k8s.io"}
    kept -= {"apiregistration.k8s.io"}  # kept by the servers themselves
    assert kept == {obj["apiVersion"].rpartition("/")[0] for obj in OBJECTS}


async def test_server_restart_during_requests_of_all_kinds_loses_none(etcd: Etcd, tmp_path: Path) -> None:
    world = World(tmp_path, etcd)
    world.ports = {name: free_port() for name in "abc"}
    authority = world.authorities.serving.certificate
    for name, port in world.ports.items():
        config = certificates.kubeconfig(f"https://127.0.0.1:{port}", authority, ADMIN)
        write_whole(tmp_path / f"{name}.kubeconfig", config)
    client = Everything({name: Api(tmp_path / f"{name}.kubeconfig") for name in world.ports}, objects(), SEED)
    try:
        gates = {minor: f"{text},ClusterTrustBundle=true" for minor, text in GATES.items()}
        old = await world.start("a", 35, gates[35])
        restarted = await world.start("b", gates=gates[36])
        await acquainted(old, restarted, await world.start("c", gates=gates[36]))
        client.start()
        await within("a round of everything", lambda: client.rounds >= 1 or client.problem)
        await world.stop(restarted)
        restarted = await world.start("b", gates=gates[36])
        rounds = client.rounds
        await within("a round after the restart", lambda: client.rounds > rounds or client.problem)
        await asyncio.to_thread(client.end)
        assert client.rounds >= 2 and client.codes[201] >= 2 * len(OBJECTS) - client.retries
        # The older server has asked the newer ones, for whatever only they serve.
        assert await old.metric('apiserver_rerouted_request_total{code="201",group="scheduling.k8s.io",') >= 1
    finally:
        await world.close()


async def within(what: str, holds: Callable[[], object]) -> None:
    """Wait, bounded, for what the client does in its thread."""
    await asyncio.to_thread(until, what, holds, GIVE_UP_SECONDS)


@pytest.mark.nightly
def test_rolling_upgrade_with_kills_loses_no_request(world: Upgrade) -> None:
    clients = [Everything(world.apis(), objects_named(lane), SEED + lane) for lane in range(2)]
    for client in clients:
        client.start()
    deadline, turn = time.monotonic() + SECONDS, 0
    while time.monotonic() < deadline and not any(client.problem for client in clients):
        # Orderly and not, in turn; one of the newer ones is always there.
        world.restart("bc"[turn % 2], signal.SIGKILL if turn % 3 == 0 else signal.SIGTERM)
        rounds = [client.rounds for client in clients]
        until(
            "a round",
            lambda rounds=rounds: any(
                client.problem or client.rounds > before for client, before in zip(clients, rounds, strict=True)
            ),
            GIVE_UP_SECONDS,
        )
        turn += 1
    # The last one of the older version becomes one of the newer.
    for client in clients:
        client.end()
    world.restart("a", version="1.36")
    api = world.api("a")
    assert api.call("GET", "/version")[1]["emulationMinor"] == "36"
    assert api.call("GET", "/apis/scheduling.k8s.io/v1alpha2")[0] == 200
    api.close()
    assert turn >= 3 and not any("Traceback" in world.log(name) for name in world.ports)


def objects_named(lane: int) -> list[dict[str, object]]:
    """The objects of one client of several."""
    return [{**obj, "metadata": {"name": f"{obj['metadata']['name']}-{lane}"}} for obj in objects()]  # type: ignore[index]
