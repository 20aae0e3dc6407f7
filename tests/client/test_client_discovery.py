"""Which version of a resource is the newest that a server has."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from haru.client.api import ApiClient
from haru.client.discovery import newest_kind

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
async def test_the_newest_version_that_has_a_resource(versions: dict[str, list[str]], newest: str | None) -> None:
    found = await newest_kind(ApiClient.in_process(server(**versions)), GROUP, RULES)
    assert (found.version if found else None) == newest
