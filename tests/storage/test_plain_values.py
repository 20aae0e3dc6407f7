"""Large values: compressed as they are kept, plain as long as they are new."""

from __future__ import annotations

from pathlib import Path

import pytest

from haru.storage import Put, SqliteStore, interface, memory

LARGE = b'{"metadata":{}}' + b" " * 10_000


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of values that are decompressed from now on."""
    sizes: list[int] = []
    decompress = interface.zlib.decompress

    def counted(data: bytes) -> bytes:
        sizes.append(len(data))
        return decompress(data)

    monkeypatch.setattr(interface.zlib, "decompress", counted)
    return sizes


async def test_value_just_written_is_read_without_decompressing(tmp_path: Path, unpacked: list[int]) -> None:
    store = SqliteStore(tmp_path / "state.db")
    await store.start()
    (event,) = await store.transact(Put("pods/a/b", LARGE))
    assert event.new is not None
    assert event.new.stored[1]
    assert (event.new.value, event.new.head(15)) == (LARGE, LARGE[:15])
    assert unpacked == []
    await store.stop()


async def test_only_the_newest_values_stay_plain(
    tmp_path: Path, unpacked: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "PLAIN_BYTES", 3 * len(LARGE))
    store = SqliteStore(tmp_path / "state.db")
    await store.start()
    for number in range(10):
        await store.transact(Put(f"pods/a/{number}", LARGE))
    records = (await store.range("pods/")).records
    assert [record.key for record in records if record.plain_size] == ["pods/a/7", "pods/a/8", "pods/a/9"]
    assert all(record.value == LARGE for record in records)
    assert len(unpacked) == 7
    await store.stop()
