"""Signing in over real TLS: tokens, sessions, forms, wrong tokens, proxies, and names of the server."""

from __future__ import annotations

import re
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from engine_objects import node, pod
from fake_api import FakeApi
from tenant_clusters import namespace

from haru.apiserver.auth import Pair, client_pair, new_authority
from haru.client.api import ApiClient
from haru.dashboard.signin.app import SESSION
from haru.dashboard.signin.attempts import MOST, WINDOW_SECONDS, Attempts
from haru.dashboard.signin.hosts import KnownHosts
from haru.dashboard.signin.sessions import MOST_OF_ONE, Sessions
from haru.dashboard.team_server import TeamOptions, TeamServer
from haru.kube.kinds import known_kind
from haru.kube.yaml import load
from haru.secure_serving.options import ServingOptions
from haru.secure_serving.request_header import FrontProxy

pytestmark = pytest.mark.asyncio(loop_scope="module")
Obj = dict[str, Any]
NOW = datetime.now(UTC)
FRONT, OTHER = new_authority(NOW, "front"), new_authority(NOW, "other")
RESOURCES = ("pods", "resourceclaims", "events", "resourcequotas")
HTML = {"Accept": "text/html"}


class Cluster(FakeApi):
    """Two tenants and an administrator; tokens are `token-of-USER`."""

    def __init__(self) -> None:
        super().__init__()
        self.rights = {"ann": namespace(0), "bob": namespace(1), "root": "", "nobody": "none"}
        self.down = False
        self.reviews = 0

    async def _answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> tuple[int, Obj]:
        if not path.endswith(("/tokenreviews", "/subjectaccessreviews")):
            return await super()._answer(method, path, query, body)
        if self.down:
            return 403, {"kind": "Status", "code": 403, "reason": "Forbidden", "message": "no"}
        self.reviews += 1
        spec = load(body.decode())["spec"]
        if path.endswith("/tokenreviews"):
            user = spec["token"].removeprefix("token-of-")
            known = user != spec["token"] and user in self.rights
            return 201, {"status": {"authenticated": known, "user": {"username": user}}}
        about = spec["resourceAttributes"]
        where = self.rights.get(spec["user"], "none")
        allowed = about["resource"] in RESOURCES and (where == "" or about.get("namespace") == where)
        return 201, {"status": {"allowed": allowed}}


