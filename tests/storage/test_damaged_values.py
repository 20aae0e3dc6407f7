"""Damaged rows and values are reported by file and key with a remedy, and are not changed."""

from __future__ import annotations

import contextlib
import sqlite3
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from haru.apiserver.encoding import damage_of, decode, encode
from haru.proto import etcd_pb2 as rpc
from haru.storage import Put, Record, SqliteStore, StoreError
from haru.storage.etcd import EtcdStore, EtcdStoreOptions
from haru.storage.etcd.connection import Connection, Credentials
from haru.storage.etcd.messages import TXN, put
from haru.storage.etcd.values import to_bytes

if TYPE_CHECKING:
    from etcd_process import Etcd

LARGE = "configmaps/default/large"
SMALL = "configmaps/default/small"


def config_map(key: str, text: str) -> tuple[bytes, int]:
    name = key.rpartition("/")[2]
    return encode({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"text": text}})


async def filled(path: Path) -> None:
    store = SqliteStore(path, check=damage_of)
    await store.start()
    for key, text in ((LARGE, "x" * 10_000), (SMALL, "x"), (SMALL, "y")):
        value, place = config_map(key, text)
        await store.transact(Put(key, value, place=place))
    await store.stop()


def content(path: Path) -> Any:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("meta", "objects", "past")]


def change(path: Path, statement: str, *values: Any) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        assert connection.execute(statement, values).rowcount


ROWS = [
    ("not compressed", LARGE, "UPDATE objects SET value = X'00ff' WHERE key = ?"),
    ("cut short", LARGE, "UPDATE objects SET value = substr(value, 1, length(value) - 3) WHERE key = ?"),
    ("no JSON", SMALL, "UPDATE objects SET value = CAST('{\"kind\"' AS BLOB) WHERE key = ?"),
    ("no object", SMALL, "UPDATE objects SET value = CAST('[1]' AS BLOB) WHERE key = ?"),
    ("no metadata", SMALL, "UPDATE objects SET value = CAST('{\"metadata\":null}' AS BLOB) WHERE key = ?"),
    ("no bytes", SMALL, "UPDATE objects SET value = 'text' WHERE key = ?"),
    ("no number", SMALL, "UPDATE objects SET revision = 'many' WHERE key = ?"),
]


@pytest.mark.parametrize(("what", "key", "statement"), ROWS, ids=[row[0] for row in ROWS])
async def test_damaged_row_is_named_and_file_unchanged(tmp_path: Path, what: str, key: str, statement: str) -> None:
    path = tmp_path / "state.db"
    await filled(path)
    change(path, statement, key)
    before = content(path)
    with pytest.raises(StoreError) as error:
        await SqliteStore(path, check=damage_of).start()
    text = str(error.value)
    assert str(path) in text and key in text and "haru snapshot restore" in text
    assert f"DELETE FROM objects WHERE key = '{key}'" in text
    assert content(path) == before


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM meta WHERE name = 'revision'",
        "UPDATE meta SET value = 'x' WHERE name = 'revision'",
        "DELETE FROM meta WHERE name = 'schema'",
        "UPDATE meta SET value = 'x' WHERE name = 'schema'",
    ],
)
async def test_damaged_file_header_is_reported(tmp_path: Path, statement: str) -> None:
    path = tmp_path / "state.db"
    await filled(path)
    change(path, statement)
    with pytest.raises(StoreError, match=r"state\.db.*damaged.*haru snapshot restore"):
        await SqliteStore(path, check=damage_of).start()


@pytest.mark.parametrize("damage", ["X'00ff'", "'text'"])
async def test_damaged_history_is_dropped_and_state_served(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "state.db"
    await filled(path)
    change(path, f"UPDATE past SET value = {damage} WHERE old IS NOT NULL")
    store = SqliteStore(path, check=damage_of)
    await store.start()
    try:
        record = await store.get(SMALL)
        assert record is not None and decode(record)["data"] == {"text": "y"}
        assert str(path) in caplog.text and SMALL in caplog.text
        newest = store.revision
        assert not store.watch("configmaps/", newest).pending()
        with pytest.raises(Exception, match="too old resource version"):
            store.watch("configmaps/", newest - 1).pending()
    finally:
        await store.stop()


def test_undecodable_record_names_its_key() -> None:
    for record in (Record(SMALL, b"{", 1), Record(LARGE, b"\0\xff", 1, packed=True)):
        with pytest.raises(StoreError, match=record.key):
            decode(record)


# -- etcd


@pytest.mark.parametrize(
    "damage",
    [lambda kept: kept[:10], lambda kept: kept[:-3], lambda kept: b"garbage", lambda kept: kept[:10] + b"\0" * 20],
    ids=["head only", "cut short", "something else", "not compressed"],
)
async def test_damaged_etcd_value_is_named(etcd: Etcd, damage: Callable[[bytes], bytes]) -> None:
    prefix = f"/tests/{uuid.uuid4()}"

    def opened() -> EtcdStore:
        return EtcdStore([etcd.url], EtcdStoreOptions(prefix=prefix, compaction_seconds=0), check=damage_of)

    store = opened()
    await store.start()
    value, place = config_map(LARGE, "x" * 10_000)
    await store.transact(Put(LARGE, value, place=place))
    await store.stop()
    connection = Connection([etcd.url], Credentials())
    connection.open()
    broken = damage(to_bytes(value, place))
    await connection.call(TXN, rpc.TxnRequest(success=[put(f"{prefix}/{LARGE}".encode(), broken)]), again=False)
    await connection.close()
    with pytest.raises(StoreError) as error:
        await opened().start()
    assert LARGE in str(error.value)
    assert any(remedy in str(error.value) for remedy in ("etcdctl del", "--etcd-prefix"))
