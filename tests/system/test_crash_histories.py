"""Killed under load again and again: what all clients saw is one history, and watches resume without gap or duplicate.

Over both stores. The histories of each object are linearizable across all kills, what was acknowledged or shown is what
the watch saw at that revision, and what the watch makes of the changes is what is there in the end.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_world import Client, OnEtcd, OnSqlite, outcome
from replica_world import Resumed

from haru_process import path_of, until
from linearizable import violation

# A server that dies within a TLS handshake leaves a socket that http.client does not close.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
World = OnSqlite | OnEtcd
SEED = int(os.environ.get("HARU_SEED", "0")) or 20261122
CLIENTS, NAMES = 4, [f"register-{number}" for number in range(5)]


@pytest.fixture(params=["sqlite", "etcd"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    binary = request.getfixturevalue("etcd_binary") if request.param == "etcd" else ""
    made: World = OnEtcd(tmp_path, binary) if binary else OnSqlite(tmp_path)
    yield made
    made.stop()


@pytest.mark.parametrize("kills", [2, pytest.param(100, marks=pytest.mark.nightly)])
def test_history_of_reads_and_writes_is_linearizable_across_kills(world: World, kills: int) -> None:
    rng = random.Random(SEED)
    print(f"HARU_SEED={SEED}")
    code, listed = world.api("a").call("GET", path_of("configmaps", "default"))
    assert code == 200
    watch = Resumed(world, "a", int(listed["metadata"]["resourceVersion"]), "configmaps")
    clients: list[Client] = []
    for number in range(kills + 1):
        active = [Client(world, NAMES, lane, SEED + number) for lane in range(CLIENTS)]
        clients += active
        until("the clients get answers", lambda found=active: all(len(c.heard) > 5 for c in found), 60)  # type: ignore[misc]
        time.sleep(rng.uniform(0.0, 0.3))
        if number == kills:
            for client in active:
                client.end()
        else:
            world.kill()
            for client in active:
                client.end()
            world.restart()
        for client in active:
            client.over()
    check_histories(clients)
    code, listed = world.api("a").call("GET", path_of("configmaps", "default"))
    assert code == 200
    watch.finish(max(revision for client in clients for revision in client.revisions))
    check_watch(clients, watch, {item["metadata"]["name"]: item["data"]["value"] for item in listed["items"]})
    assert watch.resumed


def check_histories(clients: list[Client]) -> None:
    answered = 0
    for name in NAMES:
        history = [operation for client in clients for heard, operation in client.heard if heard == name]
        answered += sum(operation.certain for operation in history)
        found = violation(history, outcome, None)
        assert found is None, f"{name}: no order explains {found}"
    print(f"{answered} requests were answered, {sum(len(c.heard) for c in clients) - answered} were not")


def check_watch(clients: list[Client], watch: Resumed, stored: dict[str, str]) -> None:
    told: dict[int, tuple[str, str]] = {}
    model: dict[str, str] = {}
    last = 0
    for revision, type_, name in watch.seen:
        assert revision > last, f"{type_} {name} at {revision} after {last}"
        assert (type_ == "ADDED") == (name not in model), f"{type_} {name} at {revision}"
        last = revision
        if type_ == "DELETED":
            del model[name]
        else:
            model[name] = watch.data[revision]["value"]
            told[revision] = (name, model[name])
    assert model == stored
    for client in clients:
        missing = {r: seen for r, seen in client.revisions.items() if told.get(r) != seen}
        assert not missing, f"the watch saw other things at {missing}"
