"""What a new CustomResourceDefinition takes the API server does not depend on how many there are already."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import pytest
from api_caller import Caller, Clock, make_config
from counted_calls import SIZES, Steps, assert_all_flat

from haru.apiserver.request import http
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore

Obj = dict[str, Any]
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
OF_ONE_OPERATOR = "own.example.com"
BACKGROUND = 0.15
"""The APIServices follow in the background."""


def definition(group: str, number: int, version: str = "v1") -> Obj:
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}}
    names = {"plural": f"things{number}", "kind": f"Thing{number}", "shortNames": [f"t{number}"]}
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": versions}
    return {"metadata": {"name": f"things{number}.{group}"}, "spec": spec}


async def costs_beside(size: int) -> dict[str, Steps]:
    """Half of what is there is in one group, the rest in groups of their own."""
    server = ApiServer(make_config(SqliteStore(":memory:"), Clock()))
    await server.start()
    call, costs = Caller(server, Clock()), dict[str, Steps]()
    for number in range(size):
        await call.create(DEFINITIONS, definition(f"g{number}.example.com" if number % 2 else OF_ONE_OPERATOR, number))
    await asyncio.sleep(2 * BACKGROUND)
    # Ids of requests are made many at once, which would count for whichever size needs the first of them.
    http._ids._ready.extend(str(uuid4()) for _ in range(5_000))

    with Steps() as costs["a new one"]:
        await call.create(DEFINITIONS, definition(OF_ONE_OPERATOR, size, "v2"))
        first = {"apiVersion": f"{OF_ONE_OPERATOR}/v2", "kind": f"Thing{size}", "metadata": {"name": "first"}}
        await call.create(f"/apis/{OF_ONE_OPERATOR}/v2/things{size}", first)
        await asyncio.sleep(BACKGROUND)
    assert (await call("GET", f"{SERVICES}/v2.{OF_ONE_OPERATOR}")).status == 200

    changed = definition(OF_ONE_OPERATOR, size, "v2")
    changed["spec"]["names"]["categories"] = ["all"]
    with Steps() as costs["a change"]:
        answer = await call(
            "PATCH", f"{DEFINITIONS}/things{size}.{OF_ONE_OPERATOR}", changed, type="application/merge-patch+json"
        )
        assert answer.status == 200, answer.body
        await call.get(f"/apis/{OF_ONE_OPERATOR}/v2/things{size}/first")
        await asyncio.sleep(BACKGROUND)
    await server.stop()
    return costs


@pytest.mark.parametrize("sizes", SIZES)
async def test_definition_takes_as_much_beside_many_as_beside_few(sizes: tuple[int, ...]) -> None:
    assert_all_flat({size: await costs_beside(size) for size in sizes}, most=1.15)
