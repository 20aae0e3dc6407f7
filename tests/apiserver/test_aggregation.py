"""The aggregation layer: an extension API server behind a Service, through real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from api_caller import USER, Caller, Clock, make_config
from extension_server import (
    GROUP,
    NAME,
    RESOURCES,
    ROOT,
    SERVICES,
    WAGONS,
    ExtensionServer,
    Keys,
    api_service,
    endpoint_slice,
    register,
    service,
    told,
    wagon,
)
from left_over import left_to_a_collection
from namesake_certificates import namesakes

from haru.apiserver.aggregation import availability, proxy, remote
from haru.apiserver.aggregation.authorities import data_of
from haru.apiserver.aggregation.options import AggregationOptions
from haru.apiserver.auth import certificates
from haru.apiserver.peers.options import FrontProxyOptions
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore
from waiting import until

Obj = dict[str, Any]
SERVICE = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
MERGE = "application/merge-patch+json"


@pytest.fixture(scope="module")
def keys() -> Keys:
    return Keys.made()


@pytest.fixture
async def api(keys: Keys, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Caller]:
    monkeypatch.setattr(remote, "FIRST_RETRY_SECONDS", 0.1)
    store = SqliteStore(":memory:")
    await store.start()
    clock = Clock()
    app = ApiServer(make_config(store, clock, aggregation=keys.options()))
    await app.start()
    yield Caller(app, clock)
    await app.stop()
    await store.stop()


@pytest.fixture
async def trains(keys: Keys, tmp_path: Path) -> AsyncIterator[ExtensionServer]:
    server = ExtensionServer(tmp_path, keys)
    await server.start()
    yield server
    await server.stop()


# --- status


async def test_api_service_condition_names_each_missing_part(api: Caller, trains: ExtensionServer, keys: Keys) -> None:
    made = await api.create(SERVICES, api_service(caBundle=keys.bundle))
    assert made["status"] == {}
    named = 'service/trains in "default"'
    assert await told(api, "False", "ServiceNotFound") == f"{named} is not present"
    assert (await api("GET", WAGONS)).status == 503
    await api.create(SERVICE, service(ports=[{"port": 444}]))
    assert await told(api, "False", "ServicePortError") == f"{named} is not listening on port 443"
    await api("PATCH", f"{SERVICE}/trains", {"spec": {"ports": [{"port": 443, "name": "https"}]}}, type=MERGE)
    assert await told(api, "False", "EndpointsNotFound") == f"cannot find endpointslices for {named}"
    await api.create(SLICES, endpoint_slice(trains.port))
    why = f'endpointslices for {named} have no addresses with port name "https"'
    assert await told(api, "False", "MissingEndpoints") == why
    ports = [{"name": "https", "port": trains.port, "protocol": "TCP"}]
    await api("PATCH", f"{SLICES}/trains", {"ports": ports, "endpoints": []}, type=MERGE)
    assert await told(api, "False", "MissingEndpoints") == why
    await api("PATCH", f"{SLICES}/trains", {"endpoints": [{"addresses": ["127.0.0.1"]}]}, type=MERGE)
    assert await told(api, "True", "Passed") == "all checks passed"
    assert (await api("GET", WAGONS)).status == 200


async def test_cleared_condition_of_an_unchanged_api_service_is_written_again(
    api: Caller, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "FIRST_RETRY_SECONDS", 3600.0)
    await api.create(SERVICES, api_service(caBundle=keys.bundle))
    await told(api, "False", "ServiceNotFound")
    cleared = await api("PATCH", f"{SERVICES}/{NAME}/status", {"status": {"conditions": None}}, type=MERGE)
    assert cleared.status == 200, cleared.body
    await told(api, "False", "ServiceNotFound")


async def test_failing_extension_server_is_marked_unavailable_and_recovers(
    api: Caller, trains: ExtensionServer, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "CHECK_SECONDS", 0.1)
    trains.broken = True
    await api.create(SERVICE, service())
    await api.create(SLICES, endpoint_slice(trains.port))
    await api.create(SERVICES, api_service(caBundle=keys.bundle))
    url = f"https://trains.default.svc:443{ROOT}"
    expected = f"failing or missing response from {url}: bad status from {url}: 500"
    assert await told(api, "False", "FailedDiscoveryCheck") == expected
    trains.broken = False
    await told(api, "True", "Passed")
    before = (await api.get(f"{SERVICES}/{NAME}"))["metadata"]["resourceVersion"]
    seen = len(trains.checked)

    async def is_checked_again() -> bool:
        return len(trains.checked) > seen + 8

    await until(is_checked_again)
    # What has not changed is not written.
    assert (await api.get(f"{SERVICES}/{NAME}"))["metadata"]["resourceVersion"] == before


async def test_extension_server_certificate_is_verified(api: Caller, keys: Keys, tmp_path: Path) -> None:
    """One for another name, one of an authority that is not in the bundle; unless nothing is to be looked at."""
    server = ExtensionServer(tmp_path, keys, host="others.default.svc")
    await server.start()
    await api.create(SERVICE, service())
    await api.create(SLICES, endpoint_slice(server.port))
    await api.create(SERVICES, api_service(caBundle=keys.bundle))
    assert "Hostname mismatch" in await told(api, "False", "FailedDiscoveryCheck")
    other = certificates.new_authority(datetime.now(UTC))
    bundle = Keys(other, other, other).bundle
    await api("PATCH", f"{SERVICES}/{NAME}", {"spec": {"caBundle": bundle}}, type=MERGE)

    async def is_not_believed() -> bool:
        return "unable to get local issuer certificate" in await told(api, "False", "FailedDiscoveryCheck")

    await until(is_not_believed)
    assert server.checked == [] and (await api("GET", WAGONS)).status == 503 and server.asked == []
    await api("PATCH", f"{SERVICES}/{NAME}", {"spec": {"caBundle": None, "insecureSkipTLSVerify": True}}, type=MERGE)
    await told(api, "True", "Passed")
    await server.stop()


async def test_extension_server_whose_certificate_has_the_name_of_its_authority_is_believed(
    api: Caller, keys: Keys, tmp_path: Path
) -> None:
    server = ExtensionServer(tmp_path, keys)
    authority, server.pair = namesakes(host="trains.default.svc")
    await server.start()
    await api.create(SERVICE, service())
    await api.create(SLICES, endpoint_slice(server.port))
    await api.create(SERVICES, api_service(caBundle=Keys(authority, authority, authority).bundle))
    await told(api, "True", "Passed")
    assert (await api("GET", WAGONS)).status == 200
    await server.stop()


@pytest.mark.parametrize("bundle", ["Zm9v", "//79"])
async def test_invalid_ca_bundle_is_reported(api: Caller, trains: ExtensionServer, bundle: str) -> None:
    await api.create(SERVICE, service())
    await api.create(SLICES, endpoint_slice(trains.port))
    await api.create(SERVICES, api_service(caBundle=bundle))
    assert "unable to load root certificates" in await told(api, "False", "FailedDiscoveryCheck")


async def test_external_name_and_simulated_pods_are_refused_as_backends(
    api: Caller, trains: ExtensionServer, keys: Keys
) -> None:
    """An ExternalName that is the loopback, and a pod whose address is made up."""
    await api.create(SERVICE, service(type="ExternalName", externalName="localhost", ports=[{"port": trains.port}]))
    reference = {"namespace": "default", "name": "trains", "port": trains.port}
    await api.create(SERVICES, api_service(caBundle=keys.bundle, service=reference))
    assert 'unsupported service type "ExternalName"' in await told(api, "False", "FailedDiscoveryCheck")
    await api("DELETE", f"{SERVICE}/trains")
    await api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "made-up"}})
    endpoints = [{"addresses": ["127.0.0.1"], "nodeName": "made-up"}]
    await api.create(SLICES, endpoint_slice(trains.port, endpoints=endpoints))
    await api.create(SERVICE, service(ports=[{"port": trains.port}]))

    async def is_refused() -> bool:
        return "its pods are simulated" in await told(api, "False", "FailedDiscoveryCheck")

    await until(is_refused)
    assert trains.checked == [] and trains.asked == []


# --- requests


async def test_requests_are_proxied_with_user_headers(api: Caller, trains: ExtensionServer, keys: Keys) -> None:
    await register(api, trains, keys)
    assert (await api.create(WAGONS, wagon("a")))["spec"] == {"seats": 4}
    assert (await api.get(f"{WAGONS}/a?pretty=true&b=2&a=1"))["metadata"]["name"] == "a"
    method, path, headers = trains.asked[-1]
    assert (method, path) == ("GET", f"{WAGONS}/a?a=1&b=2&pretty=true")
    assert headers["x-remote-user"] == "admin" and headers["x-remote-uid"] == "1"
    assert "system:masters" in headers["x-remote-group"] and "authorization" not in headers
    assert headers["host"] == "trains.default.svc:443"
    missing = await api("GET", f"{WAGONS}/b")
    assert missing.status == 404 and missing.json["message"] == 'wagons "b" not found'
    assert (await api("DELETE", f"{WAGONS}/a")).status == 200 and trains.wagons == {}


async def test_client_cannot_set_user_headers(api: Caller, trains: ExtensionServer, keys: Keys) -> None:
    await register(api, trains, keys)
    answer = await api(
        "GET",
        WAGONS,
        X_Remote_User="somebody",
        X_Remote_Group="others",
        X_Remote_Extra_Scopes="all",
        Connection="x-remote-user, x-remote-group, keep-alive",
        Cookie="a=b",
        X_Forwarded_For="10.9.8.7",
        Accept="application/json",
    )
    assert answer.status == 200
    headers = trains.asked[-1][2]
    assert headers["x-remote-user"] == "admin" and "x-remote-extra-scopes" not in headers
    assert "others" not in headers["x-remote-group"] and "cookie" not in headers
    assert "x-remote" not in headers.get("connection", "")
    assert headers["x-forwarded-for"] == "10.9.8.7"


async def test_user_needs_permission_before_proxying(api: Caller, trains: ExtensionServer, keys: Keys) -> None:
    await register(api, trains, keys)
    jane = api.as_(USER)
    refused = await jane("GET", WAGONS)
    assert refused.status == 403 and trains.asked == []
    assert f'cannot list resource "wagons" in API group "{GROUP}"' in refused.json["message"]
    rules = [{"apiGroups": [GROUP], "resources": ["wagons"], "verbs": ["list"]}]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    await api.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        {**kind, "kind": "ClusterRole", "metadata": {"name": "wagons"}, "rules": rules},
    )
    await api.create(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        {
            **kind,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "wagons"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "wagons"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "devs"}],
        },
    )
    assert (await jane("GET", WAGONS)).status == 200 and trains.asked[-1][2]["x-remote-user"] == "jane"
    for method, path in (("POST", WAGONS), ("GET", f"{WAGONS}/a"), ("GET", f"{WAGONS}?watch=1")):
        assert (await jane(method, path)).status == 403
    assert (await jane("GET", ROOT)).status == 200  # discovery is everybody's
    assert (await api.as_("nobody")("GET", WAGONS)).status == 401
    for odd in ("..", "a/../../b", "%2e%2e"):
        assert (await api("GET", f"{WAGONS}/{odd}")).status == 404
    assert [path for _, path, _ in trains.asked] == [WAGONS, ROOT]


async def test_watch_is_proxied_as_a_stream(api: Caller, trains: ExtensionServer, keys: Keys) -> None:
    await register(api, trains, keys)
    stream = await api.stream(f"{WAGONS}?watch=1")
    await api.create(WAGONS, wagon("a"))
    await api("DELETE", f"{WAGONS}/a")
    assert await stream.take(2) == [("ADDED", "a"), ("DELETED", "a")]
    await stream.close()


async def test_redirecting_hanging_or_broken_extension_server_is_handled(
    api: Caller, trains: ExtensionServer, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redirect, never answer, never end, break off."""
    await register(api, trains, keys)

    async def redirect(request: web.Request) -> web.StreamResponse:
        return web.Response(status=302, headers={"Location": str(request.url)})

    async def hang(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"x" * 1000)
            await asyncio.sleep(0.01)

    async def break_off(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    trains.odd = {f"{WAGONS}/r": redirect, f"{WAGONS}/h": hang, f"{WAGONS}/e": endless, f"{WAGONS}/b": break_off}
    monkeypatch.setattr(proxy, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(proxy, "ANSWER_SECONDS", 0.5)
    answer = await api("GET", f"{WAGONS}/r")
    assert (answer.status, answer.body.decode(), "location" in answer.headers) == (502, proxy.REDIRECT, False)
    assert len(trains.asked) == 1
    for name in ("h", "b"):
        answer = await api("GET", f"{WAGONS}/{name}")
        assert answer.status == 503 and answer.body.startswith(b"error trying to reach service: "), name
    async with asyncio.timeout(60):
        stream = await api.stream(f"{WAGONS}/e")
        assert stream.status == 200
        await asyncio.wait([stream.task])


async def test_unavailable_extension_server_gives_503(api: Caller, trains: ExtensionServer, keys: Keys) -> None:
    await register(api, trains, keys)
    await trains.stop()
    answer = await api("GET", WAGONS)
    assert answer.status == 503 and b"error trying to reach service: dial tcp 127.0.0.1" in answer.body
    await api("DELETE", f"{SLICES}/trains")
    await told(api, "False", "EndpointsNotFound")
    answer = await api("GET", WAGONS)
    assert (answer.status, answer.body) == (503, b"service unavailable")
    await api("DELETE", f"{SERVICES}/{NAME}")
    assert (await api("GET", WAGONS)).status == 404


# --- discovery


async def test_discovery_includes_available_api_service(api: Caller, trains: ExtensionServer, keys: Keys) -> None:
    before = await api("GET", "/apis", accept=AGGREGATED)
    await register(api, trains, keys)
    groups = {each["name"]: each for each in (await api.get("/apis"))["groups"]}
    version = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    assert groups[GROUP] == {"name": GROUP, "versions": [version], "preferredVersion": version}
    assert (await api.get(f"/apis/{GROUP}"))["versions"] == [version]
    assert (await api.get(ROOT))["resources"] == RESOURCES and trains.asked[-1][2]["x-remote-user"] == "admin"
    after = await api("GET", "/apis", accept=AGGREGATED)
    assert after.headers["etag"] != before.headers["etag"]
    kind = {"group": GROUP, "version": "v1", "kind": "Wagon"}
    shown = {
        "resource": "wagons",
        "responseKind": kind,
        "scope": "Namespaced",
        "singularResource": "wagon",
        "verbs": RESOURCES[0]["verbs"],
        "shortNames": ["wg"],
        "subresources": [{"subresource": "status", "responseKind": kind, "verbs": ["get"]}],
    }
    found = {each["metadata"]["name"]: each["versions"] for each in after.json["items"]}
    assert found[GROUP] == [{"version": "v1", "resources": [shown], "freshness": "Current"}]
    assert (await api.get("/openapi/v3"))["paths"][ROOT[1:]] == {"serverRelativeURL": f"/openapi/v3{ROOT}?hash=A1"}
    assert (await api.get(f"/openapi/v3{ROOT}?hash=A1"))["info"]["title"] == "trains"
    assert trains.asked[-1][1] == f"/openapi/v3{ROOT}?hash=A1"
    # Who can not be asked is told of as he was, and as stale.
    await api("DELETE", f"{SLICES}/trains")
    await told(api, "False", "EndpointsNotFound")
    stale = {each["metadata"]["name"]: each for each in (await api("GET", "/apis", accept=AGGREGATED)).json["items"]}
    assert stale[GROUP]["versions"] == [{"version": "v1", "resources": [shown], "freshness": "Stale"}]
    assert (await api("GET", ROOT)).status == 503
    await api("DELETE", f"{SERVICES}/{NAME}")
    assert GROUP not in {each["name"] for each in (await api.get("/apis"))["groups"]}


@pytest.mark.parametrize("body", ["[]", "{}", '{"resources": 3}', '{"resources": [null, {"name": 3}]}', "no JSON"])
async def test_malformed_discovery_documents_are_ignored(
    api: Caller, trains: ExtensionServer, keys: Keys, body: str
) -> None:
    async def odd(request: web.Request) -> web.StreamResponse:
        return web.Response(text=body)

    trains.odd = {ROOT: odd, "/openapi/v3": odd}
    await api.create(SERVICE, service())
    await api.create(SLICES, endpoint_slice(trains.port))
    await api.create(SERVICES, api_service(caBundle=keys.bundle))
    if body == "no JSON":
        assert "the answer is no JSON" in await told(api, "False", "FailedDiscoveryCheck")
    else:
        await told(api, "True", "Passed")
    items = {each["metadata"]["name"]: each for each in (await api("GET", "/apis", accept=AGGREGATED)).json["items"]}
    assert items[GROUP]["versions"][0]["resources"] == []
    assert ROOT[1:] not in (await api.get("/openapi/v3"))["paths"]
    assert (await api("GET", f"/openapi/v3{ROOT}")).status == 404


async def test_openapi_of_a_server_that_was_never_there_is_not_found(api: Caller, keys: Keys) -> None:
    await api.create(SERVICES, api_service(caBundle=keys.bundle))
    await told(api, "False", "ServiceNotFound")
    assert (await api("GET", ROOT)).status == 503
    assert (await api("GET", f"/openapi/v3{ROOT}")).status == 404


# --- by what extension servers know this one


async def test_authentication_config_map_publishes_ca_certificates(api: Caller, keys: Keys) -> None:
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    data = (await api.get(path))["data"]
    assert data["requestheader-client-ca-file"] == keys.front.certificate.decode()
    lists = {name: json.loads(value) for name, value in data.items() if not name.endswith("-file")}
    assert lists == {
        "requestheader-allowed-names": ["proxy"],
        "requestheader-username-headers": ["X-Remote-User"],
        "requestheader-uid-headers": ["X-Remote-Uid"],
        "requestheader-group-headers": ["X-Remote-Group"],
        "requestheader-extra-headers-prefix": ["X-Remote-Extra-"],
    }
    role = "/apis/rbac.authorization.k8s.io/v1/namespaces/kube-system/roles/extension-apiserver-authentication-reader"
    assert (await api.get(role))["rules"][0]["resourceNames"] == ["extension-apiserver-authentication"]


def test_comments_in_files_of_authorities_are_not_published(keys: Keys) -> None:
    commented = "# F\u0151tan\u00fas\u00edtv\u00e1ny\n".encode() + keys.front.certificate
    front = FrontProxyOptions(commented, ("proxy",))
    data = data_of(AggregationOptions(keys.proxy.certificate, keys.proxy.key, commented, front))
    assert {data["client-ca-file"], data["requestheader-client-ca-file"]} == {keys.front.certificate.decode()}


async def test_ca_certificates_of_other_servers_are_kept() -> None:
    """Two servers on one store, each with an authority of its own; a second start adds nothing."""
    store, clock, made = SqliteStore(":memory:"), Clock(), [Keys.made(), Keys.made()]
    await store.start()
    path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    bundles = []
    for keys in (*made, made[0]):
        app = ApiServer(make_config(store, clock, aggregation=keys.options()))
        await app.start()
        bundles.append((await Caller(app, clock).get(path))["data"]["requestheader-client-ca-file"])
        await app.stop()
    await store.stop()
    assert all(keys.front.certificate.decode().strip() in bundles[1] for keys in made)
    assert bundles[2] == bundles[1] and bundles[1].count("BEGIN CERTIFICATE") == 2


async def test_changed_discovery_of_extension_server_is_served(
    api: Caller, trains: ExtensionServer, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "CHECK_SECONDS", 0.1)
    await register(api, trains, keys)

    async def changed(request: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "APIResourceList", "resources": [{**RESOURCES[0], "name": "engines"}]})

    async def is_told() -> bool:
        items = (await api("GET", "/apis", accept=AGGREGATED)).json["items"]
        versions = next(each["versions"] for each in items if each["metadata"]["name"] == GROUP)
        return [each["resource"] for each in versions[0]["resources"]] == ["engines"]

    trains.odd[ROOT] = changed
    await until(is_told)


class NoServer:
    """A way to an extension API server that nobody answers."""

    async def request(self, *_: object) -> Any:
        raise ConnectionRefusedError


async def test_discovery_without_an_answer_leaves_nothing_to_a_garbage_collection() -> None:
    spec = {"group": "example.com", "version": "v1", "service": {"name": "a", "namespace": "b"}}
    asked_for = {"metadata": {"name": "v1.example.com"}, "spec": spec}

    async def asked() -> None:
        with contextlib.suppress(availability.DiscoveryFailed):
            await availability.ask(NoServer(), asked_for)  # type: ignore[arg-type]

    await asked()
    with left_to_a_collection() as garbage:
        for _ in range(3):
            await asked()
    assert not garbage
