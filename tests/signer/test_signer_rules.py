"""What a signer decides by itself: which key signs and which are published, what it signs, which files it takes."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from signer_driving import ISSUER, claims, payload, public

from haru.cli.main import main
from haru.errors import InputError
from haru.jose import decode, encode, is_signed_by, jwk, public_key
from haru.signer import files as files_module
from haru.signer.files import FileKeys, KeyStoreError
from haru.signer.listener import ListenerError, _check_place
from haru.signer.schedule import Pace, Record, published, signing, state, with_new
from haru.signer.service import RefusedClaims, check_claims

PACE = Pace(refresh_hint=60, max_expiration=3600)


def ids(records: list[Record]) -> list[str]:
    return [record.key_id for record in records]


def test_new_key_is_published_before_it_signs_and_old_one_until_tokens_expire() -> None:
    records = with_new([], "a", "ES256", 1000, PACE)
    assert signing(records, 1000) == Record("a", "ES256", 1000), "the first signs at once"
    records = with_new(records, "b", "ES256", 5000, PACE)
    first, second = records
    assert second.signs_from == 5120 and first.ends == 5120 + 3600 + 60 + 60
    for now, signs, told in (
        (5000, "a", ["a", "b"]),
        (5119, "a", ["a", "b"]),
        (5120, "b", ["a", "b"]),
        (8839, "b", ["a", "b"]),
        (8840, "b", ["b"]),
    ):
        key = signing(records, now)
        assert key is not None and key.key_id == signs and ids(published(records, now)) == told, now
    assert [state(records, r, 5000) for r in records] == ["signs", "published, signs later"]
    assert [state(records, r, 6000) for r in records] == ["published, signed before", "signs"]
    assert [state(records, r, 9000) for r in records] == ["over", "signs"]


def test_key_replaced_before_signing_is_retired_the_same_way() -> None:
    records = with_new(with_new(with_new([], "a", "ES256", 0, PACE), "b", "ES256", 100, PACE), "c", "RS256", 110, PACE)
    assert [record.signs_from for record in records] == [0, 220, 230]
    moments = [(key.key_id, now) for now in (100, 219, 220, 229, 230) if (key := signing(records, now))]
    assert moments == [("a", 100), ("a", 219), ("b", 220), ("b", 229), ("c", 230)]
    # A token that a key signs in its last second is over before the key is.
    for old, new in pairwise(records):
        assert old.ends is not None and old.ends >= new.signs_from + PACE.max_expiration + 60


def test_verification_only_keys_never_sign() -> None:
    records = [Record("x", "ES256", 0, None, True)]
    assert signing(records, 10) is None and ids(published(records, 10)) == ["x"]
    records = with_new(records, "a", "ES256", 10, PACE)
    assert signing(records, 10) == records[1] and records[0].ends is None, "and are not replaced"
    assert state(records, records[0], 10) == "checks only"


REFUSED: dict[str, tuple[Callable[[], str], str]] = {
    "another issuer": (lambda: payload(claims(iss="https://other")), "iss is none of the issuers"),
    "no issuer": (lambda: payload(claims(iss=None)), "iss is none"),
    "a person": (lambda: payload(claims(sub="system:admin")), "sub is no ServiceAccount"),
    "a subject of too many parts": (lambda: payload(claims(sub="system:serviceaccount:a:b:c")), "sub is no"),
    "nobody to hear it": (lambda: payload(claims(aud=[])), "aud names nobody"),
    "no end": (lambda: payload(claims(exp=None)), "iat and exp must be times"),
    "an end that is true": (lambda: payload(claims(exp=True)), "iat and exp must be times"),
    "a long life": (lambda: payload(claims(exp=int(time.time()) + 4000)), "exp is not within 3600 s"),
    "an end before the beginning": (lambda: payload(claims(exp=int(time.time()) - 30)), "exp is not within"),
    "issued yesterday": (lambda: payload(claims(iat=int(time.time()) - 86400)), "iat is not now"),
    "issued tomorrow": (lambda: payload(claims(iat=int(time.time()) + 86400)), "iat is not now"),
    "no JSON": (lambda: encode(b"hello"), "the payload is no JSON"),
    "a list": (lambda: encode(b"[]"), "the payload is no JSON object"),
    "twice": (lambda: encode(b'{"iss":"a","iss":"b"}'), "the payload has a member twice"),
    "padding": (lambda: payload(claims()) + "=", "is not base64url"),
    "a novel": (lambda: payload(claims(pad="x" * 50_000)), "more than 49152 bytes"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_claims_are_refused(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(RefusedClaims, match=text):
        check_claims(make(), time.time(), 3600, [ISSUER])


def test_valid_claims_are_accepted() -> None:
    check_claims(payload(claims()), time.time(), 3600, [ISSUER, "https://other"])
    check_claims(payload(claims(iss="https://anybody")), time.time(), 3600, [])
    check_claims(payload(claims(exp=int(time.time()) + 3600)), time.time(), 3600, [])


# --- files


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "RS256"])
async def test_file_keys_sign_verifiable_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    monkeypatch.setattr(files_module, "_RSA_BITS", 2048)  # found sooner
    directory, now = tmp_path / "keys", int(time.time())
    files = FileKeys(directory)
    files.add(algorithm, now)
    assert mode(directory) == 0o700
    assert {mode(path) for path in directory.iterdir()} == {0o600}
    sent = payload(claims())
    header, signature = await files.sign(sent, now)
    [key] = files.keys(now)
    assert is_signed_by(public(key), algorithm, f"{header}.{sent}".encode(), decode(signature))


async def test_key_added_by_another_process_is_used(tmp_path: Path) -> None:
    running, other = FileKeys(tmp_path), FileKeys(tmp_path)
    os.chmod(tmp_path, 0o700)  # noqa: PTH101
    running.set_pace(Pace(1, 600))
    running.add("ES256", 1000)
    before = running.data_nanoseconds()
    assert len(running.keys(1000)) == 1
    other.read()
    assert other.pace == Pace(1, 600)
    made = other.add("ES384", 2000)
    assert [key.key_id for key in running.keys(2000)][1] == made.key_id and running.data_nanoseconds() > before
    assert json.loads(_header(await running.sign("x", 2001)))["alg"] == "ES256"
    assert json.loads(_header(await running.sign("x", 2002)))["kid"] == made.key_id
    first = running.records()[0]
    assert running.remove_over(2002) == []
    assert running.remove_over(2002 + 600 + 60 + 1) == [first.key_id]
    assert not (tmp_path / f"{first.key_id}.pem").exists() and len(other.keys(2003)) == 1


def _header(signed: tuple[str, str]) -> bytes:
    return decode(signed[0])


@pytest.mark.parametrize("which", ["*.pem", "keys.json"])
@pytest.mark.parametrize("bad", [0o640, 0o604, 0o660])
def test_key_files_readable_by_others_are_refused(tmp_path: Path, which: str, bad: int) -> None:
    tmp_path.chmod(0o700)
    FileKeys(tmp_path).add("ES256", 1000)
    [path] = tmp_path.glob(which)
    path.chmod(bad)
    with pytest.raises(KeyStoreError, match=rf"{path.name}: others may read it \(mode 0{bad:o}\): chmod 600"):
        FileKeys(tmp_path).keys(1000)


def test_key_directory_writable_by_others_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(KeyStoreError, match=r"others may write there \(mode 0777\): chmod 700"):
        FileKeys(tmp_path).add("ES256", 1000)


async def test_damaged_key_files_are_reported_without_their_content(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)  # noqa: PTH101
    files = FileKeys(tmp_path)
    with pytest.raises(KeyStoreError, match="there are no keys yet: make one with haru signer serve --generate"):
        files.keys(0)
    made = files.add("ES256", 1000)
    path = tmp_path / f"{made.key_id}.pem"
    secret = path.read_text()
    path.write_text(secret.replace("A", "B"))
    with pytest.raises(KeyStoreError) as error:
        FileKeys(tmp_path).keys(1000)
    assert "not the private key for ES256" in str(error.value) and secret[40:60] not in str(error.value)
    path.unlink()
    with pytest.raises(KeyStoreError, match="No such file"):
        FileKeys(tmp_path).keys(1000)
    target = tmp_path / "elsewhere"
    target.write_text(secret)
    path.symlink_to(target)
    with pytest.raises(KeyStoreError, match="symbolic links"):
        FileKeys(tmp_path).keys(1000)
    for text in ("", "[]", "{}", '{"pace": {}, "keys": [{"key_id": "../x", "algorithm": "ES256", "signs_from": 0}]}'):
        (tmp_path / "keys.json").write_text(text)
        with pytest.raises(KeyStoreError, match="not a list of keys"):
            FileKeys(tmp_path).keys(1000)


def test_foreign_public_key_is_added_for_verification(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    tmp_path.chmod(0o700)
    files = FileKeys(tmp_path)
    key = rsa.generate_private_key(65537, 2048).public_key()
    pem = key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    files.add_public("legacy", pem, 1000)
    files.add("ES256", 1000)
    assert next((k.key_id, k.excluded) for k in files.keys(1000)) == ("legacy", True)
    odd = (
        ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    for key_id, given, text in (
        ("legacy", pem, "name the key as no other one"),
        ("../up", pem, "name the key as no other one"),
        ("x", b"rubbish", "is no public key in PEM"),
        ("x", odd, "is neither an RSA key nor one on"),
    ):
        with pytest.raises(KeyStoreError, match=text):
            files.add_public(key_id, given, 1000)


# --- the command and the socket


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("serve --key-dir k", '--socket: Invalid value: "": write the path of a Unix socket, or @NAME'),
        ("serve --socket unix:///s --key-dir k", "write the path of a Unix socket"),
        ("serve --socket @ --key-dir k", "write the path of a Unix socket"),
        (f"serve --socket /{'s' * 120} --key-dir k", "a socket has at most 107 bytes"),
        ("serve --socket s", "name --key-dir or --pkcs11-module"),
        ("serve --socket s --key-dir k --pkcs11-module m", "name --key-dir or --pkcs11-module"),
        ("serve --socket s --pkcs11-module m", "name --pkcs11-token, --pkcs11-pin-file and --pkcs11-key, too"),
        (
            "serve --socket s --pkcs11-module m --pkcs11-token t --pkcs11-pin-file p --pkcs11-key k --generate",
            "Forbidden with --pkcs11-module",
        ),
        ("serve --socket s --key-dir k", "there are no keys yet: make one with haru signer serve --generate"),
        ("serve --socket s --key-dir k --refresh-hint 0", "--refresh-hint: Invalid value"),
        ("serve --socket s --key-dir k --max-token-expiration 9m", '"540s": write at least 10m'),
        ("serve --socket s --key-dir k --rotate-every 2m", '"120s": write more than 120s'),
        ("serve --socket s --key-dir k --refresh-hint soon", 'Invalid value: "soon": write a duration'),
        ("serve --socket none/s --key-dir k --generate", "--socket: none: No such file or directory"),
        ("serve --socket text --key-dir k --generate", "--socket: text: there is something else"),
        ("serve --socket open/s --key-dir k --generate", "--socket: open: everybody may write there"),
        ("keys", "--key-dir: Required value"),
        ("keys --key-dir k", "make one with haru signer serve --generate"),
        ("rotate --key-dir k", "make one with haru signer serve --generate"),
        ("add-key --key-dir k", "name the file of a --public-key, and its --key-id"),
        ("add-key --key-dir k --key-id x --public-key none.pem", "none.pem: No such file"),
        ("add-key --key-dir k --key-id x --public-key text", "the key x is no public key in PEM"),
    ],
)
def test_invalid_signer_flags_exit_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text("text")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    try:
        status = main(["signer", *arguments.split()])
    except SystemExit as end:
        status = int(str(end.code))
    said = capsys.readouterr().err
    assert status == 2 and text in said and said.startswith("haru signer: ") and said.count("\n") == 1, said


def test_keys_command_lists_keys_with_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = FileKeys(tmp_path / "keys")
    files.add("ES256", 1000)
    assert main(["signer", "rotate", "--key-dir", str(tmp_path / "keys"), "--algorithm", "RS256"]) == 0
    assert "is published now and signs from 20" in capsys.readouterr().out
    assert main(["signer", "keys", "--key-dir", str(tmp_path / "keys")]) == 0
    lines = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3 and lines[1][0] == files.records()[0].key_id
    assert main(["signer", "keys", "--key-dir", str(tmp_path / "keys"), "-o", "json"]) == 0
    told: Any = json.loads(capsys.readouterr().out)
    assert [(key["algorithm"], key["state"]) for key in told["keys"]] == [
        ("ES256", "signs"),
        ("RS256", "published, signs later"),
    ]
    assert told["keys"][0]["ends"] and told["keys"][1]["ends"] is None


def test_stale_socket_file_is_replaced(tmp_path: Path) -> None:
    import socket

    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(tmp_path / "s"))
    _check_place(tmp_path / "s")
    _check_place(tmp_path / "new")
    with pytest.raises(ListenerError):
        _check_place(tmp_path)
    assert issubclass(ListenerError, InputError) and os.umask(0o022) == 0o022


def test_key_whose_coordinates_begin_with_zero_is_padded_in_its_jwk() -> None:
    curve = ec.SECP256R1()
    short = next(
        key
        for key in (ec.generate_private_key(curve).public_key() for _ in range(10_000))
        if min(key.public_numbers().x, key.public_numbers().y) < 1 << 248
    )
    told = jwk(public_key("k", short))
    assert (told["kty"], told["crv"], told["alg"]) == ("EC", "P-256", "ES256")
    assert {len(decode(told["x"])), len(decode(told["y"]))} == {32}
