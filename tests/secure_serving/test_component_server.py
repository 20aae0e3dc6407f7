"""Health and metrics of a component over real sockets; an API server whose reviews a test decides."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from haru.apiserver.auth import Pair, client_pair, new_authority
from haru.client.api import ApiClient
from haru.client.transport import Request, Response
from haru.secure_serving.component import ComponentApp, ComponentServer, health_route
from haru.secure_serving.http import Answer
from haru.secure_serving.listener import Listener, TlsFiles
from haru.secure_serving.options import ServingOptions

MAY = {"Authorization": "Bearer reader"}


class ApiServer:
    """Answers reviews: the token is the user's name, `readers` may read /metrics. `client_ca` is published."""

    def __init__(self, client_ca: str | None = "") -> None:
        self.readers, self.client_ca = {"reader"}, client_ca
        self.asked: list[str] = []
        self.refuses = False

    async def send(self, request: Request, timeout: float) -> Response:
        self.asked.append(request.path.rpartition("/")[2])
        if self.refuses:
            return answer(403, {"kind": "Status", "reason": "Forbidden", "code": 403, "message": "no rights to review"})
        if request.method == "GET":
            if self.client_ca is None:
                return answer(403, {"kind": "Status", "reason": "Forbidden", "code": 403, "message": "forbidden"})
            return answer(200, {"data": {"client-ca-file": self.client_ca}})
        spec = orjson.loads(request.body)["spec"]
        if "token" in spec:
            known = spec["token"] != "stolen"
            return answer(201, {"status": {"authenticated": known, "user": {"username": spec["token"]}}})
        about = spec["nonResourceAttributes"]
        return answer(201, {"status": {"allowed": spec["user"] in self.readers and about["verb"] == "get"}})

    async def close(self) -> None:
        pass


def answer(code: int, body: dict[str, Any]) -> Response:
    return Response(code, {"content-type": "application/json"}, orjson.dumps(body))


@asynccontextmanager
async def served(api: ApiServer, **options: Any) -> AsyncGenerator[str, None]:
    """The address of a component's port."""
    client = ApiClient(api)  # type: ignore[arg-type]
    routes = {
        "/healthz": health_route("healthz", {"ping": lambda: True}),
        "/metrics": lambda _: Answer(200, b"scheduler_pending_pods 0\n"),
    }
    given = ServingOptions(address="127.0.0.1", look_seconds=0.02, **options)
    server = ComponentServer("haru-scheduler", routes, given, client, client)
    await server.start()
    try:
        yield f"https://127.0.0.1:{server.port}"
    finally:
        await server.stop()


async def get(url: str, certificate: Sequence[Path] = (), method: str = "GET", **headers: str) -> tuple[int, str]:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if certificate:
        context.load_cert_chain(*certificate)
    connector = aiohttp.TCPConnector(ssl=context)
    async with (
        aiohttp.ClientSession(connector=connector) as session,
        session.request(method, url, headers=headers, allow_redirects=False) as found,
    ):
        return found.status, await found.text()


@pytest.mark.parametrize(
    ("path", "headers", "expected"),
    [
        ("/healthz", {}, (200, "ok")),
        ("/healthz", {"Authorization": "Bearer stranger"}, (200, "ok")),
        ("/metrics", MAY, (200, "scheduler_pending_pods 0\n")),
        ("/metrics", {}, (403, 'forbidden: User "system:anonymous" cannot get path "/metrics"\n')),
        (
            "/metrics",
            {"Authorization": "Bearer stranger"},
            (403, 'forbidden: User "stranger" cannot get path "/metrics"\n'),
        ),
        ("/metrics", {"Authorization": "Bearer stolen"}, (401, "Unauthorized\n")),
        ("/secrets", {}, (403, 'forbidden: User "system:anonymous" cannot get path "/secrets"\n')),
        ("/secrets", MAY, (404, "404 page not found\n")),
        ("//metrics", {}, (301, "")),
    ],
)
async def test_metrics_need_permission_and_health_does_not(
    path: str, headers: dict[str, str], expected: tuple[int, str]
) -> None:
    async with served(ApiServer()) as url:
        assert await get(f"{url}{path}", **headers) == expected


