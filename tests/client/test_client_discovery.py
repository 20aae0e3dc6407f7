"""Which version of a resource is the newest that a server has."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from haru.apiserver.config import AuthenticationOptions, ServerConfig, UserInfo
from haru.apiserver.server import ApiServer
from haru.client.api import ApiClient
from haru.client.discovery import (
    adapt_to_server,
    newest_kind,
    resources_of,
    retry_unavailable,
    served_group_versions,
    served_resources,
)
from haru.kube.gates import FeatureGates
from haru.storage.memory import MemoryStore

GROUP, RULES = "resource.k8s.io", "devicetaintrules"


def server(**versions: list[str]) -> Any:
    """An application with the discovery documents of one group: version -> plurals; the first version is preferred."""
    listed = [{"groupVersion": f"{GROUP}/{version}", "version": version} for version in versions]
    documents: dict[str, Any] = {
        "/apis": {"groups": [{"name": GROUP, "versions": listed, "preferredVersion": listed[0]}] if listed else []}
    }
    for version, plurals in versions.items():
        resources = [{"name": name, "kind": name.title(), "namespaced": False, "verbs": ["list"]} for name in plurals]
        documents[f"/apis/{GROUP}/{version}"] = {"resources": resources}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        document = documents.get(scope["path"])
        await send({"type": "http.response.start", "status": 200 if document else 404, "headers": []})
        await send({"type": "http.response.body", "body": orjson.dumps(document)})

    return app


@pytest.mark.parametrize(
    ("versions", "newest"),
    [
        ({"v1": ["deviceclasses"], "v1alpha3": [RULES], "v1beta2": [RULES]}, "v1beta2"),
        ({"v1": ["deviceclasses"], "v1beta2": ["deviceclasses"], "v1alpha3": [RULES]}, "v1alpha3"),
        ({"v1beta2": [RULES], "v1": [RULES]}, "v1"),
        ({"v1beta2": [RULES], "v1beta10": [RULES], "v2alpha1": [RULES], "strange": [RULES]}, "v1beta10"),
        ({"v1": ["deviceclasses"]}, None),
        ({}, None),
    ],
)
async def test_newest_served_version_with_the_resource_is_chosen(
    versions: dict[str, list[str]], newest: str | None
) -> None:
    found = await newest_kind(ApiClient.in_process(server(**versions)), GROUP, RULES)
    assert (found.version if found else None) == newest


@pytest.mark.parametrize("is_aggregated", [True, False])
async def test_aggregated_and_legacy_discovery_agree(is_aggregated: bool) -> None:
    """What a server tells in two documents is what the others say; one that has no such documents is asked for them."""
    server = ApiServer(
        ServerConfig(
            store=MemoryStore(),
            gates=FeatureGates.accelerator_defaults(),
            runtime_config={"api/all": True},
            authentication=AuthenticationOptions(tokens={"admin": UserInfo("admin", ("system:masters",))}),
        )
    )
    await server.start()
    asked: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        if not is_aggregated:
            scope["headers"] = [header for header in scope["headers"] if header[0] != b"accept"]
        await server(scope, receive, send)

    client = ApiClient.in_process(app, "admin")
    found = await served_resources(client)
    assert (len(asked) == 2) == is_aggregated
    versions = await served_group_versions(client)
    legacy = [kind for version in versions for kind in await resources_of(client, *version)]
    assert set(found) == set(legacy) and len(found) == len(legacy) > 80
    firsts = {kind.group: kind.version for kind in reversed(found)}
    assert firsts == {kind.group: kind.version for kind in reversed(legacy)}
    await server.stop()


async def test_connection_cut_once_is_tried_again_and_a_refused_one_is_not() -> None:
    failures: list[type[OSError]] = [ConnectionResetError]
    asked: list[int] = []

    async def work() -> str:
        asked.append(1)
        if failures:
            raise failures.pop()
        return "served"

    assert await retry_unavailable(work) == "served" and len(asked) == 2
    failures.append(ConnectionRefusedError)
    with pytest.raises(ConnectionRefusedError):
        await retry_unavailable(work)
    assert len(asked) == 3


@pytest.mark.parametrize("cut", ["/version", "/api", "/apis"])
async def test_answer_that_is_cut_is_asked_for_again(cut: str) -> None:
    documents: dict[str, Any] = {"/version": {"minor": "36"}, "/api": {"versions": []}, "/apis": {"groups": []}}
    cuts = [cut, cut]

    async def app(scope: Any, _: Any, send: Any) -> None:
        body = orjson.dumps(documents.get(scope["path"], {"resources": []}))
        if scope["path"] in cuts:
            cuts.remove(scope["path"])
            body = body[:-1]
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": body})

    client = ApiClient.in_process(app)
    assert (await adapt_to_server(client)).minor == 36
    assert not cuts
