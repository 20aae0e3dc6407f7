"""Quotas where several API servers share one etcd: no two of them give out the last place twice."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from api_caller import PODS, Caller, Clock, make_config, pod

from etcd_process import Etcd
from haru.apiserver.server import ApiServer
from haru.storage.etcd import EtcdStore, EtcdStoreOptions

Obj = dict[str, Any]
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
MERGE = "application/merge-patch+json"
PLACES = 9


async def replica(etcd: Etcd, prefix: str) -> Caller:
    store = EtcdStore([etcd.url], EtcdStoreOptions(prefix=prefix, compaction_seconds=0))
    await store.start()
    clock = Clock()
    app = ApiServer(make_config(store, clock))
    await app.start()
    return Caller(app, clock)


async def test_two_servers_never_exceed_a_quota(etcd: Etcd) -> None:
    prefix = f"/tests/{uuid.uuid4()}"
    replicas = [await replica(etcd, prefix) for _ in range(2)]
    first, second = replicas
    counted = {"pods": str(PLACES)}
    await first.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": counted}})
    status = {"status": {"hard": counted, "used": {"pods": "0"}}}
    assert (await first("PATCH", f"{QUOTAS}/q/status", status, type=MERGE)).status == 200

    async def client(number: int) -> int:
        made = 0
        for turn in range(4):
            answer = await replicas[(number + turn) % 2]("POST", PODS, pod(f"p-{number}-{turn}"))
            assert answer.status == 201 or "exceeded quota: q, requested: pods=1" in answer.json["message"], answer.body
            made += answer.status == 201
        return made

    made = sum(await asyncio.gather(*(client(number) for number in range(8))))
    assert made == PLACES
    assert len((await second.get(PODS))["items"]) == PLACES
    assert (await second.get(f"{QUOTAS}/q"))["status"]["used"] == {"pods": str(PLACES)}
    for caller in replicas:
        await caller.app.stop()
        await caller.app.config.store.stop()
