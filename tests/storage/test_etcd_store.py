"""What only a store has that several servers share: others' changes, the way to etcd, and what becomes of both."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from etcd_process import Etcd, ServingFiles
from haru.apiserver.auth import certificates
from haru.proto import MessageError, decode
from haru.proto import etcd_pb2 as rpc
from haru.storage import Compacted, CompareFailed, Delete, Put, Record, StoreError
from haru.storage.ciphers import AesGcm, Plain
from haru.storage.etcd import EtcdStore, EtcdStoreOptions, compaction, connection, messages, read_credentials, values
from haru.storage.etcd import store as etcd_store
from haru.storage.etcd.store import tells_progress
from haru.storage.sealing import Sealing
from waiting import until

SECONDS = 60.0
"""However busy the machine is."""
Open = Callable[..., Awaitable[EtcdStore]]


@pytest.fixture
async def open_store(etcd: Etcd) -> AsyncIterator[Open]:
    """Opens stores under one prefix, as replicas do."""
    prefix, opened = f"/tests/{uuid.uuid4()}", []

    async def one(**settings: object) -> EtcdStore:
        store = EtcdStore([etcd.url], EtcdStoreOptions(prefix=prefix, compaction_seconds=0), **settings)  # type: ignore[arg-type]
        await store.start()
        opened.append(store)
        return store

    yield one
    for store in opened:
        await store.stop()


async def found(store: EtcdStore, key: str) -> bytes | None:
    record = await store.get(key)
    return record.value if record else None


async def write(store: EtcdStore, key: str, value: bytes = b"1", expected: int | None = None) -> int:
    (event,) = await store.transact(Put(key, value, expected))
    return event.revision


# --- several servers


async def test_key_with_lease_expires_unless_renewed(open_store: Open) -> None:
    writer, reader = await open_store(), await open_store()
    watch = reader.watch("marks/", reader.revision)
    await writer.transact(Put("marks/short", b"1", lives=1))
    await writer.transact(Put("marks/renewed", b"1", lives=1))
    await writer.transact(Put("marks/renewed", b"2", lives=600))
    await writer.transact(Put("marks/kept", b"1"))
    await reader.progress()
    assert await found(reader, "marks/short") == b"1"
    gone: list[str] = []

    def is_gone() -> bool:
        gone.extend(event.key for event in watch.pending() if event.new is None)
        return "marks/short" in gone

    await until(is_gone)  # etcd makes a lease of a second last two
    assert gone == ["marks/short"] and await found(writer, "marks/short") is None
    assert await found(reader, "marks/renewed") == b"2" and await found(reader, "marks/kept") == b"1"


async def test_write_acknowledged_by_one_server_is_read_by_another(open_store: Open) -> None:
    a, b = await open_store(), await open_store()
    for number in range(50):
        writer, reader = (a, b) if number % 2 else (b, a)
        revision = await write(writer, f"k/{number % 7}", b"%d" % number)
        await reader.progress()
        assert reader.revision >= revision and await found(reader, f"k/{number % 7}") == b"%d" % number
    record = await a.get("k/0")
    assert record is not None
    await b.transact(Delete("k/0", record.revision))
    await a.progress()
    assert await a.get("k/0") is None


async def test_concurrent_compare_and_put_on_several_servers_loses_no_update(open_store: Open) -> None:
    stores = [await open_store() for _ in range(3)]
    await write(stores[0], "k/n", b"0")

    async def increment(store: EtcdStore) -> None:
        await store.progress()
        while True:
            record = await store.get("k/n")
            assert record is not None
            try:
                await write(store, "k/n", b"%d" % (int(record.value) + 1), record.revision)
                return
            except CompareFailed as error:
                # The next look must show what the loser lost to.
                newest = await store.get("k/n")
                assert newest is not None and error.actual is not None and newest.revision >= error.actual.revision

    await asyncio.gather(*(increment(store) for store in stores for _ in range(10)))
    await stores[1].progress()
    assert await found(stores[1], "k/n") == b"30"


async def test_watch_delivers_changes_of_all_servers_once_in_order(open_store: Open) -> None:
    a, b = await open_store(), await open_store()
    watch = b.watch("k/", b.revision)

    async def work(store: EtcdStore, name: str) -> list[int]:
        return [await write(store, f"k/{name}-{number}") for number in range(40)]

    written = await asyncio.gather(work(a, "a"), work(b, "b"), work(a, "c"))
    await b.progress()
    events = watch.pending()
    assert [event.revision for event in events] == sorted(revision for part in written for revision in part)
    assert watch.revision == b.revision
    own = [event for event in events if event.key == "k/b-7"]
    assert own[0].new is await b.get("k/b-7"), "one record for all who look"


async def test_restarted_server_serves_history_before_its_start(open_store: Open) -> None:
    a, gone = await open_store(), await open_store()
    seen = await write(a, "k/a", b"1")
    await gone.stop()
    revisions = [await write(a, "k/a", b"%d" % number) for number in range(2, 6)]
    (gone_event,) = await a.transact(Delete("k/a"))
    again = await open_store()
    events = again.watch("k/", seen).pending()
    assert [event.revision for event in events] == [*revisions, gone_event.revision]
    assert [event.old.value for event in events if event.old] == [b"1", b"2", b"3", b"4", b"5"]
    page = await again.range("k/", revision=revisions[1])
    assert [record.value for record in page.records] == [b"3"]


async def test_concurrent_progress_requests_are_batched(open_store: Open) -> None:
    a, b = await open_store(), await open_store()
    asked = 0
    real = b._progress._newest

    async def counted() -> int:
        nonlocal asked
        asked += 1
        return await real()

    b._progress._newest = counted
    revision = await write(a, "k/a")
    await asyncio.gather(*(b.progress() for _ in range(100)))
    assert b.revision >= revision and asked <= 2


async def test_progress_request_during_another_gets_a_later_answer(open_store: Open) -> None:
    a, b = await open_store(), await open_store()
    answered, held = asyncio.Event(), asyncio.Event()
    real = b._progress._newest

    async def slow() -> int:
        revision = await real()
        answered.set()
        await held.wait()
        return revision

    b._progress._newest = slow
    early = asyncio.create_task(b.progress())
    await asyncio.wait_for(answered.wait(), SECONDS)
    revision = await write(a, "k/a")  # after etcd gave its answer to the first question
    late = asyncio.create_task(b.progress())
    held.set()
    await asyncio.gather(early, late)
    assert b.revision >= revision and await found(b, "k/a") == b"1"


@pytest.mark.parametrize("asks", [False, True], ids=["writes", "asks"])
async def test_foreign_changes_in_etcd_do_not_delay_reads(open_store: Open, etcd: Etcd, asks: bool) -> None:
    store = await open_store()
    store._tells_progress = asks
    other = connection.Connection([etcd.url], connection.Credentials())
    other.open()
    for _ in range(3):
        request = rpc.TxnRequest(success=[messages.put(b"/another/owner", b"x")])
        answer = await other.call(messages.TXN, request, again=False)
        await asyncio.wait_for(store.progress(), SECONDS)
        assert store.revision >= answer.header.revision
    await other.close()
    assert list((await store.range("haru-progress/")).records) == []


def test_etcd_versions_with_ordered_progress_notifications() -> None:
    good = ["3.4.25", "3.4.37", "3.5.8", "3.5.16", "3.6.0", "4.0.0", "3.6.0-rc.1"]
    bad = ["3.4.23", "3.4.24", "3.3.99", "3.5.0", "3.5.7", "", "what"]
    assert [v for v in good + bad if tells_progress(v)] == good


# --- history


async def test_pages_at_old_revision_are_read_from_etcd(open_store: Open) -> None:
    store = await open_store()
    for number in range(5):
        await write(store, f"k/{number}", b"old")
    then = store.revision
    for number in range(5):
        await write(store, f"k/{number}", b"new")
    store._bucket("k").compact(store.revision)  # the view forgets, etcd does not
    page = await store.range("k/", revision=then, limit=2)
    assert [r.key for r in page.records] == ["k/0", "k/1"] and page.remaining == 3 and page.revision == then
    page = await store.range("k/", revision=then, after="k/1")
    assert [(r.key, r.value) for r in page.records] == [(f"k/{n}", b"old") for n in (2, 3, 4)]
    await store.compact(store.revision)
    with pytest.raises(Compacted):
        await store.range("k/", revision=then)


async def test_lagging_server_relists_and_ends_watches(open_store: Open) -> None:
    a, b = await open_store(), await open_store()
    await write(a, "k/gone")
    await write(a, "k/kept", b"old")
    await b.progress()
    watch = b.watch("k/", b.revision)
    b._tasks[0].cancel()  # deaf from here on
    await asyncio.wait([b._tasks[0]])
    await write(a, "k/kept", b"new")
    await a.transact(Delete("k/gone"))
    await write(a, "m/new")
    await a.compact(a.revision)
    b._tasks[0] = asyncio.create_task(b._follow())
    await asyncio.wait_for(b.progress(), SECONDS)
    with pytest.raises(Compacted):
        watch.pending()
    await asyncio.wait_for(watch.wait(30), SECONDS)
    assert (await found(b, "k/kept"), await b.get("k/gone"), await found(b, "m/new")) == (b"new", None, b"1")
    later = b.watch("k/", b.revision)
    await write(a, "k/later")
    await b.progress()
    assert [event.key for event in later.pending()] == ["k/later"]


async def test_server_starts_after_compaction(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    a = await open_store()
    for number in range(5):
        await write(a, "k/a", b"%d" % number)
    await a.compact(a.revision)
    last = await write(a, "k/b")
    b = await open_store()
    assert await found(b, "k/a") == b"4" and b.revision >= last
    monkeypatch.setattr(etcd_store, "REPLAYED_REVISIONS", 0)
    monkeypatch.setattr(etcd_store, "PAGE", 1)
    c = await open_store()
    assert [record.key for record in (await c.range("k/")).records] == ["k/a", "k/b"]
    with pytest.raises(Compacted):
        c.watch("k/", last - 1)


async def test_servers_alternate_compaction(open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "KEY", f"compact_rev_key/{uuid.uuid4()}".encode())
    a, b = await open_store(), await open_store()
    turns: list[int] = []
    for number in range(5):
        await write(a, "k/a", b"%d" % number)
        turns.append(await a._compactor.turn())
        turns.append(await b._compactor.turn())
    # a moves the key first; b learns that, and is a step behind from then on: only one of them compacts at a time.
    done = [revision for revision in turns if revision]
    assert len(done) >= 3 and done == sorted(set(done))
    await a.progress()
    with pytest.raises(Compacted):
        await a._range(b"/", revision=done[-1] - 1)
    assert (await a._range(b"/", revision=done[-1])).header.revision >= done[-1]


# --- the way to etcd


async def test_store_recovers_after_etcd_outage(etcd_binary: str, tmp_path: Path) -> None:
    etcd = Etcd(etcd_binary, tmp_path)
    etcd.start()
    store = EtcdStore([etcd.url], EtcdStoreOptions(compaction_seconds=0))
    await store.start()
    try:
        await write(store, "k/a")
        watch = store.watch("k/", store.revision)
        etcd.kill()
        await until(lambda: store.failing)
        assert await found(store, "k/a") == b"1", "what is in view can be looked at"
        store._connection._seconds = 0.2
        with pytest.raises(StoreError, match="can not be reached"):
            await store.progress()
        with pytest.raises(StoreError):
            await write(store, "k/b")
        store._connection._seconds = SECONDS
        etcd.start()
        assert await write(store, "k/b", b"2") <= store.revision
        await until(lambda: not store.failing)
        assert [event.key for event in watch.pending()] == ["k/b"]
    finally:
        await store.stop()
        etcd.stop()


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.nightly)])
async def test_acknowledged_writes_survive_etcd_kills(etcd_binary: str, tmp_path: Path, kills: int) -> None:
    etcd = Etcd(etcd_binary, tmp_path)
    etcd.start()
    stores = [EtcdStore([etcd.url], EtcdStoreOptions(compaction_seconds=0)) for _ in range(2)]
    for store in stores:
        await store.start()
    watch = stores[1].watch("k/", stores[1].revision)
    acknowledged: dict[str, int] = {}
    ending = False

    async def work(store: EtcdStore, name: str) -> None:
        number = 0
        while not ending:
            number += 1
            try:
                acknowledged[f"k/{name}-{number}"] = await write(store, f"k/{name}-{number}", expected=0)
            except (StoreError, CompareFailed):
                await asyncio.sleep(0.01)

    try:
        workers = [asyncio.create_task(work(store, f"{i}{lane}")) for i, store in enumerate(stores) for lane in "ab"]
        for _ in range(kills):
            enough = len(acknowledged) + 40
            await until(lambda enough=enough: len(acknowledged) >= enough)  # type: ignore[misc]
            etcd.kill()
            etcd.start()
        enough = len(acknowledged) + 40
        await until(lambda: len(acknowledged) >= enough)
        ending = True
        await asyncio.wait_for(asyncio.gather(*workers), SECONDS)
        await stores[1].progress()
        events = watch.pending()
        revisions = [event.revision for event in events]
        assert revisions == sorted(set(revisions))
        seen = {event.key: event.revision for event in events}
        assert {key: seen.get(key) for key in acknowledged} == acknowledged
    finally:
        for store in stores:
            await store.stop()
        etcd.stop()
    fresh = EtcdStore([etcd.url], EtcdStoreOptions(compaction_seconds=0))
    etcd.start()
    await fresh.start()
    kept = {record.key: record.revision for record in (await fresh.range("k/")).records}
    await fresh.stop()
    etcd.stop()
    assert {key: kept.get(key) for key in acknowledged} == acknowledged


@pytest.mark.nightly
async def test_store_works_with_one_of_three_etcd_members_down(etcd_binary: str, tmp_path: Path) -> None:
    members = [Etcd(etcd_binary, tmp_path, name=f"m{number}") for number in range(3)]
    for member in members:
        member.join(members)
        member.start(wait=False)
    store = EtcdStore([member.url for member in members], EtcdStoreOptions(compaction_seconds=0))
    store._connection._seconds = SECONDS
    try:
        await store.start()
        for member in members:
            await write(store, f"k/{member._name}")
            watch = store.watch("k/", store.revision)
            member.kill()
            key = f"k/without-{member._name}"
            async with asyncio.timeout(SECONDS):
                while await store.get(key) is None:
                    try:
                        await write(store, key, expected=0)
                    except (StoreError, CompareFailed):
                        await asyncio.sleep(0.05)
                        await store.progress()
            assert [event.key for event in watch.pending()] == [key]
            member.start(wait=False)
            await asyncio.wait_for(store.progress(), SECONDS)
    finally:
        await store.stop()
        for member in members:
            member.stop()


async def test_unreachable_endpoint_is_skipped(etcd: Etcd) -> None:
    store = EtcdStore(
        ["http://127.0.0.1:9", etcd.url], EtcdStoreOptions(prefix=f"/tests/{uuid.uuid4()}", compaction_seconds=0)
    )
    await asyncio.wait_for(store.start(), SECONDS)
    await write(store, "k/a")
    assert await found(store, "k/a") == b"1"
    await store.stop()


async def test_tls_with_client_certificates_works_and_wrong_ones_fail(etcd_binary: str, tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority, stranger = certificates.new_authority(now), certificates.new_authority(now, "stranger")
    server = certificates.server_pair(authority, (), now)
    files: dict[str, Path] = {}
    contents = {"ca": authority.certificate, "server.crt": server.certificate, "server.key": server.key}
    for name, signer in (("good", authority), ("bad", stranger)):
        pair = certificates.client_pair(signer, "haru", [], now)
        contents |= {f"{name}.crt": pair.certificate, f"{name}.key": pair.key}
    for name, content in contents.items():
        files[name] = tmp_path / name
        files[name].write_bytes(content)
    etcd = Etcd(etcd_binary, tmp_path, tls=ServingFiles(files["server.crt"], files["server.key"], files["ca"]))
    etcd.start()
    try:
        good = EtcdStore(
            [etcd.url],
            EtcdStoreOptions(credentials=read_credentials(files["ca"], files["good.crt"], files["good.key"])),
        )
        await asyncio.wait_for(good.start(), SECONDS)
        await write(good, "k/a")
        await good.stop()
        for wrong in (
            read_credentials(files["ca"], files["bad.crt"], files["bad.key"]),
            read_credentials(files["ca"], None, None),
            read_credentials(files["bad.crt"], files["good.crt"], files["good.key"]),
        ):
            store = EtcdStore([etcd.url], EtcdStoreOptions(credentials=wrong))
            store._connection._seconds = 0.5
            with pytest.raises(StoreError, match="etcd"):
                await store.start()
    finally:
        etcd.stop()


# --- what is refused


@pytest.mark.parametrize(
    ("servers", "text"),
    [
        ([], "no etcd server is named"),
        (["localhost:2379"], r'Invalid value: "localhost:2379": write https://HOST:PORT'),
        (["https://a"], "write https://HOST:PORT"),
        (["https://a:x"], "write https://HOST:PORT"),
        (["https://a:1/path"], "write https://HOST:PORT"),
        (["https://a:1", "http://b:1"], "either all servers use https or none does"),
    ],
)
def test_invalid_etcd_servers_are_refused(servers: list[str], text: str) -> None:
    with pytest.raises(StoreError, match=text):
        EtcdStore(servers)


def test_invalid_etcd_certificates_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"--etcd-cafile: .*absent: No such file"):
        read_credentials(tmp_path / "absent", None, None)
    with pytest.raises(StoreError, match="belong together"):
        read_credentials(None, tmp_path / "a", None)


async def test_unreachable_etcd_fails_start() -> None:
    store = EtcdStore(["http://127.0.0.1:9"])
    store._connection._seconds = 0.1
    with pytest.raises(StoreError, match=r"etcd can not be reached at http://127\.0\.0\.1:9: see that it runs"):
        await store.start()


async def test_value_too_large_for_etcd_is_refused_with_reason(open_store: Open) -> None:
    store = await open_store()
    noise = b"".join(uuid.uuid4().bytes for _ in range(120_000))
    with pytest.raises(StoreError, match="too large"):
        await write(store, "k/a", noise)
    assert await write(store, "k/a") and not store.failing


async def test_foreign_data_under_prefix_fails_start(open_store: Open, etcd: Etcd) -> None:
    store = await open_store()
    for value, text in ((b"k8s\0...", "holds something else under k/a"), (b"haru\x07\0\0\0\0\0v", "has format 7")):
        request = rpc.TxnRequest(success=[messages.put(store._key("k/a"), value)])
        await store._connection.call(messages.TXN, request, again=False)
        with pytest.raises(StoreError, match=text):
            await open_store()


async def test_foreign_key_under_prefix_fails_start_and_marks_store_failing(open_store: Open) -> None:
    store = await open_store()
    request = rpc.TxnRequest(success=[messages.put(store._key("k/") + b"\xff", values.to_bytes(b"v", None))])
    await store._connection.call(messages.TXN, request, again=False)
    with pytest.raises(StoreError, match="holds something else under"):
        await open_store()
    await until(lambda: store.failing)  # it can not follow any more, and says so


async def test_etcd_restored_from_backup_is_detected(open_store: Open) -> None:
    store = await open_store()
    await write(store, "k/a")
    store._revision += 10_000  # as if it had been seen before a backup was restored
    with pytest.raises(StoreError, match="it was restored from a backup; restart this server"):
        await store.progress()
    assert store.failing


@pytest.mark.parametrize("size", [0, 10, 5_000])
@pytest.mark.parametrize("place", [None, 0, 3])
def test_stored_value_round_trips(size: int, place: int | None) -> None:
    value = b'{"a"' + b"x" * size + b"}"
    record = values.to_record("k/a", values.to_bytes(value, place), 123)
    wanted = value if place is None else value[:place] + b"123" + value[place:]
    assert isinstance(record, Record) and record.value == wanted and record.head(6) == wanted[:6]
    assert len(values.to_bytes(value, place)) < 200


async def test_sealed_values_are_read_by_every_server_with_the_key(open_store: Open) -> None:
    old, new = AesGcm("old", bytes(32)), AesGcm("new", bytes(range(32)))
    a = await open_store(sealing=Sealing({"secrets": [old, Plain()]}, "a.yaml"))
    await write(a, "secrets/default/s", b"the secret" * 1000)
    await write(a, "configmaps/default/c", b"no secret")
    (kept,) = (await a._range(a._key("secrets/default/s"))).kvs
    assert kept.value.startswith(b"k8s:enc:aesgcm:v1:old:") and b"the secret" not in kept.value
    b = await open_store(sealing=Sealing({"secrets": [new, old, Plain()]}, "b.yaml"))
    record = await b.get("secrets/default/s")
    assert record is not None and record.value == b"the secret" * 1000 and record.stale
    with pytest.raises(StoreError, match='encrypted with aesgcm and the key "old"'):
        await open_store()
    # Written anew with the new key, the old one is not needed any more, though the history has what it sealed.
    await write(b, "secrets/default/s", b"the same secret")
    c = await open_store(sealing=Sealing({"secrets": [new]}, "c.yaml"))
    assert await found(c, "secrets/default/s") == b"the same secret"
    assert await found(c, "configmaps/default/c") == b"no secret"


# --- the encoding


def test_etcd_messages_have_expected_bytes() -> None:
    # By the numbers of the published description, written out by hand.
    wanted = rpc.RangeRequest(key=b"a", range_end=b"b", limit=3, revision=300)
    assert wanted.SerializeToString() == b"\x0a\x01a\x12\x01b\x18\x03\x20\xac\x02"
    assert messages.put(b"k", b"v").SerializeToString() == b"\x12\x06\x0a\x01k\x12\x01v"
    assert messages.delete(b"k").SerializeToString() == b"\x1a\x03\x0a\x01k"
    assert messages.key_unchanged(b"k", 0).SerializeToString() == b"\x10\x02\x1a\x01k\x30\x00"
    assert rpc.WatchRequest(progress_request=rpc.WatchProgressRequest()).SerializeToString() == b"\x1a\x00"
    answer = b"\x0a\x02\x18\x09\x10\x01\x5a\x0e\x08\x01\x12\x0a\x0a\x01k\x18\x07\x20\x01\x2a\x01v"
    told = decode(rpc.WatchResponse, answer)
    assert (told.header.revision, told.created, told.canceled) == (9, False, False)
    deleted = rpc.KeyValue(key=b"k", value=b"v", mod_revision=7, version=1)
    assert list(told.events) == [rpc.Event(type=rpc.Event.DELETE, kv=deleted)]


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05ab", b"\x0b", b"\x08" + b"\xff" * 11, b"\x09ab"])
def test_invalid_protobuf_is_refused(data: bytes) -> None:
    with pytest.raises(MessageError, match="the bytes are no RangeResponse"):
        decode(rpc.RangeResponse, data)


def test_unknown_fields_are_skipped() -> None:
    # Fields 30 (text), 31 (eight bytes) and 32 (four bytes) are of a newer version.
    newer = bytes.fromhex("f20103616263" + "f9010000000000000000" + "850200000000") + b"\x20\x03"
    assert decode(rpc.RangeResponse, newer).count == 3
