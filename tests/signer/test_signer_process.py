"""`haru signer` as a process: its socket, who may come in, keys that change while it runs, a module with keys."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from signer_driving import ISSUER, Signer, call, claims, keys, payload, public, signed

from haru import externaljwt as messages
from haru.jose import is_signed_by, split
from haru_process import environment, haru, until

NOBODY = 65534


def is_good(token: str, told: messages.Keys) -> bool:
    """Whether one of the keys has signed it, the one it names."""
    parts = split(token)
    [key] = [public(key) for key in told.keys if key.key_id == parts.key_id]
    return is_signed_by(key, parts.algorithm, parts.signed, parts.signature)


@pytest.fixture
def signer(tmp_path: Path) -> Iterator[Signer]:
    arguments = ["--key-dir", "keys", "--generate", "--issuer", ISSUER, "--refresh-hint", "1s"]
    running = Signer(tmp_path, str(tmp_path / "s"), *arguments, "--max-token-expiration", "10m")
    yield running
    running.stop()


def test_signer_signs_service_account_tokens_and_refuses_other_data(signer: Signer, tmp_path: Path) -> None:
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
    token = signed(signer.socket, claims())
    told = keys(signer.socket)
    assert is_good(token, told) and told.refresh_hint == 1 and told.data_nanoseconds
    assert messages.read_metadata_answer(call(signer.socket, messages.METADATA)) == 600
    for request, text in (
        (messages.sign_request(payload(claims(iss="https://other"))), "iss is none of the issuers"),
        (b"\x0a\x7f", "the bytes are no SignJWTRequest"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as error:
            call(signer.socket, messages.SIGN, request)
        assert error.value.code() is grpc.StatusCode.INVALID_ARGUMENT and text in (error.value.details() or "")
    # What it says of its work has nothing of a payload or of a key in it.
    log = signer.log.read_text()
    assert "refused to sign" in log and payload(claims())[:40] not in log and "PRIVATE" not in log
    assert signer.stop() == 0 and not (tmp_path / "s").exists()


def test_rotated_key_is_used_without_restart(signer: Signer, tmp_path: Path) -> None:
    [first] = keys(signer.socket).keys
    answer = haru(tmp_path, "signer", "rotate", "--key-dir", "keys", "--algorithm", "ES384")
    assert answer.returncode == 0, answer.stderr
    second = keys(signer.socket).keys[1]
    assert answer.stdout.startswith(f"{second.key_id} is published now and signs from ")
    until("the new key signs", lambda: split(signed(signer.socket, claims())).key_id == second.key_id)
    told = keys(signer.socket)
    assert [key.key_id for key in told.keys] == [first.key_id, second.key_id], "the old one stays"
    assert is_good(signed(signer.socket, claims()), told)


@pytest.mark.nightly
def test_keys_rotate_automatically(tmp_path: Path) -> None:
    pace = ["--refresh-hint", "1s", "--max-token-expiration", "10m", "--rotate-every", "3s"]
    signer = Signer(tmp_path, str(tmp_path / "s"), "--key-dir", "keys", "--generate", *pace)
    try:
        first = split(signed(signer.socket, claims())).key_id
        until("another key signs", lambda: split(signed(signer.socket, claims())).key_id != first)
        assert is_good(signed(signer.socket, claims()), keys(signer.socket))
    finally:
        signer.stop()


def _becomes_nobody() -> None:
    os.setresuid(NOBODY, NOBODY, NOBODY)


ASKS = """
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.settimeout(20)
try:
    client.connect(sys.argv[1].replace("@", "\\0"))
    client.sendall(b"PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0)))
    print(len(client.recv(64)))
except PermissionError:
    print("permission denied")
except OSError as error:
    print(0)
"""


def asks_as_nobody(endpoint: str) -> str:
    """What somebody else gets out of the socket: the number of bytes, or that it may not connect."""
    answer = subprocess.run(
        ["/usr/bin/env", "python3", "-c", ASKS, endpoint],
        preexec_fn=_becomes_nobody,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return answer.stdout.strip()


@pytest.mark.host
def test_socket_accepts_only_allowed_users(tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can become somebody else to try it")
    # Directories of pytest are for their owner only, who is not nobody: the socket's own mode is to be tried.
    place = Path("/tmp") / f"haru-test-{os.getpid()}-{time.time_ns()}"
    place.mkdir(0o755)
    name = f"@haru-test-{time.time_ns()}"
    by_path = Signer(tmp_path, str(place / "s"), "--key-dir", "keys", "--generate")
    by_name = Signer(tmp_path, name, "--key-dir", "keys", "--generate", name="named")
    try:
        assert is_good(signed(name, claims()), keys(name)), "our own user may"
        assert asks_as_nobody(str(place / "s")) == "permission denied"
        assert asks_as_nobody(name) == "0"
        until("it is told", lambda: f"refused a connection to {name} of the user {NOBODY}" in by_name.log.read_text())
        by_name.stop()
        by_name = Signer(tmp_path, name, "--key-dir", "keys", "--allow-uid", str(NOBODY), name="wider")
        assert int(asks_as_nobody(name)) > 0
    finally:
        by_path.stop()
        by_name.stop()
        shutil.rmtree(place)


def test_abstract_socket_name_in_use_is_reported(tmp_path: Path) -> None:
    name = f"@haru-test-{time.time_ns()}"
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind("\0" + name[1:])
        answer = haru(tmp_path, "signer", "serve", "--socket", name, "--key-dir", "keys", "--generate")
    assert answer.returncode == 2 and f"--socket: {name}: Address already in use" in answer.stderr


# --- a module with keys

LIBRARY = Path("/usr/lib/softhsm/libsofthsm2.so")
MAKE_KEYS = """
import sys, pkcs11
from pkcs11.util.ec import encode_named_curve_parameters
token = pkcs11.lib(sys.argv[1]).get_token(token_label="haru")
with token.open(rw=True, user_pin="1234") as session:
    for label, curve in (("p256", "secp256r1"), ("p384", "secp384r1"), ("p521", "secp521r1"), ("k1", "secp256k1")):
        parameters = {pkcs11.Attribute.EC_PARAMS: encode_named_curve_parameters(curve)}
        domain = session.create_domain_parameters(pkcs11.KeyType.EC, parameters, local=True)
        domain.generate_keypair(store=True, label=label)
    session.generate_keypair(pkcs11.KeyType.RSA, 2048, store=True, label="rsa")
"""


class Token:
    """A token of SoftHSM with some keys, in a directory of its own."""

    def __init__(self, home: Path, tool: str) -> None:
        self.home, self.conf = home, str(home / "softhsm.conf")
        (home / "tokens").mkdir()
        (home / "softhsm.conf").write_text(f"directories.tokendir = {home / 'tokens'}\n")
        self.pin("1234\n")
        env = environment(home, SOFTHSM2_CONF=self.conf)
        init = [tool, "--init-token", "--free", "--label", "haru", "--so-pin", "4321", "--pin", "1234"]
        subprocess.run(init, env=env, check=True, capture_output=True, timeout=60)
        subprocess.run([sys.executable, "-c", MAKE_KEYS, str(LIBRARY)], env=env, check=True, timeout=60)
        module = ["--pkcs11-module", str(LIBRARY), "--pkcs11-token", "haru", "--pkcs11-pin-file", "pin"]
        self.arguments = module

    def pin(self, text: str, mode: int = 0o600) -> None:
        (self.home / "pin").write_text(text)
        (self.home / "pin").chmod(mode)

    def check(self, *labels: str, algorithm: str) -> None:
        """Serve these keys: the first one signs, all are published."""
        named = [part for label in labels for part in ("--pkcs11-key", label)]
        endpoint = str(self.home / "s")
        signer = Signer(self.home, endpoint, *self.arguments, *named, name=labels[0], SOFTHSM2_CONF=self.conf)
        try:
            token, told = signed(endpoint, claims()), keys(endpoint)
            assert split(token).algorithm == algorithm and is_good(token, told)
            assert [key.key_id for key in told.keys] == list(labels)
        finally:
            assert signer.stop() == 0

    def refused(self, *arguments: str) -> str:
        """What a signer says that does not start."""
        serve = ["signer", "serve", "--socket", "s", *self.arguments, *arguments]
        answer = haru(self.home, *serve, SOFTHSM2_CONF=self.conf)
        assert answer.returncode == 2 and answer.stderr.count("\n") == 1, answer.stderr
        return answer.stderr


@pytest.fixture
def token(tmp_path: Path) -> Token:
    tool = shutil.which("softhsm2-util")
    if tool is None or not LIBRARY.exists():
        pytest.skip("softhsm2 is not installed: there is no module to try")
    return Token(tmp_path, tool)


@pytest.mark.host
def test_pkcs11_keys_sign_tokens(token: Token) -> None:
    token.check("p256", "rsa", "p384", "p521", algorithm="ES256")


@pytest.mark.host
@pytest.mark.nightly
def test_all_pkcs11_key_types_sign_tokens(token: Token) -> None:
    for label, algorithm in (("p384", "ES384"), ("p521", "ES512"), ("rsa", "RS256")):
        token.check(label, "p256", algorithm=algorithm)


@pytest.mark.host
@pytest.mark.nightly
def test_invalid_pkcs11_options_are_reported(token: Token) -> None:
    for wrong, text in (
        (["--pkcs11-key", "none"], '--pkcs11-key: Invalid value: "none": no pair of keys has this label'),
        (["--pkcs11-key", "k1"], '--pkcs11-key: Invalid value: "k1": is neither an RSA key nor one on'),
        (["--pkcs11-key", "p256", "--pkcs11-token", "none"], "token none: NoSuchToken"),
        (["--pkcs11-key", "p256", "--pkcs11-module", "none.so"], "--pkcs11-module: none.so: token haru: "),
    ):
        assert text in token.refused(*wrong)
    token.pin("9999")
    said = token.refused("--pkcs11-key", "p256")
    assert "PinIncorrect" in said and "9999" not in said
    token.pin("1234", 0o644)
    assert "pin: others may read it: chmod 600 pin" in token.refused("--pkcs11-key", "p256")
