"""Who may ask a node what: paths, verbs and grants; caches; what happens when the API server does not answer."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID, ObjectIdentifier

from haru.client.api import ApiClient
from haru.client.transport import Request, Response
from haru.kube.kinds import Kind
from haru.node.api.access import AlwaysAllow, WebhookAccess, opens_container
from haru.node.api.attributes import subresources_of, verb_of
from haru.node.api.options import AuthorizationOptions
from haru.secure_serving.authorization import Forbidden
from haru.secure_serving.cache import Cache
from haru.secure_serving.http import cleaned
from haru.secure_serving.identity import ANONYMOUS, Authenticator, Unauthenticated, User, bearer, user_of_certificate
from haru.secure_serving.reviews import ACCESS, ATTEMPTS, TOKENS, ApiReviewer, ReviewFailed

PATHS = {
    "/pods": ("pods", "proxy"),
    "/pods/": ("pods", "proxy"),
    "/pods/x": ("pods", "proxy"),
    "/podsfoo": ("proxy",),
    "/runningpods": ("pods", "proxy"),
    "/runningpods/": ("pods", "proxy"),
    "/runningpodsx": ("proxy",),
    "/healthz": ("healthz", "proxy"),
    "/healthz/ping": ("healthz", "proxy"),
    "/healthz/log": ("healthz", "proxy"),
    "/healthz/syncloop": ("healthz", "proxy"),
    "/healthzfoo": ("proxy",),
    "/configz": ("configz", "proxy"),
    "/statusz": ("statusz",),
    "/stats": ("stats",),
    "/stats/summary": ("stats",),
    "/statsx": ("proxy",),
    "/metrics": ("metrics",),
    "/metrics/cadvisor": ("metrics",),
    "/metrics/probes": ("metrics",),
    "/metrics/resource": ("metrics",),
    "/metrics/slis": ("metrics",),
    "/logs": ("log",),
    "/logs/": ("log",),
    "/logs/syslog": ("log",),
    "/logsx": ("proxy",),
    "/checkpoint/ns/pod/container": ("checkpoint",),
    "/exec/ns/pod/container": ("proxy",),
    "/attach/ns/pod/container": ("proxy",),
    "/run/ns/pod/container": ("proxy",),
    "/portForward/ns/pod": ("proxy",),
    "/containerLogs/ns/pod/container": ("proxy",),
    "/debug/pprof/heap": ("proxy",),
    "/flagz": ("configz",),
    "/spec/": ("proxy",),
    "/": ("proxy",),
}
METHODS = {
    "GET": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
    "HEAD": "",
    "OPTIONS": "",
    "get": "",
}
GRANTS = ("pods", "healthz", "configz", "statusz", "stats", "metrics", "log", "checkpoint", "proxy", "spec", "")
VERBS = ("get", "create", "*")
ALICE = User("alice", ("staff", "system:authenticated"), "u1", {"team": ("a", "b")})


class Server:
    """An API server's reviews, counted; `now` is its users' clock."""

    def __init__(self, allow: Callable[[dict[str, Any]], bool] = lambda attributes: False) -> None:
        self.allow = allow
        self.asked: list[dict[str, Any]] = []
        self.tokens: dict[str, dict[str, Any]] = {}
        self.down = False
        self.now = 0.0

    async def review(self, kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(spec)
        if self.down:
            raise ReviewFailed(f"{kind.kind}: connection refused")
        if kind is TOKENS:
            return self.tokens.get(spec["token"], {"authenticated": False})
        return {"allowed": self.allow(spec["resourceAttributes"])}

    def access(self, **options: Any) -> WebhookAccess:
        return WebhookAccess(self, "node-1", AuthorizationOptions(**options), monotonic=lambda: self.now)

    def authenticator(self, **options: Any) -> Authenticator:
        return Authenticator(self, monotonic=lambda: self.now, **options)


def granted(subresource: str, verb: str) -> Callable[[dict[str, Any]], bool]:
    return lambda attributes: attributes["subresource"] == subresource and verb in ("*", attributes["verb"])


@pytest.mark.parametrize("path", PATHS)
async def test_every_kubelet_path_maps_to_its_subresources(path: str) -> None:
    assert tuple(subresources_of(path)) == PATHS[path]
    for method, verb in METHODS.items():
        assert verb_of(method) == verb
        for grant in GRANTS:
            for granted_verb in VERBS:
                server = Server(granted(grant, granted_verb))
                may = grant in PATHS[path] and granted_verb in ("*", verb)
                try:
                    await server.access().require(ALICE, method, path)
                    allowed = True
                except Forbidden as error:
                    allowed = False
                    listed = " ".join(PATHS[path])
                    text = f"Forbidden (user=alice, verb={verb}, resource=nodes, subresource(s)=[{listed}])"
                    assert str(error) == text
                assert allowed == may, (path, method, grant, granted_verb)
                asked = [spec["resourceAttributes"]["subresource"] for spec in server.asked]
                expected = PATHS[path][: PATHS[path].index(grant) + 1] if may else PATHS[path]
                assert tuple(asked) == expected


async def test_subject_access_review_has_node_attributes() -> None:
    server = Server(granted("stats", "get"))
    await server.access().require(ALICE, "GET", "/stats/summary")
    assert server.asked == [
        {
            "user": "alice",
            "uid": "u1",
            "groups": ["staff", "system:authenticated"],
            "extra": {"team": ["a", "b"]},
            "resourceAttributes": {
                "group": "",
                "version": "v1",
                "resource": "nodes",
                "subresource": "stats",
                "name": "node-1",
                "verb": "get",
            },
        }
    ]


@pytest.mark.parametrize(
    ("path", "clean"),
    [
        ("/pods", "/pods"),
        ("/pods/", "/pods/"),
        ("/logs/../exec/a/b/c", "/exec/a/b/c"),
        ("//pods", "/pods"),
        ("/pods/./x", "/pods/x"),
        ("/metrics/..", "/"),
        ("/..", "/"),
        ("", "/"),
        ("/stats//summary", "/stats/summary"),
        ("/a/b/..", "/a/"),
    ],
)
def test_request_paths_are_cleaned(path: str, clean: str) -> None:
    assert cleaned(path) == clean and cleaned(clean) == clean


async def test_allowed_and_denied_reviews_are_cached_with_ttl() -> None:
    server = Server(granted("proxy", "*"))
    access = server.access()

    async def calls(method: str = "GET", user: User = ALICE) -> int:
        before = len(server.asked)
        with contextlib.suppress(Forbidden):
            await access.require(user, method, "/pods")
        return len(server.asked) - before

    assert await calls() == 2  # pods: denied; proxy: allowed
    assert await calls() == 0
    server.now = 29
    assert await calls() == 0
    server.now = 31
    assert await calls() == 1  # only the denial has run out
    server.now = 299
    await calls()
    server.allow = lambda attributes: False
    assert await calls() == 0  # what was allowed stays allowed
    server.now = 301
    assert await calls() == 1
    assert await calls("POST") == 2


@pytest.mark.parametrize(
    "other",
    [
        User("alice", ("staff",), "u1", {"team": ("a", "b")}),
        User("alice", ALICE.groups, "u2", ALICE.extra),
        User("alice", ALICE.groups, "u1", {"team": ("a",)}),
        User("alice", ALICE.groups, "u1"),
        User("bob", ALICE.groups, "u1", ALICE.extra),
    ],
)
async def test_cached_review_applies_only_to_equal_user(other: User) -> None:
    server = Server(granted("pods", "get"))
    access = server.access()
    await access.require(ALICE, "GET", "/pods")
    server.allow = lambda attributes: False
    await access.require(ALICE, "GET", "/pods")
    with pytest.raises(Forbidden):
        await access.require(other, "GET", "/pods")


async def test_large_reviews_are_not_cached() -> None:
    server = Server(granted("pods", "get"))
    access = server.access()
    large = User("alice", ("g" * 10_000,))
    for _ in range(3):
        await access.require(large, "GET", "/pods")
    assert len(server.asked) == 3


async def test_unreachable_api_server_allows_only_cached_reviews() -> None:
    server = Server(granted("pods", "get"))
    access = server.access()
    await access.require(ALICE, "GET", "/pods")
    server.down = True
    await access.require(ALICE, "GET", "/pods")
    for path in ("/stats/summary", "/exec/a/b/c", "/healthz"):
        with pytest.raises(ReviewFailed):
            await access.require(ALICE, "GET", path)
    server.now = 301
    with pytest.raises(ReviewFailed):
        await access.require(ALICE, "GET", "/pods")
    server.down = False  # a failure is not remembered
    await access.require(ALICE, "GET", "/pods")


async def test_denied_overrides_allowed() -> None:
    class Contradicting(Server):
        async def review(self, kind: Kind, spec: dict[str, Any]) -> dict[str, Any]:
            return {"allowed": True, "denied": True}

    with pytest.raises(Forbidden):
        await Contradicting().access().require(ALICE, "GET", "/pods")


async def test_hardened_exec_requires_create_verb() -> None:
    for path, may in (("/exec/a/b/c", False), ("/portForward/a/b", False), ("/containerLogs/a/b/c", True)):
        server = Server(granted("proxy", "get"))
        assert opens_container(path) != may
        await server.access().require(ALICE, "GET", path)
        if may:
            await server.access(require_create_for_streams=True).require(ALICE, "GET", path)
        else:
            with pytest.raises(Forbidden, match="verb=create"):
                await server.access(require_create_for_streams=True).require(ALICE, "GET", path)


async def test_always_allow_mode_allows_anonymous() -> None:
    await AlwaysAllow().require(ANONYMOUS, "POST", "/exec/a/b/c")


# -- who asks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        ("bearer abc", "abc"),
        ("  Bearer abc ", "abc"),
        ("Bearer", ""),
        ("Bearer  abc", ""),
        ("Basic abc", ""),
        ("", ""),
    ],
)
def test_bearer_token_is_parsed_from_header(header: str, token: str) -> None:
    assert bearer(header) == token


async def test_token_review_is_cached_for_two_minutes() -> None:
    server = Server()
    server.tokens["good"] = {"authenticated": True, "user": {"username": "carol", "uid": "7", "groups": ["g"]}}
    authenticator = server.authenticator()
    for now in (0, 119):
        server.now = now
        user = await authenticator.user(None, "Bearer good")
        assert user == User("carol", ("g", "system:authenticated"), "7")
    assert len(server.asked) == 1
    server.now = 121
    await authenticator.user(None, "Bearer good")
    assert len(server.asked) == 2


async def test_refused_token_is_cached_for_two_minutes() -> None:
    server = Server()
    authenticator = server.authenticator()
    with pytest.raises(Unauthenticated):
        await authenticator.user(None, "Bearer late")
    server.tokens["late"] = {"authenticated": True, "user": {"username": "dan"}}
    with pytest.raises(Unauthenticated):
        await authenticator.user(None, "Bearer late")
    assert len(server.asked) == 1
    server.now = 121
    assert (await authenticator.user(None, "Bearer late")).name == "dan"


async def test_invalid_token_is_refused_even_with_anonymous_access() -> None:
    authenticator = Server().authenticator(anonymous=True)
    assert await authenticator.user(None, None) is ANONYMOUS
    with pytest.raises(Unauthenticated):
        await authenticator.user(None, "Bearer bad")


async def test_request_without_credentials_is_unauthenticated() -> None:
    with pytest.raises(Unauthenticated):
        await Server().authenticator().user(None, None)
    with pytest.raises(Unauthenticated):
        await Authenticator(None).user(None, "Bearer x")


async def test_failed_token_review_is_not_cached() -> None:
    server = Server()
    server.tokens["good"] = {"authenticated": True, "user": {"username": "carol"}}
    server.down = True
    authenticator = server.authenticator(anonymous=True)
    with pytest.raises(ReviewFailed):
        await authenticator.user(None, "Bearer good")
    server.down = False
    assert (await authenticator.user(None, "Bearer good")).name == "carol"


@pytest.mark.parametrize(
    "status",
    [
        {},
        {"authenticated": False, "user": {"username": "x"}},
        {"authenticated": "true", "user": {"username": "x"}},
        {"authenticated": True},
        {"authenticated": True, "user": {"username": ""}},
    ],
)
async def test_malformed_token_review_is_unauthenticated(status: dict[str, Any]) -> None:
    server = Server()
    server.tokens["odd"] = status
    with pytest.raises(Unauthenticated):
        await server.authenticator().user(None, "Bearer odd")


async def test_token_audience_must_match() -> None:
    server = Server()
    server.tokens["t"] = {"authenticated": True, "audiences": ["other"], "user": {"username": "x"}}
    with pytest.raises(Unauthenticated):
        await server.authenticator(audiences=["kubelet"]).user(None, "Bearer t")
    assert server.asked[0]["audiences"] == ["kubelet"]
    server.tokens["t"]["audiences"] = ["kubelet", "other"]
    assert (await server.authenticator(audiences=["kubelet"]).user(None, "Bearer t")).name == "x"
    del server.tokens["t"]["audiences"]
    with pytest.raises(Unauthenticated):
        await server.authenticator(audiences=["kubelet"]).user(None, "Bearer t")


def certificate(*attributes: tuple[ObjectIdentifier, str]) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    start = datetime(2026, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(start).not_valid_after(datetime(2027, 1, 1, tzinfo=UTC))
    return builder.sign(key, hashes.SHA256()).public_bytes(Encoding.DER)


UID = ObjectIdentifier("1.3.6.1.4.1.57683.2")


async def test_client_certificate_gives_user_groups_and_uid() -> None:
    shown = certificate(
        (NameOID.ORGANIZATION_NAME, "a"), (NameOID.ORGANIZATION_NAME, "b"), (NameOID.COMMON_NAME, "eve"), (UID, "u-9")
    )
    user = user_of_certificate(shown)
    assert user is not None
    assert (user.name, user.groups, user.uid) == ("eve", ("a", "b", "system:authenticated"), "u-9")
    assert user.extra["authentication.kubernetes.io/credential-id"][0].startswith("X509SHA256=")
    assert await Server().authenticator().user(shown, "Bearer ignored") == user


async def test_client_certificate_without_unique_name_is_refused() -> None:
    nameless = certificate((NameOID.ORGANIZATION_NAME, "a"))
    assert user_of_certificate(nameless) is None
    with pytest.raises(Unauthenticated):
        await Server().authenticator().user(nameless, None)
    with pytest.raises(Unauthenticated):
        user_of_certificate(certificate((NameOID.COMMON_NAME, "x"), (UID, "1"), (UID, "2")))


# -- the cache and the way to the API server ----------------------------------------------------------------


async def test_review_cache_evicts_least_recently_used() -> None:
    cache: Cache[int] = Cache(lambda: 0.0, most=3)
    asked = []

    async def get(key: int) -> int:
        async def ask() -> tuple[int, float]:
            asked.append(key)
            return key, 10.0

        return await cache.get(key, ask)

    for key in (1, 2, 3, 1, 4, 1, 2):
        assert await get(key) == key
    assert asked == [1, 2, 3, 4, 2] and len(cache) == 3


async def test_concurrent_equal_reviews_share_one_request() -> None:
    cache: Cache[int] = Cache(lambda: 0.0)
    go, asked = asyncio.Event(), 0

    async def ask() -> tuple[int, float]:
        nonlocal asked
        asked += 1
        await go.wait()
        return 5, 1.0

    waiting = [asyncio.create_task(cache.get("k", ask)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()  # the one who asked goes away; the others do not suffer
    await asyncio.sleep(0)
    go.set()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError) and results[1:] == [5, 5, 5, 5]
    assert asked == 2


class Answers:
    """A transport that answers as told: a status and body, an error, or never (None)."""

    def __init__(self, *answers: tuple[int, bytes] | Exception | None) -> None:
        self.answers = list(answers)
        self.requests: list[Request] = []

    async def send(self, request: Request, timeout: float) -> Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if answer is None:
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        assert answer is not None
        return Response(answer[0], {}, answer[1])

    def stream(self, request: Request, timeout: float) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


async def reviewed(transport: Answers, **options: Any) -> dict[str, Any]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    reviewer = ApiReviewer(ApiClient(transport), sleep, **options)
    answer = await reviewer.review(ACCESS, {"user": "x"})
    assert waits == sorted(waits) and all(wait >= 0.5 for wait in waits)
    return answer


BAD = b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"X","code":%d}'


async def test_review_is_retried_while_server_is_busy() -> None:
    transport = Answers(ConnectionError("refused"), (503, BAD % 503), (201, b'{"status":{"allowed":true}}'))
    assert await reviewed(transport) == {"allowed": True}
    assert {request.path for request in transport.requests} == {"/apis/authorization.k8s.io/v1/subjectaccessreviews"}


async def test_forbidden_review_is_not_retried() -> None:
    transport = Answers((403, BAD % 403))
    with pytest.raises(ReviewFailed, match="no"):
        await reviewed(transport)


async def test_review_fails_after_last_attempt() -> None:
    transport = Answers(*[ConnectionError("refused")] * ATTEMPTS)
    with pytest.raises(ReviewFailed, match="SubjectAccessReview: refused"):
        await reviewed(transport)
    assert not transport.answers


async def test_review_without_response_times_out() -> None:
    with pytest.raises(ReviewFailed, match="no answer within"):
        await reviewed(Answers(*[None] * ATTEMPTS), attempt_seconds=0.01)


async def test_review_without_status_fails() -> None:
    with pytest.raises(ReviewFailed):
        await reviewed(Answers((201, b"{}")))
