"""The server certificate of a data directory: kept from start to start, and made anew before it ends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from haru.apiserver.auth import read_pair, server_pair
from haru.embedded.identity import ensure_identity


@pytest.mark.parametrize(("age", "is_kept"), [(200, True), (330, False), (400, False)])
def test_server_certificate_is_made_anew_before_it_ends(age: int, is_kept: bool, tmp_path: Path) -> None:
    identity = ensure_identity(tmp_path, "127.0.0.1")
    authority = read_pair(tmp_path / "ca.crt", tmp_path / "ca.key")
    old = server_pair(authority, ("127.0.0.1",), datetime.now(UTC) - timedelta(days=age))
    identity.server_cert.write_bytes(old.certificate)
    identity.server_key.write_bytes(old.key)
    assert (ensure_identity(tmp_path, "127.0.0.1").server_cert.read_bytes() == old.certificate) is is_kept
