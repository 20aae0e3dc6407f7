"""What a server knows of its peers: who comes and goes by the Leases, how often is asked, what is excluded."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from haru.apiserver.peers import discovery_cache as known_module
from haru.apiserver.peers.client import NoDiscovery, Offer
from haru.apiserver.peers.counts import PeerMetrics
from haru.apiserver.peers.discovery_cache import PeerDiscoveryCache
from haru.apiserver.peers.endpoints import PeerEndpoints, Unresolved
from haru.apiserver.peers.excluded import GRACE, ExcludedVersions
from haru.apiserver.peers.identity import PREFIX, Identity
from haru.apiserver.registry.loopback import Loopback
from haru.apiserver.server import ApiServer, ServerConfig
from haru.storage import Delete, Put, SqliteStore
from waiting import until

Obj = dict[str, Any]
NOW = datetime(2026, 11, 22, tzinfo=UTC)


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
async def loopback() -> AsyncIterator[Loopback]:
    store = SqliteStore(":memory:")
    await store.start()
    server = ApiServer(ServerConfig(store, clock=Clock()))
    await server.start()
    yield server.components.loopback
    await server.stop()
    await store.stop()


def definition(*versions: str) -> Obj:
    names = {"plural": "wagons", "singular": "wagon", "kind": "Wagon", "listKind": "WagonList"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    told = [{"name": v, "served": True, "storage": v == versions[0], "schema": schema} for v in versions]
    spec = {"group": "train.example", "scope": "Cluster", "names": names, "versions": told}
    kind = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    return {**kind, "metadata": {"name": "wagons.train.example"}, "spec": spec}


async def test_custom_versions_stay_excluded_for_a_grace_period(loopback: Loopback) -> None:
    excluded = ExcludedVersions(loopback.objects)
    await excluded.start()
    clock = loopback.objects.clock
    assert isinstance(clock, Clock) and await excluded.now() == set()
    await loopback.ensure(definition("v1", "v2"))
    both = {("train.example", "v1"), ("train.example", "v2")}
    assert await excluded.now() == both
    await loopback.objects.store.transact(Delete("customresourcedefinitions.apiextensions.k8s.io/wagons.train.example"))
    assert await excluded.now() == both
    clock.now += GRACE - timedelta(seconds=1)
    assert await excluded.now() == both
    clock.now += timedelta(seconds=1)
    assert await excluded.now() == set()
    # One that comes back is excluded as long as it is there.
    await loopback.ensure(definition("v1"))
    clock.now += 3 * GRACE
    assert await excluded.now() == {("train.example", "v1")}


OFFER = Offer(frozenset({("a.b", "v1", "widgets")}), [])


class Peer:
    """A peer whose answers are given; `asked` counts the questions."""

    def __init__(self, loopback: Loopback, *answers: Offer | Exception) -> None:
        self.answers, self.asked = list(answers), 0
        self.counts = PeerMetrics()
        self.known = PeerDiscoveryCache(loopback.objects, "apiserver-own", self.resolve, self.ask, self.counts)

    async def resolve(self, server: str) -> tuple[str, int]:
        if self.answers and isinstance(self.answers[0], Unresolved):
            raise self.answers.pop(0)
        return "192.0.2.1", 6443

    async def ask(self, address: tuple[str, int]) -> Offer:
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else OFFER
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def learned(self) -> None:
        await asyncio.gather(*self.known._asking.values())


async def arrive(loopback: Loopback, name: str, hostname: str = "other") -> Identity:
    identity = Identity(loopback, hostname)
    identity.name, identity.holder = name, f"{name}_{hostname}"
    await identity.claim("192.0.2.1:6443")
    return identity


async def test_peer_is_asked_again_until_endpoint_is_known(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_module, "FIRST_PAUSE_SECONDS", 0.0)
    peer = Peer(loopback, Unresolved("no"), Unresolved("no"), NoDiscovery("refused"), OFFER)
    await arrive(loopback, "apiserver-other")
    await peer.known.start()
    await peer.learned()
    assert peer.known.serving(("a.b", "v1", "widgets"), set()) == ["apiserver-other"]
    assert peer.known.serving(("a.b", "v1", "widgets"), {("a.b", "v1")}) == []
    assert peer.known.serving(("a.b", "v1", "others"), set()) == []
    lines = peer.counts.lines()
    assert 'apiserver_peer_discovery_sync_errors_total{type="hostport_resolution"} 2' in lines
    assert 'apiserver_peer_discovery_sync_errors_total{type="fetch_discovery"} 1' in lines
    await peer.known.stop()


async def test_unresponsive_peer_is_given_up_until_restart(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_module, "FIRST_PAUSE_SECONDS", 0.0)
    peer = Peer(loopback, *(NoDiscovery("refused") for _ in range(20)))
    first = await arrive(loopback, "apiserver-other", "first")
    await peer.known.start()
    following = asyncio.create_task(peer.known.follow())
    await peer.learned()
    assert peer.asked == 20 and not peer.known.documents(set())
    await first.renew()  # says nothing new
    await asyncio.sleep(0)
    await arrive(loopback, "apiserver-other", "second")
    async with asyncio.timeout(30):
        while not peer.known.documents(set()):  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.005)
    assert peer.asked == 21
    await peer.known.stop()
    await asyncio.wait_for(following, 30)


async def test_foreign_or_expired_leases_are_ignored(loopback: Loopback) -> None:
    peer = Peer(loopback)
    await arrive(loopback, "apiserver-own")
    stranger = {"namespace": "kube-system", "name": "kube-scheduler"}
    spec = {"holderIdentity": "x"}
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": stranger, "spec": spec}
    await loopback.ensure(lease)
    gone = await arrive(loopback, "apiserver-gone")
    clock = loopback.objects.clock
    assert isinstance(clock, Clock)
    clock.now += timedelta(seconds=3601)
    assert await gone.collect() == 2  # both have run out
    await arrive(loopback, "apiserver-late")
    clock.now += timedelta(seconds=3601)
    await peer.known.start()
    assert not peer.known._asking
    await peer.known.stop()


async def test_two_servers_with_one_hostname_are_logged(loopback: Loopback, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Identity(loopback, "node-1"), Identity(loopback, "node-1")
    await first.claim("192.0.2.1:6443")
    await Identity(loopback, "node-1").claim("192.0.2.1:6443")  # the same place: a restart
    assert not caplog.records
    await second.claim("192.0.2.1:7443")
    assert "another API server at 192.0.2.1:6443 has this one's hostname node-1" in caplog.text
    await first.withdraw()  # that is not the first one's Lease any more
    assert await loopback.objects.store.get(f"leases.coordination.k8s.io/kube-system/{second.name}") is not None
    await second.withdraw()
    assert await loopback.objects.store.get(f"leases.coordination.k8s.io/kube-system/{second.name}") is None


@pytest.mark.parametrize(
    "value", [b"{}", b'{"subsets":[]}', b'{"subsets":[{"addresses":[{"ip":"evil.example"}],"ports":[]}]}']
)
async def test_malformed_peer_endpoint_is_unresolved(loopback: Loopback, value: bytes) -> None:
    places = PeerEndpoints(loopback.objects, "own")
    with pytest.raises(Unresolved, match="no endpoint of the API server x is known"):
        await places.resolve("x")
    await loopback.objects.store.transact(Put("peerserverleases/x", value))
    with pytest.raises(Unresolved, match="malformed"):
        await places.resolve("x")


async def test_lagging_lease_watch_reads_leases_again(loopback: Loopback) -> None:
    peer = Peer(loopback)
    gone = await arrive(loopback, "apiserver-gone")
    await peer.known.start()
    await peer.learned()
    assert peer.known.documents(set()).keys() == {"apiserver-gone"}
    await loopback.objects.store.transact(Delete(PREFIX + gone.name))
    await arrive(loopback, "apiserver-new")
    await loopback.objects.store.compact(loopback.objects.store.revision)
    following = asyncio.create_task(peer.known.follow())
    await until(lambda: peer.known.documents(set()).keys() == {"apiserver-new"})
    await arrive(loopback, "apiserver-newer")
    await until(lambda: len(peer.known.documents(set())) == 2)
    generation = peer.known.generation
    assert generation == 4  # learned, forgotten, learned twice
    await peer.known.stop()
    await asyncio.wait_for(following, 30)


async def test_peer_with_expired_lease_is_forgotten(loopback: Loopback, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_module, "_LOOK_SECONDS", 0.01)
    peer = Peer(loopback)
    await arrive(loopback, "apiserver-other")
    await peer.known.start()
    await peer.learned()
    following = asyncio.create_task(peer.known.follow())
    assert peer.known.serving(("a.b", "v1", "widgets"), set()) == ["apiserver-other"]
    clock = loopback.objects.clock
    assert isinstance(clock, Clock)
    clock.now += timedelta(seconds=3601)
    await until(lambda: not peer.known.serving(("a.b", "v1", "widgets"), set()))
    await peer.known.stop()
    await asyncio.wait_for(following, 30)


async def test_versions_of_extension_servers_are_excluded(loopback: Loopback) -> None:
    excluded = ExcludedVersions(loopback.objects)
    await excluded.start()
    spec = {"group": "far.example", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
    kind = {"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1.far.example"}}
    await loopback.ensure({**kind, "spec": {**spec, "service": {"namespace": "default", "name": "far"}}})
    assert await excluded.now() == {("far.example", "v1")}
