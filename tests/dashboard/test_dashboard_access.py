"""Who gets in: the code works once, the cookie is what a page cannot steal, and nothing but reading is answered."""

from __future__ import annotations

import asyncio
import http.client
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from dashboard_driving import dashboard_address

from haru.client.api import ApiClient
from haru.dashboard.access import Access, check_loopback
from haru.dashboard.server import DashboardServer
from haru.embedded.options import OptionError, parse_dashboard, read_config
from haru.kube.yaml import load
from haru_process import Process, Up, free_port, haru

CHANGES = "/changes?of=/"
PATHS = (
    "/",
    "/queue",
    "/workload/default/pod/x",
    CHANGES,
    "/static/dashboard.js",
    "/static/dashboard.css",
    "/nothing",
)
POLICY = {
    "default-src": "'none'",
    "script-src": "'self'",
    "style-src": "'self'",
    "img-src": "'self'",
    "connect-src": "'self'",
    "form-action": "'self'",
    "base-uri": "'none'",
    "frame-ancestors": "'none'",
}


def test_login_code_works_once_and_gives_one_session() -> None:
    secrets = iter(["code", "session"])
    access = Access(8080, lambda: next(secrets))
    assert access.code == "code" and not access.knows("haru-dashboard-8080=code")
    assert access.enter("") is None and access.enter("cod") is None and access.enter("códe") is None
    assert access.enter("code") == "haru-dashboard-8080=session; HttpOnly; SameSite=Strict; Path=/"
    assert access.enter("code") is None and access.code == ""
    assert access.knows("a=b; haru-dashboard-8080=session")
    for wrong in ("", "haru-dashboard-8080=", "haru-dashboard-8081=session", "haru-dashboard-8080=sessio", "=;=", "é"):
        assert not access.knows(wrong), wrong


def test_server_that_follows_another_knows_its_session_and_has_a_code_of_its_own() -> None:
    before = Access(8080)
    cookie = (before.enter(before.code) or "").partition(";")[0]
    after = Access(8080, session=before.session)
    assert after.knows(cookie) and after.enter(before.code) is None
    assert (after.enter(after.code) or "").startswith(f"{cookie};")


def test_only_loopback_host_headers_are_accepted() -> None:
    access = Access(8080)
    assert all(access.knows_host(host) for host in ("127.0.0.1:8080", "localhost:8080", "LOCALHOST:8080", "[::1]:8080"))
    for foreign in (
        "",
        "127.0.0.1",
        "127.0.0.1:80",
        "evil.example:8080",
        "localhost.evil.example:8080",
        "10.0.0.1:8080",
    ):
        assert not access.knows_host(foreign), foreign


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "2001:db8::1"])
def test_dashboard_listens_only_on_loopback(host: str) -> None:
    shown = f"[{host}]:80" if ":" in host else f"{host}:80"
    with pytest.raises(ValueError, match=re.escape(f'--dashboard: Invalid value: "{shown}": ')) as raised:
        check_loopback(host, 80, "--dashboard")
    assert "take 127.0.0.1:80" in str(raised.value) and "ssh -L" in str(raised.value)
    with pytest.raises(OptionError, match="loopback only"):
        parse_dashboard(shown)

    async def start() -> None:
        DashboardServer(ApiClient.in_process(None), host, 80)  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="loopback only"):
        asyncio.run(start())


@pytest.mark.parametrize(
    ("text", "expected"),
    [("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9000", ("::1", 9000)), ("localhost:1", ("localhost", 1))],
)
def test_dashboard_flag_parses_loopback_addresses(text: str, expected: tuple[str, int]) -> None:
    assert parse_dashboard(text) == expected


def test_dashboard_address_in_configuration_file_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "up.yaml"
    head = "apiVersion: haru.dev/v1alpha1\nkind: UpConfiguration\ndashboard: "
    for text, expected in (("false", None), ("127.0.0.1:8080", ("127.0.0.1", 8080))):
        file.write_text(head + text)
        assert read_config(file, load).dashboard == expected
    for wrong, message in (("true", "must be HOST:PORT on loopback"), ("0.0.0.0:1", "loopback only")):
        file.write_text(head + wrong)
        with pytest.raises(OptionError, match=message):
            read_config(file, load)


