"""Damage in a data directory: one line that names the file and the way out, and nothing is written over."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from haru.embedded.identity import ensure_identity
from haru.embedded.options import OptionError
from haru_process import Up, haru

QUICK = ("--profile", "cpu:1", "--no-dashboard", "--no-usage-history", "--listen", "127.0.0.1:0")


@pytest.fixture(scope="module")
def used(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that was used."""
    home = tmp_path_factory.mktemp("used")
    up = Up(home, "--data-dir", str(home / "data"), *QUICK[:4])
    up.stop()
    return home / "data"


def told(home: Path, directory: Path) -> str:
    """What `haru up` has to say, which refuses in one line."""
    done = haru(home, "up", "--data-dir", str(directory), *QUICK)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_damaged_database_row_is_reported_in_one_line(used: Path, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    state = directory / "state.db"
    with (
        contextlib.closing(sqlite3.connect(used / "state.db")) as whole,
        contextlib.closing(sqlite3.connect(state)) as copy,
    ):
        whole.backup(copy)
        copy.execute("UPDATE objects SET value = X'7b' WHERE key = 'namespaces/default'")
        copy.commit()
        before = copy.execute("SELECT * FROM objects ORDER BY key").fetchall()
    text = told(tmp_path, directory)
    assert str(state) in text and "namespaces/default is damaged" in text and "haru snapshot restore" in text
    with contextlib.closing(sqlite3.connect(state)) as copy:
        assert copy.execute("SELECT * FROM objects ORDER BY key").fetchall() == before


def test_damaged_certificate_is_reported_in_one_line(used: Path, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    pki = directory / "pki"
    pki.mkdir(parents=True)
    for file in (used / "pki").iterdir():
        (pki / file.name).write_bytes(file.read_bytes())
    (pki / "server.crt").write_bytes(b"garbage")
    text = told(tmp_path, directory)
    assert str(pki / "server.crt") in text and "holds no certificate" in text and "remove" in text
    (pki / "server.crt").unlink()
    (pki / "server.key").unlink()
    up = Up(tmp_path, "--data-dir", str(directory), *QUICK[:4])
    assert up.stop() == 0, "what is removed is made anew"


KEPT = ("ca.crt", "ca.key", "server.crt", "server.key", "front-proxy-ca.crt", "front-proxy-ca.key")


@pytest.mark.parametrize("content", [b"", b"garbage", b"\xff\xfe", b"-----BEGIN CERTIFICATE-----\nAAAA\n"], ids=repr)
@pytest.mark.parametrize("name", [*KEPT, "service-account.key", "tokens.json"])
def test_damaged_identity_file_is_named_with_the_fix(tmp_path: Path, name: str, content: bytes) -> None:
    ensure_identity(tmp_path, "127.0.0.1")
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(OptionError) as error:
        ensure_identity(tmp_path, "127.0.0.1")
    text = str(error.value)
    assert text.startswith(f"{file}: ") and "restore it from a backup, or remove " in text
    assert file.read_bytes() == content


@pytest.mark.parametrize("pair", ["ca", "server", "front-proxy-ca"])
def test_key_that_does_not_match_its_certificate_is_reported(tmp_path: Path, pair: str) -> None:
    for directory in ("a", "b"):
        ensure_identity(tmp_path / directory, "127.0.0.1")
    (tmp_path / "a" / f"{pair}.key").write_bytes((tmp_path / "b" / f"{pair}.key").read_bytes())
    with pytest.raises(OptionError, match=rf"{pair}\.key: is not the key of .*{pair}\.crt"):
        ensure_identity(tmp_path / "a", "127.0.0.1")


def test_missing_ca_gives_new_ca_and_server_certificate(tmp_path: Path) -> None:
    from cryptography import x509

    old = ensure_identity(tmp_path, "127.0.0.1")
    (tmp_path / "ca.crt").unlink()
    (tmp_path / "ca.key").unlink()
    new = ensure_identity(tmp_path, "127.0.0.1")
    assert new.ca_pem != old.ca_pem and new.tokens == old.tokens
    authority = x509.load_pem_x509_certificate(new.ca_pem)
    x509.load_pem_x509_certificate(new.server_cert.read_bytes()).verify_directly_issued_by(authority)
