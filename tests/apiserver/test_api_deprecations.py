"""Deprecated forms of requests and their warnings: watches by path, old versions; and `pretty`."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from api_caller import MAPS, PODS, Caller, config_map, pod

WATCH = "/api/v1/watch/namespaces/default/configmaps"


async def test_legacy_watch_paths_deliver_events(api: Caller) -> None:
    await api.create(MAPS, config_map("a"))
    everything = await api.stream("/api/v1/watch/configmaps")
    namespace = await api.stream(f"{WATCH}?resourceVersion={(await api.get(MAPS))['metadata']['resourceVersion']}")
    one = await api.stream(f"{WATCH}/b")
    tracking = "kube-apiserver-legacy-service-account-token-tracking"
    assert await everything.take(2) == [("ADDED", "a"), ("ADDED", tracking)]
    await api.create(MAPS, config_map("b"))
    await api.create(MAPS, config_map("c"))
    assert await everything.take(2) == [("ADDED", "b"), ("ADDED", "c")]
    assert await namespace.take(2) == [("ADDED", "b"), ("ADDED", "c")]
    assert await one.take(1) == [("ADDED", "b")]
    assert await one.silent()
    for stream in (everything, namespace, one):
        await stream.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", WATCH, 405),
        ("GET", "/api/v1/watch", 404),
        ("GET", "/api/v1/watch/nothing", 404),
        ("GET", "/api/v1/watch/bindings", 404),
        ("GET", "/api/v1/watch/namespaces/default/pods/a/status", 404),
        ("GET", f"{WATCH}/a?fieldSelector=metadata.name%3Db", 400),
    ],
)
async def test_invalid_legacy_watch_paths_are_refused(api: Caller, method: str, path: str, status: int) -> None:
    assert (await api(method, path)).status == status


async def test_watch_parameter_on_single_object_is_ignored(api: Caller) -> None:
    await api.create(PODS, pod("a"))
    answer = await api("GET", f"{PODS}/a?watch=1")
    assert (answer.status, answer.json["kind"]) == (200, "Pod")


async def test_watch_as_yaml_is_not_acceptable(api: Caller) -> None:
    answer = await api("GET", f"{MAPS}?watch=1", accept="application/yaml")
    assert (answer.status, answer.headers["content-type"]) == (406, "application/yaml")
    assert yaml.safe_load(answer.body)["reason"] == "NotAcceptable"


CLAIM: dict[str, Any] = {"metadata": {"name": "c"}, "spec": {}}


@pytest.mark.parametrize(
    ("version", "warning"),
    [
        ("v1beta1", "resource.k8s.io/v1beta1 ResourceClaim is deprecated in v1.35+, unavailable in v1.38+"),
        ("v1beta2", "resource.k8s.io/v1beta2 ResourceClaim is deprecated in v1.36+, unavailable in v1.39+"),
        ("v1", None),
    ],
)
async def test_deprecated_version_gives_warning(api: Caller, version: str, warning: str | None) -> None:
    claims = f"/apis/resource.k8s.io/{version}/namespaces/default/resourceclaims"
    expected = f'299 - "{warning}"' if warning else None
    answers = [
        await api("POST", claims, CLAIM),
        await api("GET", claims),
        await api("GET", f"{claims}/c"),
        await api("PATCH", f"{claims}/c", {"metadata": {"labels": {"a": "b"}}}, type="application/merge-patch+json"),
        await api("GET", f"{claims}/none"),
        await api("DELETE", f"{claims}/c"),
    ]
    assert [answer.headers.get("warning") for answer in answers] == [expected] * len(answers)
    stream = await api.stream(f"{claims}?watch=1")
    assert stream.headers.get("warning") == expected
    await stream.close()


async def test_endpoints_resource_gives_deprecation_warning(api: Caller) -> None:
    answer = await api("GET", "/api/v1/endpoints")
    assert answer.headers["warning"] == (
        '299 - "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"'
    )


@pytest.mark.parametrize("query", ["pretty=true", "pretty=1"])
async def test_pretty_parameter_formats_response(api: Caller, query: str) -> None:
    await api.create(MAPS, config_map("a"))
    plain, pretty = await api("GET", f"{MAPS}/a"), await api("GET", f"{MAPS}/a?{query}")
    assert pretty.json == plain.json and b'\n  "metadata": {\n' in pretty.body
    assert b"\n" not in (await api("GET", f"{MAPS}/a?pretty=false")).body
    assert b"\n" in (await api("GET", f"{MAPS}/a", user_agent="curl/8.5.0")).body
    refused = await api("GET", f"{MAPS}/none?{query}")
    assert refused.status == 404 and b'\n  "reason": "NotFound"' in refused.body


@pytest.mark.parametrize(
    ("accept", "is_warned"),
    [("application/json;as=X;v=v1;g=y", True), ("*/*;as=X", True), ("text/html", False), ("application/*;as=X", False)],
)
async def test_warning_comes_with_the_refusal_of_a_form_but_of_no_other_media_type(
    api: Caller, accept: str, is_warned: bool
) -> None:
    answer = await api("GET", "/api/v1/namespaces/default/endpoints", accept=accept)
    assert answer.status == 406 and ("v1 Endpoints is deprecated" in answer.headers.get("warning", "")) is is_warned