# -- on a running cluster


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("up"), "--ephemeral", "--profile", "t4:1")
    yield running
    assert running.stop() == 0
    assert "Traceback" not in running.log.read_text()


@pytest.fixture(scope="module")
def address(up: Up) -> str:
    return dashboard_address(up)


def ask(
    address: str, path: str, method: str = "GET", host: str = "", **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    split = urlsplit(address)
    connection = http.client.HTTPConnection(split.hostname or "", split.port, timeout=30)
    sent = {"Host": host or f"{split.hostname}:{split.port}", **headers}
    connection.request(method, path, headers=sent)
    answer = connection.getresponse()
    text = answer.read().decode() if path != CHANGES or answer.status != 200 else ""
    connection.close()
    return answer.status, answer.headers, text


@pytest.fixture(scope="module")
def cookie(address: str) -> str:
    """The session; on the way there it is tried what must not open the door."""
    for path in PATHS:
        status, headers, text = ask(address, path)
        assert status == 403 and "Set-Cookie" not in headers, path
        assert "t4-0" not in text and headers["Content-Security-Policy"]
    code = urlsplit(address).query
    for wrong in ("/?code=", "/?code=x", f"/queue?{code}", f"/?{code}x"):
        status, headers, _ = ask(address, wrong)
        assert status == 403 and "Set-Cookie" not in headers, wrong
    # Neither a foreign name that resolves to loopback nor another verb uses the code up.
    assert ask(address, f"/?{code}", host="evil.example")[0] == 403
    assert ask(address, f"/?{code}", "HEAD")[0] == 403
    status, headers, _ = ask(address, f"/?{code}")
    assert (status, headers["Location"]) == (303, "/")
    name, *flags = headers["Set-Cookie"].split("; ")
    assert sorted(flags) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert len(name.partition("=")[2]) >= 40
    status, headers, text = ask(address, f"/?{code}")
    assert status == 403 and "Set-Cookie" not in headers and "haru dashboard" in text
    return name


def test_session_cookie_gives_access_to_every_page(address: str, cookie: str) -> None:
    expected = {"/workload/default/pod/x": 404, "/nothing": 404}
    for path in PATHS:
        status, headers, _ = ask(address, path, Cookie=cookie)
        assert status == expected.get(path, 200), path
        policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
        assert policy == POLICY
        assert (headers["X-Content-Type-Options"], headers["X-Frame-Options"]) == ("nosniff", "DENY")
        kept = "no-cache" if path.startswith("/static/") else "no-store"
        assert (headers["Cache-Control"], headers["Referrer-Policy"]) == (kept, "no-referrer")
        assert "Access-Control-Allow-Origin" not in headers
    assert "t4-0" in ask(address, "/map", Cookie=cookie)[2]


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_writing_methods_get_405(address: str, cookie: str, method: str) -> None:
    for path in PATHS:
        status, headers, text = ask(address, path, method, Cookie=cookie)
        assert (status, headers["Allow"]) == (405, "GET, HEAD") and "only reads" in text


def test_head_request_has_no_body(address: str, cookie: str) -> None:
    status, headers, text = ask(address, "/", "HEAD", Cookie=cookie)
    assert status == 200 and text == "" and int(headers["Content-Length"]) > 100


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "169.254.1.1:{port}"])
def test_foreign_host_header_gets_403_even_with_cookie(address: str, cookie: str, host: str) -> None:
    status, _, text = ask(address, "/", host=host.format(port=urlsplit(address).port), Cookie=cookie)
    assert status == 403 and "Host header" in text and "t4-0" not in text


@pytest.mark.parametrize("path", ["/static/", "/static/../app.py", "/static/%2e%2e/app.py", "/static//etc/passwd"])
def test_only_known_static_files_are_served(address: str, cookie: str, path: str) -> None:
    assert ask(address, path, Cookie=cookie)[0] == 404