async def test_reviews_are_cached() -> None:
    api = ApiServer()
    async with served(api) as url:
        for _ in range(3):
            assert (await get(f"{url}/metrics", **MAY))[0] == 200
    assert api.asked.count("tokenreviews") == api.asked.count("subjectaccessreviews") == 1


async def test_refused_reviews_leave_only_health_readable() -> None:
    api = ApiServer()
    async with served(api, allowed_seconds=0.0, token_seconds=60.0) as url:
        assert (await get(f"{url}/metrics", **MAY))[0] == 200
        api.refuses = True
        assert (await get(f"{url}/metrics", **MAY))[0] == 500
        assert (await get(f"{url}/metrics", Authorization="Bearer other"))[0] == 401
        assert await get(f"{url}/healthz") == (200, "ok")


async def test_paths_for_everybody_can_be_chosen() -> None:
    async with served(ApiServer(), always_allowed=["/metr*"]) as url:
        assert (await get(f"{url}/metrics"))[0] == 200
        assert (await get(f"{url}/healthz"))[0] == 403


def written(directory: Path, pair: Pair) -> tuple[Path, Path]:
    files = directory / "tls.crt", directory / "tls.key"
    for file, data in zip(files, (pair.certificate, pair.key), strict=True):
        file.write_bytes(data)
    return files


@pytest.mark.parametrize(("user", "groups", "status"), [("reader", (), 200), ("eve", (), 403)])
async def test_client_certificates_of_published_authority_are_accepted(
    tmp_path: Path, user: str, groups: Sequence[str], status: int
) -> None:
    now = datetime.now(UTC)
    authority = new_authority(now, "clients")
    api = ApiServer(authority.certificate.decode())
    certificate = written(tmp_path, client_pair(authority, user, groups, now))
    async with served(api) as url:
        assert (await get(f"{url}/metrics", certificate))[0] == status
    assert "tokenreviews" not in api.asked


async def test_members_of_system_masters_are_not_reviewed(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority(now, "clients")
    file = tmp_path / "ca.crt"
    file.write_bytes(authority.certificate)
    api = ApiServer()
    certificate = written(tmp_path, client_pair(authority, "admin", ["system:masters"], now))
    async with served(api, client_ca_file=file) as url:
        assert (await get(f"{url}/metrics", certificate))[0] == 200
    assert api.asked == []


async def test_unreadable_published_authority_is_tolerated_only_if_asked(caplog: pytest.LogCaptureFixture) -> None:
    async with served(ApiServer(None)) as url:
        assert (await get(f"{url}/metrics", **MAY))[0] == 200
    assert "extension-apiserver-authentication is not readable" in caplog.text
    with pytest.raises(ValueError, match="bind the Role extension-apiserver-authentication-reader"):
        async with served(ApiServer(None), tolerate_lookup_failure=False):
            pass


async def test_certificate_is_kept_in_directory_and_renewed_file_is_served(tmp_path: Path) -> None:
    async with served(ApiServer(), cert_dir=tmp_path):
        first = (tmp_path / "haru-scheduler.crt").read_bytes()
    assert (tmp_path / "haru-scheduler.key").stat().st_mode & 0o077 == 0
    async with served(ApiServer(), cert_dir=tmp_path) as url:
        assert (tmp_path / "haru-scheduler.crt").read_bytes() == first
        port = int(url.rpartition(":")[2])
        assert await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port)) == first.decode()


async def test_failing_check_is_named() -> None:
    routes = {"/readyz": health_route("readyz", {"ping": lambda: True, "informer-sync": lambda: False})}
    listener = Listener(ComponentApp(routes), "127.0.0.1", 0)
    await listener.start()
    try:
        found = await get(f"http://127.0.0.1:{listener.port}/readyz")
        assert found == (503, "[+]ping ok\n[-]informer-sync failed\nreadyz check failed\n")
        assert (await get(f"http://127.0.0.1:{listener.port}/readyz", method="POST"))[0] == 405
    finally:
        await listener.stop()


def test_encrypted_key_is_refused_without_asking_for_its_passphrase(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    )
    files = TlsFiles(tmp_path / "tls.crt", tmp_path / "tls.key")
    files.certificate.write_bytes(new_authority(datetime.now(UTC)).certificate)
    files.key.write_bytes(key)
    with pytest.raises(ValueError, match=r"can be read: .*the private key is encrypted: store it without a passphrase"):
        files.context()
