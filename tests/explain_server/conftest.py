"""The explain server that the tests of this folder ask."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from engine_objects import node, pod
from served_explanations import FRONT, NOW, ReviewingApi, Served

from haru.apiserver.auth import Pair
from haru.client.api import ApiClient
from haru.explain_server import (
    ExplainServer,
    Limits,
)
from haru.kube.kinds import known_kind
from haru.secure_serving.options import ServingOptions
from waiting import until


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    api = ReviewingApi()
    client = ApiClient.in_process(api)
    front = {
        "requestheader-client-ca-file": FRONT.certificate.decode(),
        "requestheader-allowed-names": '["proxy"]',
        "requestheader-username-headers": '["X-Remote-User"]',
        "requestheader-group-headers": '["X-Remote-Group"]',
        "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    }
    meta = {"name": "extension-apiserver-authentication", "namespace": "kube-system"}
    await client.create(known_kind("v1", "ConfigMap"), {"metadata": meta, "data": front})
    holder = pod("secret-holder", cpu="8", node="n1", priority=3)
    holder["metadata"]["namespace"] = "tenant-b"
    for obj in (node("n1"), pod("waits", cpu="4"), holder):
        await client.create(known_kind(obj["apiVersion"], obj["kind"]), obj)
    options = ServingOptions(address="127.0.0.1")
    limits = Limits(waiting=2, waiting_per_user=1, review_seconds=0.0)
    server = ExplainServer(client, options, limits, now=lambda: NOW)
    await server.start()
    found = Served(api, f"https://127.0.0.1:{server.port}", tmp_path_factory.mktemp("explain"))
    api.allowed.add(("jane", "default", "pods"))

    async def is_ready() -> bool:
        return (await found.get("/readyz", user="", pair=Pair(b"", b"")))[0] == 200

    await until(is_ready)
    yield found
    await server.stop()
    await client.close()