def test_dashboard_user_may_only_read_and_no_secrets(up: Up, address: str, cookie: str) -> None:
    role = up.api.call("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles/haru:dashboard")[1]
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "watch"}
    assert not [r for rule in role["rules"] for r in rule["resources"] if r in ("secrets", "configmaps", "*")]
    # With no more than that every kind is read: else the page says which one is not.
    assert "Not allowed to read" not in ask(address, "/", Cookie=cookie)[2]


def test_separate_dashboard_command_serves_pages_and_events(up: Up, tmp_path: Path) -> None:
    process = Process(tmp_path, ["dashboard", "--kubeconfig", str(up.kubeconfig)], "dashboard")
    try:
        line = process.line()
        assert line.startswith("haru dashboard is ready, for one browser: http://127.0.0.1:")
        address = line.split()[-1]
        cookie = ask(address, f"/?{urlsplit(address).query}")[1]["Set-Cookie"].split(";")[0]
        assert "t4-0" in ask(address, "/map", Cookie=cookie)[2]
        # A browser that listens to changes does not hold up the end.
        split = urlsplit(address)
        listening = http.client.HTTPConnection(split.hostname or "", split.port, timeout=30)
        listening.request("GET", CHANGES, headers={"Cookie": cookie})
        stream = listening.getresponse()
        assert stream.headers["Content-Type"] == "text/event-stream" and stream.readline().startswith(b"data: ")
    finally:
        assert process.stop(signal.SIGINT) == 0
    stream.read()  # it was ended, not cut off: that would be an error here
    listening.close()
    assert "Traceback" not in process.log.read_text()


def test_unreachable_api_server_gives_503_page(up: Up, tmp_path: Path) -> None:
    gone = tmp_path / "gone.kubeconfig"
    gone.write_text(up.kubeconfig.read_text().replace(urlsplit(up.api.url).netloc, f"127.0.0.1:{free_port()}"))
    process = Process(tmp_path, ["dashboard", "--kubeconfig", str(gone)], "dashboard")
    try:
        address = process.line().split()[-1]
        cookie = ask(address, f"/?{urlsplit(address).query}")[1]["Set-Cookie"].split(";")[0]
        status, _, text = ask(address, "/", Cookie=cookie)
        assert status == 503 and "The API server cannot be reached" in text
    finally:
        assert process.stop() == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("up", "--ephemeral", "--dashboard", "0.0.0.0:80"), 'haru up: --dashboard: Invalid value: "0.0.0.0:80": the'),
        (("up", "--ephemeral", "--dashboard", "8080"), 'haru up: --dashboard: Invalid value: "8080": write HOST:PORT'),
        (("up", "--dashboard", "127.0.0.1:0", "--no-dashboard"), "haru up: --no-dashboard: not allowed with"),
        (
            ("dashboard", "--listen", "10.0.0.1:1"),
            'haru dashboard: --listen: Invalid value: "10.0.0.1:1": the dashboard',
        ),
    ],
)
def test_invalid_dashboard_flags_exit_with_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    answer = haru(tmp_path, *arguments)
    assert answer.returncode == 2 and answer.stderr.startswith(message), answer.stderr
    assert answer.stderr.count("\n") == 1


def test_port_in_use_is_reported_and_no_dashboard_flag_works(up: Up, address: str, tmp_path: Path) -> None:
    taken = f"127.0.0.1:{urlsplit(address).port}"
    answer = haru(tmp_path, "up", "--ephemeral", "--listen", "127.0.0.1:0", "--profile", "cpu:1", "--dashboard", taken)
    assert (
        answer.returncode == 2 and f"--dashboard: {taken}: Address already in use; take another port" in answer.stderr
    )
    answer = haru(tmp_path, "dashboard", "--kubeconfig", str(up.kubeconfig), "--listen", taken)
    assert answer.returncode == 2 and f"--listen: {taken}: Address already in use" in answer.stderr
    without = Up(tmp_path / "without", "--ephemeral", "--profile", "cpu:1", "--no-dashboard")
    without.stop()
    assert "feature gates" in without.log.read_text() and "dashboard" not in without.log.read_text()
