import asyncio
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fake_api import FakeApi

from haru.client.api import ApiClient
from haru.client.asgi import AsgiTransport
from haru.client.credentials import BearerToken, CredentialError, ExpiringToken, Program, ProgramToken
from haru.kube import kinds
from haru.kube.errors import StatusError
from haru.kube.names import format_time

PODS = kinds.lookup("", "v1", "pods")
NOW = datetime(2026, 1, 1, tzinfo=UTC)

# Prints a token that tells how often it ran, and what it was told.
SCRIPT = """
import json, os, pathlib, sys
runs = pathlib.Path(sys.argv[1])
count = int(runs.read_text()) + 1 if runs.exists() else 1
runs.write_text(str(count))
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
assert info["kind"] == "ExecCredential" and info["spec"]["interactive"] is False
status = {"token": f"token-{count}-{os.environ['EXTRA']}"}
if len(sys.argv) > 2:
    status["expirationTimestamp"] = sys.argv[2]
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


def program(tmp_path: Path, *args: str) -> Program:
    return Program(sys.executable, ("-c", SCRIPT, str(tmp_path / "runs"), *args), {"EXTRA": "x"})


async def test_token_file_is_read_again_after_a_minute(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("one\n")
    now = [0.0]
    token = BearerToken("", file, lambda: now[0])
    assert await token.value() == "one"
    file.write_text("two\n")
    now[0] = 59
    assert await token.value() == "one"
    now[0] = 60
    assert await token.value() == "two"
    file.unlink()
    now[0] = 200
    assert await token.value() == "two"


async def test_token_file_that_can_not_be_read_is_named(tmp_path: Path):
    with pytest.raises(CredentialError, match=f"^token file {tmp_path}/none: No such file or directory$"):
        await BearerToken("", tmp_path / "none").value()


@pytest.mark.parametrize("token", ["two\nlines", "é", "a\x00b"])
async def test_token_that_no_header_can_carry_is_a_credential_error(token):
    api = FakeApi()
    client = ApiClient.in_process(api, token)
    with pytest.raises(CredentialError, match="the bearer token is not one line of ASCII"):
        await client.list(PODS)
    with pytest.raises(CredentialError, match="the bearer token is not one line of ASCII"):
        await client.raw("GET", "/version")
    assert api.log == []


async def test_exec_credential_is_cached_until_shortly_before_expiry(tmp_path: Path):
    now = [NOW]
    token = ProgramToken(program(tmp_path, format_time(NOW + timedelta(minutes=5))), lambda: now[0])
    assert await token.value() == "token-1-x"
    now[0] = NOW + timedelta(minutes=4, seconds=29)
    assert await token.value() == "token-1-x"
    now[0] = NOW + timedelta(minutes=4, seconds=30)
    assert await token.value() == "token-2-x"


async def test_exec_credential_is_renewed_once_after_401(tmp_path: Path):
    api = FakeApi()
    client = ApiClient(AsgiTransport(api), token=ProgramToken(program(tmp_path)))
    await client.list(PODS)
    api.fail("GET", 401)
    await client.list(PODS)
    assert [h["authorization"] for h in api.headers] == ["Bearer token-1-x", "Bearer token-1-x", "Bearer token-2-x"]
    api.fail("GET", 401)
    api.fail("GET", 401)
    with pytest.raises(StatusError) as refused:
        await client.list(PODS)
    assert refused.value.code == 401


class Revoked:
    """A server that refuses the token `old`: of `late` requests once another one has come, of all others at once."""

    def __init__(self, late: int) -> None:
        self.late = late
        self.renewed = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        is_old = (b"authorization", b"Bearer old") in scope["headers"]
        if not is_old:
            self.renewed.set()
        elif self.late:
            self.late -= 1
            await self.renewed.wait()
        await send({"type": "http.response.start", "status": 401 if is_old else 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


class CountedToken(ExpiringToken):
    asked = 0

    async def ask(self) -> tuple[str, str]:
        self.asked += 1
        await asyncio.sleep(0)
        return "old" if self.asked == 1 else "new", ""


async def test_token_that_many_requests_had_refused_is_renewed_once_for_all():
    token = CountedToken()
    client = ApiClient(AsgiTransport(Revoked(late=3)), token=token)
    statuses = await asyncio.gather(*(client.get(PODS, "a", "ns") for _ in range(8)))
    assert (statuses, token.asked) == ([{}] * 8, 2)


async def test_token_file_that_many_requests_had_refused_is_read_again_for_all(tmp_path: Path):
    file = tmp_path / "token"
    file.write_text("old")
    token = BearerToken("", file)
    await token.value()
    file.write_text("new")
    client = ApiClient(AsgiTransport(Revoked(late=3)), token=token)
    assert await asyncio.gather(*(client.get(PODS, "a", "ns") for _ in range(8))) == [{}] * 8
    assert token.number == 2


TELLS_WHETHER_INTERACTIVE = """
import json, os
info = json.loads(os.environ["KUBERNETES_EXEC_INFO"])
status = {"token": str(info["spec"]["interactive"])}
print(json.dumps({"apiVersion": info["apiVersion"], "kind": "ExecCredential", "status": status}))
"""


class Stdin:
    def __init__(self, terminal: bool) -> None:
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.mark.parametrize(
    ("mode", "terminal", "told"),
    [
        ("Never", True, "False"),
        ("IfAvailable", True, "True"),
        ("IfAvailable", False, "False"),
        ("Always", True, "True"),
    ],
)
async def test_program_may_ask_questions_on_a_terminal(mode, terminal, told, monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(bool(terminal)))
    asked = Program(sys.executable, ("-c", TELLS_WHETHER_INTERACTIVE), interactive=mode)
    assert await ProgramToken(asked).value() == told


async def test_program_that_has_to_ask_questions_is_not_run_without_a_terminal(monkeypatch):
    monkeypatch.setattr(sys, "stdin", Stdin(terminal=False))
    with pytest.raises(CredentialError, match="standard input is not a terminal"):
        await ProgramToken(Program("/no/such/program", interactive="Always")).value()


async def test_fixed_token_is_not_retried_after_401():
    api = FakeApi()
    api.fail("GET", 401)
    with pytest.raises(StatusError):
        await ApiClient.in_process(api, "wrong").list(PODS)
    assert len(api.log) == 1


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (Program("/no/such/program", install_hint="get it at x"), "(?s)/no/such/program: No such file.*get it at x"),
        (Program(sys.executable, ("-c", "import sys; sys.exit('denied')")), r"failed \(1\): denied"),
        (Program(sys.executable, ("-c", "print('hello')")), "did not print an ExecCredential"),
        (Program(sys.executable, ("-c", 'print(\'{"apiVersion": "v9", "status": {}}\')')), "it answered in v9"),
        (
            Program(
                sys.executable, ("-c", 'print(\'{"apiVersion": "client.authentication.k8s.io/v1", "status": {}}\')')
            ),
            "neither a token nor a client certificate and its key",
        ),
    ],
)
async def test_failing_credential_program_is_named(bad, message):
    api = FakeApi()
    client = ApiClient(AsgiTransport(api), token=ProgramToken(bad))
    with pytest.raises(CredentialError, match=message):
        await client.list(PODS)
    assert api.log == []
