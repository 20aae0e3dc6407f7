"""A store that is slow for a moment does not end a server that starts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from api_caller import Caller, Clock, make_config

from haru.apiserver import start_retry
from haru.apiserver.server import ApiServer
from haru.storage import Event, SqliteStore, StoreError

FEW, SOME = 3, 20


class Slow(StoreError):
    passing = True


class FailingStore(SqliteStore):
    """Fails at some of its transactions, in turn after and before it makes them."""

    def __init__(self, error: type[StoreError]) -> None:
        super().__init__(":memory:")
        self._error = error
        self.fails_at: set[int] = set()
        self.asked = 0

    async def transact(self, *operations: Any) -> Sequence[Event]:
        self.asked += 1
        fails = self.asked in self.fails_at
        if fails and self.asked % 2:
            raise self._error("too slow")
        events = await super().transact(*operations)
        if fails:
            raise self._error("too slow")
        return events


async def start(error: type[StoreError], failing: set[int]) -> tuple[FailingStore, ApiServer]:
    store = FailingStore(error)
    store.fails_at = failing
    await store.start()
    server = ApiServer(make_config(store, Clock()))
    await server.start()
    store.fails_at = {store.asked + 1, store.asked + 2}
    await server.serve_on(("127.0.0.1", 6443))
    return store, server


async def test_server_starts_although_the_store_fails_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_retry, "PAUSE_SECONDS", 0.0)
    store, server = await start(Slow, {FEW, SOME, SOME + 1})
    try:
        caller = Caller(server, Clock())
        names = {item["metadata"]["name"] for item in (await caller.get("/api/v1/namespaces"))["items"]}
        assert names == {"default", "kube-system", "kube-public", "kube-node-lease"}
        assert (await caller.get("/api/v1/namespaces/default/services/kubernetes"))["spec"]["ports"]
        assert (await caller.get("/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin"))["rules"]
    finally:
        await server.stop()
        await store.stop()


@pytest.mark.parametrize(("error", "patience"), [(StoreError, 30.0), (Slow, -1.0)], ids=["for good", "for long"])
async def test_server_does_not_start_where_the_store_fails(
    monkeypatch: pytest.MonkeyPatch, error: type[StoreError], patience: float
) -> None:
    monkeypatch.setattr(start_retry, "PATIENCE_SECONDS", patience)
    with pytest.raises(StoreError, match="too slow"):
        await start(error, {FEW})
