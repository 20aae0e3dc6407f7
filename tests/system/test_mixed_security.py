"""What the forwarding between API servers does not give away: identities, places, and who may speak for whom."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from functools import partial

import aiohttp
import orjson
import pytest
import pytest_asyncio
from mixed_world import ADMIN, GROUPS, JANE, Server, World, acquainted, pod_group

from etcd_process import Etcd
from haru.apiserver.peers import endpoints
from haru.apiserver.peers import server as server_of_peers
from haru.storage import Delete, Put
from waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")
SECRETS = "/api/v1/namespaces/kube-system/secrets"
SELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEW = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}


class Pair:
    def __init__(self, world: World, old: Server, new: Server) -> None:
        self.world, self.old, self.new = world, old, new


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pair(etcd: Etcd, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    world = World(tmp_path_factory.mktemp("mixed"), etcd)
    patched = pytest.MonkeyPatch()
    # Places stay as the tests write them: nobody renews his own meanwhile.
    patched.setattr(server_of_peers, "RENEW_SECONDS", 3600.0)
    patched.setattr(endpoints, "LIFE_SECONDS", 3600)
    try:
        old, new = await world.start("old", 35), await world.start("new", 36)
        await acquainted(old, new)
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "readers"}
        rules = [{"apiGroups": ["scheduling.k8s.io"], "resources": ["podgroups"], "verbs": ["get", "list"]}]
        subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name} for name in ("jane", "zoe")]
        for kind, more in (("ClusterRole", {"rules": rules}), ("ClusterRoleBinding", {"roleRef": role})):
            more = {**more, "subjects": subjects} if kind == "ClusterRoleBinding" else more
            obj = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "readers"}, **more}
            answer = await new.call("POST", f"/apis/rbac.authorization.k8s.io/v1/{kind.lower()}s", obj)
            assert answer.status == 201
        yield Pair(world, old, new)
    finally:
        patched.undo()
        await world.close()


async def who(server: Server, client: str, **headers: str) -> tuple[int, dict[str, object]]:
    """Whom a server takes the holder of a certificate for."""
    answer = await server.call("POST", SELF, REVIEW, token="", client=client, **headers)
    return answer.status, answer.json["status"]["userInfo"] if answer.status == 201 else {}


# --- headers that an ordinary client sends


SMUGGLED = {
    "X_Remote_User": "admin",
    "X_Remote_Group": "system:masters",
    "X_Remote_Uid": "0",
    "X_Remote_Extra_Scopes": "all",
}


async def test_identity_headers_of_a_client_are_ignored(pair: Pair) -> None:
    for server in (pair.old, pair.new):
        assert (await server.call("GET", SECRETS, token=JANE, **SMUGGLED)).status == 403
        told = (await server.call("POST", SELF, REVIEW, token=JANE, **SMUGGLED)).json["status"]["userInfo"]
        assert told["username"] == "jane" and "system:masters" not in told["groups"] and "extra" not in told
        assert (await server.call("GET", SECRETS, token="", **SMUGGLED)).status == 403


@pytest.mark.parametrize("connection", ["close", "x-remote-user, X-Remote-Group", "X-Kubernetes-Peer-Proxied, close"])
async def test_identity_headers_of_a_client_are_not_forwarded(pair: Pair, connection: str) -> None:
    name = f"smuggled-{len(connection)}"
    path = f"{GROUPS}?limit=1&fieldSelector=metadata.name%3D{name}"
    answer = await pair.old.call("GET", path, token=JANE, Connection=connection, **SMUGGLED)
    assert answer.status == 200
    event = await pair.new.told(lambda event: name in event["requestURI"])
    assert event["user"] == {
        "username": "jane",
        "uid": "jane-uid",
        "groups": ["devs", "night", "system:authenticated"],
    }
    assert "impersonatedUser" not in event


async def test_concurrent_users_over_shared_peer_connections_stay_separate(pair: Pair) -> None:
    """They share connections to the peer, and nothing that one of them sends stays there."""
    users = {"jane": JANE, "admin": ADMIN}

    async def ask(name: str, number: int) -> tuple[str, int]:
        path = f"{GROUPS}?fieldSelector=metadata.name%3D{name}-{number}"
        verb = "GET" if number % 2 else "DELETE"
        return name, (await pair.old.call(verb, path, token=users[name], Cookie=f"session={name}")).status

    answers = await asyncio.gather(*(ask(name, number) for number in range(12) for name in users))
    for (name, status), number in zip(answers, (n for n in range(12) for _ in users), strict=True):
        assert status == (403 if name == "jane" and number % 2 == 0 else 200), (name, number)
    for asked in (f"{name}-{number}" for number in range(1, 12, 2) for name in users):
        event = await pair.new.told(partial(_asks_for, asked))
        assert event["user"]["username"] == asked.partition("-")[0]


def _asks_for(name: str, event: dict[str, str]) -> bool:
    return event["requestURI"].endswith(f"metadata.name%3D{name}")


async def test_peer_proxied_header_only_prevents_forwarding(pair: Pair) -> None:
    marked = {"X_Kubernetes_Peer_Proxied": "true"}
    for token, path, code in ((ADMIN, GROUPS, 404), (JANE, GROUPS, 404), (JANE, SECRETS, 403), ("x", GROUPS, 401)):
        assert (await pair.old.call("GET", path, token=token, **marked)).status == code, path
    assert (await pair.new.call("GET", GROUPS, token=JANE, **marked)).status == 200
    # Another value is none of ours.
    assert (await pair.old.call("GET", GROUPS, X_Kubernetes_Peer_Proxied="false")).status == 200


async def test_request_is_forwarded_at_most_once(pair: Pair) -> None:
    """A third server whose peers tell it lies: they send it requests for what nobody has."""
    gvr = ("scheduling.k8s.io", "v1alpha2", "ghosts")
    path = "/apis/scheduling.k8s.io/v1alpha2/ghosts"
    rerouted = [await server.forwarded() for server in (pair.old, pair.new)]
    offers = []
    for server, other in ((pair.old, pair.new), (pair.new, pair.old)):
        known = server.peers.discovery_cache
        offer = known.offers[other.id]
        offers.append((known, other.id, offer))
        known.offers[other.id] = type(offer)(offer.resources | {gvr}, offer.groups)
    try:
        assert (await pair.old.call("GET", path)).status == 404
    finally:
        for known, name, offer in offers:
            known.offers[name] = offer
    counts = [await server.forwarded() for server in (pair.old, pair.new)]
    assert counts == [rerouted[0] + 1, rerouted[1]]


# --- paths


@pytest.mark.parametrize(
    "path",
    [
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/../../../../../api/v1/secrets",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/%2e%2e/%2e%2e",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups//x",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/a%00b",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/a%0d%0aX-Remote-User:%20admin",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/%252e%252e",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/default/podgroups/a%5c..%5cb",
        "/apis/scheduling.k8s.io/v1alpha2/namespaces/../podgroups",
    ],
)
async def test_ambiguous_paths_are_not_forwarded(pair: Pair, path: str) -> None:
    rerouted = await pair.old.forwarded()
    assert (await pair.old.call("GET", path)).status == 404
    assert await pair.old.forwarded() == rerouted


async def test_legacy_watch_path_is_authorized_as_watch(pair: Pair) -> None:
    path = "/apis/scheduling.k8s.io/v1alpha2/watch/namespaces/default/podgroups"
    refused = await pair.old.call("GET", f"{path}?timeoutSeconds=1", token=JANE)
    assert refused.status == 403 and "cannot watch" in refused.json["message"]
    assert (await pair.old.call("GET", f"{path}?timeoutSeconds=1")).status == 200
    for method in ("POST", "DELETE"):
        assert (await pair.old.call(method, path, {})).status == 405


async def test_permission_for_one_name_covers_watch_with_that_field_selector(pair: Pair) -> None:
    rules = [
        {"apiGroups": ["scheduling.k8s.io"], "resources": ["podgroups"], "verbs": ["watch"], "resourceNames": ["one"]}
    ]
    kind = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "watchers"}}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "watchers"}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"}]
    base = "/apis/rbac.authorization.k8s.io/v1/clusterrole"
    assert (await pair.old.call("POST", f"{base}s", {**kind, "kind": "ClusterRole", "rules": rules})).status == 201
    binding = {**kind, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": subjects}
    assert (await pair.old.call("POST", f"{base}bindings", binding)).status == 201
    query = "?watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3D"
    assert (await pair.old.call("GET", f"{GROUPS}{query}one", token=JANE)).status == 200
    assert (await pair.old.call("GET", f"{GROUPS}{query}two", token=JANE)).status == 403
    assert (await pair.old.call("DELETE", f"{base}bindings/watchers")).status == 200


async def test_escaped_slash_in_path_is_authorized_as_subresource(pair: Pair) -> None:
    # Both ends read a name and a subresource; the right for the one is not that for the other.
    answer = await pair.old.call("GET", f"{GROUPS}/a%2Fstatus", token=JANE)
    assert answer.status == 403 and 'resource "podgroups/status"' in answer.json["message"]


# --- who may speak for users


async def test_front_proxy_headers_set_the_user(pair: Pair) -> None:
    headers = {"X_Remote_User": "zoe", "X_Remote_Uid": "9", "X_Remote_Extra_Acme.com%2FProject": "some"}
    status, user = await who(pair.new, "peer", **headers, X_Remote_Group="devs")
    assert (status, user["username"], user["uid"]) == (201, "zoe", "9")
    assert user["groups"] == ["devs", "system:authenticated"] and user["extra"] == {"acme.com/project": ["some"]}


async def test_certificates_are_valid_only_for_purpose_of_their_ca(pair: Pair) -> None:
    as_admin = {"X_Remote_User": "admin", "X_Remote_Group": "system:masters"}
    # A front proxy without a user is nobody, whatever its certificate says.
    assert (await who(pair.new, "peer"))[0] == 401
    # The authority is right, the name is not one of those that are taken; nor is it a user's certificate.
    assert (await who(pair.new, "wrong-name", **as_admin))[0] == 401
    assert (await who(pair.new, "wrong-name"))[0] == 401
    # A user's certificate makes a user, and its headers nobody else; not with the name of a front proxy either.
    for client, name in (("user", "carol"), ("user-named-as-a-peer", "apiserver-proxy")):
        status, user = await who(pair.new, client, **as_admin)
        assert (status, user["username"]) == (201, name) and "system:masters" not in user["groups"]  # type: ignore[operator]
    # An authority that nobody knows does not get as far as HTTP.
    with pytest.raises((aiohttp.ClientError, OSError)):
        await who(pair.new, "strange-peer", **as_admin)


async def test_bearer_token_counts_when_front_proxy_names_no_user(pair: Pair) -> None:
    answer = await pair.new.call("POST", SELF, REVIEW, token=JANE, client="peer")
    assert answer.json["status"]["userInfo"]["username"] == "jane"


async def test_server_with_invalid_proxy_certificate_gets_no_discovery(pair: Pair) -> None:
    """Its proxy certificate is of a strange authority, or of a name that is not one of theirs."""
    home = pair.world.authorities.home
    for name in ("strange-peer", "wrong-name"):
        odd = await pair.world.start(f"odd-{name}", 35, proxy_cert=home / f"{name}.crt", proxy_key=home / f"{name}.key")
        errors = 'apiserver_peer_discovery_sync_errors_total{type="fetch_discovery"}'

        async def tried(odd: Server = odd, errors: str = errors) -> bool:
            return await odd.metric(errors) >= 2

        await until(tried, "it has asked what the others serve")
        assert not odd.peers.discovery_cache.offers
        assert (await odd.call("GET", GROUPS)).status == 404
        await pair.world.stop(odd)


# --- peers that can not be reached, or are somebody else


async def place(server: Server, peer: str, address: tuple[str, int] | None) -> None:
    """Write where a peer is, as only who may write to etcd can."""
    key = f"peerserverleases/{peer}"
    if address is None:
        await server.objects.store.transact(Delete(key))
        return
    subset = {"addresses": [{"ip": address[0]}], "ports": [{"name": "https", "port": address[1]}]}
    await server.objects.store.transact(Put(key, orjson.dumps({"subsets": [subset]}), lives=3600))


async def moved(pair: Pair, address: tuple[str, int] | None) -> None:
    """Lead the older server astray: the newer one seems to be elsewhere, or nowhere."""
    await place(pair.old, pair.new.id, address)


async def back(pair: Pair) -> None:
    peers = pair.new.peers
    await peers.endpoints.publish(peers._address())
    await pair.old.objects.store.progress()
    assert (await pair.old.call("GET", GROUPS)).status == 200


async def closed_port() -> int:
    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port: int = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return port


async def test_unreachable_peer_gives_503_and_error_metric(pair: Pair) -> None:
    errors = 'apiserver_peer_proxy_errors_total{group="scheduling.k8s.io",resource="podgroups",type="proxy_transport"'
    before = await pair.old.metric(errors)
    await moved(pair, ("127.0.0.1", await closed_port()))
    try:
        for method, body in (("GET", None), ("POST", pod_group("never")), ("GET", None)):
            answer = await pair.old.call(method, GROUPS, body)
            assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
            assert answer.headers["Content-Type"].startswith("text/plain")
            assert answer.body == (
                b"error proxying the request for podgroups.v1alpha2.scheduling.k8s.io to another API server: "
                b"it can not be reached\n"
            )
        assert await pair.old.metric(errors) == before + 3
        # What a server serves itself it goes on serving.
        assert (await pair.old.call("GET", "/api/v1/pods")).status == 200
    finally:
        await back(pair)


async def test_peer_without_known_endpoint_gives_503(pair: Pair) -> None:
    errors = "apiserver_peer_proxy_errors_total{"
    before = await pair.old.metric(errors)
    await moved(pair, None)
    try:
        answer = await pair.old.call("GET", GROUPS)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert answer.json["reason"] == "ServiceUnavailable"
        assert answer.json["message"] == ("Error getting ip and port info of the remote server while proxying")
        assert await pair.old.metric(errors) == before + 1
    finally:
        await back(pair)


async def test_peer_with_wrong_certificate_receives_no_request(pair: Pair) -> None:
    home = pair.world.authorities.home
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heard.append(await reader.read(100))
        except (OSError, ssl.SSLError):
            pass
        finally:
            writer.close()

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(home / "strange-server.crt", home / "strange-server.key")
    server = await asyncio.start_server(listen, "127.0.0.1", 0, ssl=tls)
    await moved(pair, ("127.0.0.1", server.sockets[0].getsockname()[1]))
    try:
        answer = await pair.old.call("POST", GROUPS, pod_group("never"), token=ADMIN)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        assert not any(heard)
    finally:
        server.close()
        await back(pair)


async def test_write_with_lost_response_is_not_retried(pair: Pair) -> None:
    home = pair.world.authorities.home
    heard = asyncio.Queue[bytes]()

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.put_nowait(await reader.readuntil(b"\r\n\r\n"))
        writer.transport.abort()

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(home / "server.crt", home / "server.key")
    server = await asyncio.start_server(hang_up, "127.0.0.1", 0, ssl=tls)
    await moved(pair, ("127.0.0.1", server.sockets[0].getsockname()[1]))
    try:
        answer = await pair.old.call("POST", GROUPS, pod_group("perhaps"), Cookie="a=b")
        assert answer.status == 503 and "Retry-After" not in answer.headers
        head = (await heard.get()).decode().lower()
        # What goes to a peer: the mark and the user, and not the credentials.
        assert "x-kubernetes-peer-proxied: true" in head and "x-remote-user: admin" in head
        assert "x-remote-group: system:masters" in head and "authorization" not in head and ADMIN not in head
    finally:
        server.close()
        await back(pair)


async def test_forged_identity_leases_do_not_redirect_requests(pair: Pair) -> None:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{pair.new.id}"
    change = {"metadata": {"annotations": {"kubernetes.io/peer-advertise-address": "192.0.2.1:1"}}}
    assert (await pair.old.call("PATCH", lease, change)).status == 200
    assert (await pair.old.call("GET", GROUPS)).status == 200
    # Nor is there a way to the places through the API.
    for path in ("/api/v1/peerserverleases", "/apis/coordination.k8s.io/v1/peerserverleases", "/peerserverleases"):
        assert (await pair.old.call("GET", path)).status == 404


async def test_watch_breaks_off_when_peer_dies(pair: Pair) -> None:
    """Not at a line's end as if nothing more would come: the client has to notice."""
    guest = await pair.world.start("guest", 36)
    await acquainted(pair.old, guest)
    # The guest is the only one that is told of.
    known = pair.old.peers.discovery_cache
    offer = known.offers.pop(pair.new.id)
    try:
        async with pair.old.open("GET", f"{GROUPS}?watch=true&timeoutSeconds=300") as stream:
            assert stream.status == 200
            for connection in list(guest.replica._listener._server.server_state.connections):  # type: ignore[union-attr]
                connection.transport.abort()
            with pytest.raises(aiohttp.ClientError):
                while await stream.content.readline():
                    pass
    finally:
        known.offers[pair.new.id] = offer
    await pair.world.stop(guest)