@dataclass
class Served:
    api: Cluster
    server: TeamServer
    folder: Path

    def browser(self, pair: Pair | None = None) -> httpx.AsyncClient:
        """A browser with no cookies yet; with `pair` it shows a certificate."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if pair is not None:
            file = self.folder / "client.pem"
            file.write_bytes(pair.certificate + b"\n" + pair.key)
            context.load_cert_chain(file)
        return httpx.AsyncClient(base_url=f"https://localhost:{self.server.port}", verify=context)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    api, folder = Cluster(), tmp_path_factory.mktemp("team")
    client = ApiClient.in_process(api)
    objects: list[Obj] = [node("n1")]
    for number in range(2):
        where = namespace(number)
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": where}})
        waiting = pod(f"wait-qz{number}z", cpu="99")
        waiting["metadata"]["namespace"] = where
        objects.append(waiting)
    for obj in objects:
        await client.create(known_kind(obj["apiVersion"], obj["kind"]), obj)
    authority = folder / "front.pem"
    authority.write_bytes(FRONT.certificate)
    proxy = FrontProxy("", ("proxy",), ("x-remote-user",), (), ("x-remote-group",), ("x-remote-extra-",))
    serving = ServingOptions(address="127.0.0.1", client_ca_file=authority)
    server = TeamServer(client, TeamOptions(serving, ("page.example",), front_proxy=proxy))
    await server.start()
    yield Served(api, server, folder)
    await server.stop()
    await client.close()


async def form_of(browser: httpx.AsyncClient, where: str = "/sign-in") -> str:
    found = await browser.get(where)
    assert found.status_code == 200
    [number] = re.findall(r'name="form" value="([^"]+)"', found.text)
    return str(number)


async def sign_in(browser: httpx.AsyncClient, token: str, **more: str) -> httpx.Response:
    fields = {"form": await form_of(browser), "next": "/queue", "token": token, **more}
    return await browser.post("/sign-in", data=fields)


async def test_token_opens_a_session_that_shows_what_its_owner_may_see(served: Served) -> None:
    for user, seen in (("ann", {"0"}), ("bob", {"1"}), ("root", {"0", "1"})):
        async with served.browser() as browser:
            found = await browser.get("/queue", headers=HTML)
            assert (found.status_code, found.headers["Location"]) == (303, "/sign-in?next=%2Fqueue")
            entered = await sign_in(browser, f" token-of-{user}\n")
            assert (entered.status_code, entered.headers["Location"]) == (303, "/queue")
            [cookie] = [c for c in entered.headers.get_list("Set-Cookie") if c.startswith(SESSION)]
            assert "token-of" not in cookie
            assert set(cookie.split("; ")[1:]) == {"Path=/", "Secure", "HttpOnly", "SameSite=Strict", "Max-Age=43200"}
            page = await browser.get("/queue")
            text = page.text
            assert page.status_code == 200 and set(re.findall(r"wait-qz(\d)z", text)) == seen
            assert f"signed in as {user}" in text and "token-of" not in text
            assert ("another namespace" in text) == (user != "root")


async def test_live_page_of_a_tenant_names_nothing_that_is_hidden(served: Served) -> None:
    async with served.browser() as browser:
        await sign_in(browser, "token-of-ann")
        async with browser.stream("GET", "/changes", params={"of": "/queue"}) as stream:
            line = await anext(stream.aiter_lines())
        assert "wait-qz0z" in line and "qz1z" not in line


async def test_sign_out_ends_the_session_and_needs_the_form(served: Served) -> None:
    async with served.browser() as browser:
        await sign_in(browser, "token-of-ann")
        text = (await browser.get("/queue")).text
        [number] = re.findall(r'action="/sign-out".*?name="form" value="([^"]+)"', text)
        assert (await browser.post("/sign-out", data={"form": "x"})).status_code == 403
        assert (await browser.get("/queue")).status_code == 200
        kept = browser.cookies[SESSION]
        found = await browser.post("/sign-out", data={"form": number})
        assert (found.status_code, found.headers["Location"]) == (303, "/sign-in")
    async with served.browser() as browser:
        stale = await browser.get("/queue", headers={"Cookie": f"{SESSION}={kept}"})
        assert stale.status_code == 401


async def test_form_of_another_site_or_without_its_number_signs_nobody_in(served: Served) -> None:
    async with served.browser() as browser:
        fields = {"form": await form_of(browser), "token": "token-of-ann"}
        cross = {"Sec-Fetch-Site": "cross-site"}
        assert (await browser.post("/sign-in", data=fields, headers=cross)).status_code == 403
        assert (await sign_in(browser, "token-of-ann", form="")).status_code == 403
        assert (await sign_in(browser, "token-of-ann", form="x")).status_code == 403
        assert SESSION not in browser.cookies
    async with served.browser() as browser:
        assert (await browser.post("/sign-in", data=fields)).status_code == 403


async def test_form_with_too_many_fields_is_refused(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    async with served.browser() as browser:
        found = await browser.post("/sign-in", data={f"f{number}": "x" for number in range(17)})
        assert found.status_code == 400
    assert not caplog.records, "whoever has not signed in writes no tracebacks into the log"


@pytest.mark.parametrize("where", ["https://evil.example/", "//evil.example", "/\\evil.example", "/a\r\nX: y", ""])
async def test_sign_in_leads_to_addresses_of_this_server_alone(served: Served, where: str) -> None:
    async with served.browser() as browser:
        found = await sign_in(browser, "token-of-ann", next=where)
        assert (found.status_code, found.headers["Location"]) == (303, "/") and "X" not in found.headers


async def test_bearer_token_in_a_request_needs_no_session(served: Served) -> None:
    async with served.browser() as browser:
        found = await browser.get("/queue", headers={"Authorization": "Bearer token-of-bob"})
        text = found.text
        assert (
            found.status_code == 200
            and "wait-qz1z" in text
            and "wait-qz0z" not in text
            and "Set-Cookie" not in found.headers
        )
        wrong = await browser.get("/queue", headers={"Authorization": "Bearer token-of-eve"})
        assert wrong.status_code == 401


async def test_headers_are_believed_from_a_proxy_with_a_certificate_of_the_authority_alone(served: Served) -> None:
    headers = {"X-Remote-User": "bob", "X-Remote-Group": "devs"}
    async with served.browser(client_pair(FRONT, "proxy", (), NOW)) as browser:
        found = await browser.get("/queue", headers=headers)
        assert found.status_code == 200 and "wait-qz1z" in found.text and "Sign out" not in found.text
    async with served.browser(client_pair(FRONT, "another", (), NOW)) as browser:
        assert (await browser.get("/queue", headers=headers)).status_code == 401
    async with served.browser() as browser:
        assert (await browser.get("/queue", headers=headers)).status_code == 401
    async with served.browser(client_pair(OTHER, "proxy", (), NOW)) as browser:
        with pytest.raises(httpx.TransportError):
            await browser.get("/queue", headers=headers)


async def test_person_who_may_see_nothing_is_told_so_and_can_sign_out(served: Served) -> None:
    async with served.browser() as browser:
        await sign_in(browser, "token-of-nobody")
        found = await browser.get("/queue", headers=HTML)
        text = found.text
        assert found.status_code == 403 and "may see no namespace" in text and "Sign out" in text and "n1" not in text


async def test_unknown_names_of_the_server_and_other_methods_are_refused(served: Served) -> None:
    async with served.browser() as browser:
        for host, status in (("evil.example", 421), ("page.example:444", 303), ("[::1]:1", 303), ("127.0.0.1", 303)):
            found = await browser.get("/", headers={"Host": host})
            assert found.status_code == status, host
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert (await browser.request(method, "/queue")).status_code == 405
        assert (await browser.get("/healthz", headers={"Host": "10.0.0.1:8443"})).status_code == 200
        assert (await browser.get("/static/dashboard.css")).status_code == 200


async def test_every_answer_has_the_strict_headers(served: Served) -> None:
    async with served.browser() as browser:
        for where in ("/sign-in", "/", "/nothing", "/static/dashboard.js"):
            found = await browser.get(where)
            assert found.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'"), where
            assert found.headers["X-Frame-Options"] == "DENY"


async def test_api_server_that_does_not_answer_reviews_lets_nobody_in(served: Served) -> None:
    served.api.down = True
    try:
        async with served.browser() as browser:
            assert (await sign_in(browser, "token-of-new")).status_code == 503
            assert (await browser.get("/queue", headers={"Authorization": "Bearer token-of-x"})).status_code == 503
    finally:
        served.api.down = False


async def test_wrong_tokens_of_one_address_are_bounded(served: Served) -> None:
    async with served.browser() as browser:
        answers = [await sign_in(browser, f"wrong-{number}") for number in range(MOST + 1)]
        assert [answer.status_code for answer in answers] == [401] * MOST + [429]
        assert 0 < int(answers[-1].headers["Retry-After"]) <= WINDOW_SECONDS + 1
        reviews = served.api.reviews
        assert (await sign_in(browser, "token-of-ann")).status_code == 429 and served.api.reviews == reviews
        assert SESSION not in browser.cookies


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_address_may_try_again_after_a_while_and_others_meanwhile() -> None:
    clock = Clock()
    attempts = Attempts(clock)
    for _ in range(MOST):
        assert attempts.wait("a") == 0
        attempts.failed("a")
    assert attempts.wait("a") == WINDOW_SECONDS and attempts.wait("b") == 0
    clock.now = WINDOW_SECONDS
    assert attempts.wait("a") == 0


async def test_session_ends_by_time_by_closing_and_by_too_many_of_one_person() -> None:
    clock = Clock()
    sessions = Sessions(60, clock)
    first = sessions.open("t", "ann")
    found = sessions.find(first)
    assert found is not None and found.token == "t" and found.sign_out and sessions.find("x") is None
    numbers = [sessions.open("t", "ann") for _ in range(MOST_OF_ONE)]
    assert sessions.find(first) is None and sessions.find(numbers[0]) is not None and len(sessions) == MOST_OF_ONE
    sessions.close(numbers[0])
    assert sessions.find(numbers[0]) is None
    clock.now = 60
    assert sessions.find(numbers[1]) is None
    assert len(sessions) == MOST_OF_ONE - 2


async def test_hosts_are_known_by_name_with_any_port() -> None:
    hosts = KnownHosts(["Page.example", "fd00::1"])
    assert all(
        map(hosts.knows, ("page.example", "PAGE.EXAMPLE:8443", "[fd00::1]:1", "fd00::1", "localhost:1", "[::1]"))
    )
    assert not any(map(hosts.knows, ("", "evil.example", "page.example.evil.example", "10.0.0.1:8443", "[fd00::2]")))
