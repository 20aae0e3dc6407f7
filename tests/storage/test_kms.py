"""Encryption with a KMS plugin: what is written, seeds, keys that change, and plugins that are away, slow or wrong."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from haru import kms
from haru.storage import Put, SealError, Sealing, SqliteStore, StoreError
from haru.storage.ciphers import AesGcm, Plain
from haru.storage.etcd import EtcdStore, EtcdStoreOptions
from haru.storage.kms import KmsProvider, envelope, provider
from kms_plugin import ANNOTATION, Plugin
from waiting import until

SECRET = b'{"data":{"password":"swordfish"}}'
PREFIX = b"k8s:enc:kms:v2:k:"


@pytest.fixture
def plugin() -> Iterator[Plugin]:
    # Not below tmp_path: the path of a socket has a hundred characters.
    with tempfile.TemporaryDirectory(prefix="kms-") as directory:
        made = Plugin(Path(directory))
        made.start()
        yield made
        made.kill()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything that takes minutes takes tenths of seconds."""
    for name, value in (("GOOD_SECONDS", 0.1), ("BAD_SECONDS", 0.05), ("RETRY_SECONDS", 0.05), ("WRITE_SECONDS", 1.0)):
        monkeypatch.setattr(provider, name, value)
    monkeypatch.setattr(provider, "GOOD_HEALTH_SECONDS", 0.0)
    monkeypatch.setattr(provider, "BAD_HEALTH_SECONDS", 0.0)


def sealing(plugin: Plugin, *more: Any, seconds: float = 1.0) -> Sealing:
    return Sealing({"secrets": [KmsProvider("k", plugin.socket, seconds), *more]}, "enc.yaml")


@asynccontextmanager
async def running(path: Path, with_sealing: Sealing) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(path, sealing=with_sealing)
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


async def write(store: Any, name: str, value: bytes = SECRET, bucket: str = "secrets") -> None:
    await store.transact(Put(f"{bucket}/default/{name}", value))


async def read(store: Any, name: str) -> Any:
    return await store.get(f"secrets/default/{name}")


def on_disk(directory: Path) -> bytes:
    return b"".join(each.read_bytes() for each in directory.iterdir())


def refused(given: Sealing) -> str:
    """Why nothing may be written; empty: it may."""
    try:
        given.check("secrets")
    except SealError as error:
        return str(error)
    return ""


# --- what is written


async def test_kms_is_called_once_per_seed_and_file_holds_no_plain_text(tmp_path: Path, plugin: Plugin) -> None:
    path = tmp_path / "store.db"
    for start in range(3):
        async with running(path, sealing(plugin)) as store:
            for number in range(10):
                await write(store, f"{start}-{number}")
    disk = on_disk(tmp_path)
    assert b"swordfish" not in disk and PREFIX in disk
    before = plugin.calls()
    assert before["Encrypt"] == 3, "a seed for each start"
    given = sealing(plugin)
    async with running(path, given) as store:
        found = [await read(store, f"{start}-{number}") for start in range(3) for number in range(10)]
        assert all(record.value == SECRET and not record.stale for record in found)
    assert (plugin.calls() - before)["Decrypt"] == 3
    text = "\n".join(given.lines())
    assert 'apiserver_envelope_encryption_dek_source_cache_size{provider_name="k"} 4' in text
    assert "apiserver_storage_envelope_transformation_cache_misses_total 3" in text
    key = f'key_id_hash="sha256:{hashlib.sha256(b"key-1").hexdigest()}",provider_name="k"'
    total = "apiserver_envelope_encryption_key_id_hash_total"
    assert f'{total}{{apiserver_id_hash="",{key},transformation_type="from_storage"}} 30' in text
    assert 'kms_operations_latency_seconds_count{grpc_status_code="OK",method_name="/v2.KeyManagementService/De' in text


def derived(seed: bytes, info: bytes) -> bytes:
    """HKDF-Expand of RFC 5869 with SHA-256, one block of it."""
    return hmac.new(seed, info + b"\1", hashlib.sha256).digest()


def test_sealed_object_has_kubernetes_form() -> None:
    seed, path = bytes(range(32)), b"/registry/secrets/default/a"
    sealed = envelope.Seed(seed).seal(SECRET, path)
    info, nonce, rest = sealed[:32], sealed[32:44], sealed[44:]
    assert AESGCM(derived(seed, info)).decrypt(nonce, rest, path) == SECRET
    made = envelope.EncryptedObject(sealed, "id", b"source", {"b.c": b"2", "a.b": b"1"})
    wire = made.to_bytes()
    tail = b"\x12\x02id\x1a\x06source\x22\x08\x0a\x03a.b\x12\x011\x22\x08\x0a\x03b.c\x12\x012\x28\x01"
    assert wire == b"\x0a" + bytes([len(sealed)]) + sealed + tail
    assert envelope.read_object(wire) == made
    with pytest.raises(ValueError, match="tampered with or moved"):
        envelope.Seed(seed).open(sealed, b"/registry/secrets/default/b")
    assert envelope.Seed(seed).seal(SECRET, path)[:32] != info


def test_keys_of_older_servers_are_opened() -> None:
    key, nonce, path = b"k" * 32, b"n" * 12, b"/p"
    sealed = nonce + AESGCM(key).encrypt(nonce, SECRET, path)
    made = envelope.EncryptedObject(sealed, "id", b"source", {}, envelope.DATA_KEY)
    assert b"\x28" not in made.to_bytes()[-2:], "the default is left out"
    found = envelope.read_object(made.to_bytes())
    assert envelope.unlocked(found.kind, key).open(found.data, path) == SECRET
    assert found.source_id != envelope.EncryptedObject(sealed, "id", b"source").source_id


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": b""}, "encrypted data is empty"),
        ({"source": b""}, "encrypted DEK source is empty"),
        ({"source": b"x" * 1025}, "encrypted DEK source is 1025 bytes, which exceeds the max size of 1024"),
        ({"key_id": ""}, "keyID is empty"),
        ({"key_id": "x" * 1025}, "keyID is 1025 bytes"),
        ({"annotations": {"plain": b""}}, "must be a fully qualified domain name"),
        ({"annotations": {"A.b": b""}}, "must be a fully qualified domain name"),
        ({"annotations": {"a.b": b"x" * 32768}}, "total size of annotations is 32771"),
        ({"kind": 2}, "unknown encryptedDEKSourceType: 2"),
    ],
)
def test_invalid_encrypted_objects_are_refused(changes: Any, says: str) -> None:
    good = {"data": b"d", "key_id": "id", "source": b"s", "annotations": {"a.b": b""}, "kind": 1}
    envelope.read_object(envelope.EncryptedObject(**good).to_bytes())
    with pytest.raises(ValueError, match=says):
        envelope.read_object(envelope.EncryptedObject(**{**good, **changes}).to_bytes())
    with pytest.raises(ValueError, match="it is no EncryptedObject"):
        envelope.read_object(b"\xff\xff")


# --- keys that change


async def test_new_kms_key_makes_stored_objects_stale(tmp_path: Path, plugin: Plugin) -> None:
    given = sealing(plugin)
    async with running(tmp_path / "s.db", given) as store:
        await write(store, "a")
        await write(store, "m", b"1", "maps")
        assert not (await read(store, "a")).stale
        plugin.tell(key_id="key-2")

        async def is_stale() -> bool:
            return (await read(store, "a")).stale

        await until(is_stale)
        assert not (await store.get("maps/default/m")).stale
        await write(store, "a")
        assert not (await read(store, "a")).stale
        await write(store, "b")
    before = plugin.calls()
    async with running(tmp_path / "s.db", sealing(plugin)) as store:
        assert not (await read(store, "a")).stale
    assert (plugin.calls() - before)["Decrypt"] == 1, "nothing is left of the old key"


async def test_migration_from_plain_text_to_kms_to_other_provider(tmp_path: Path, plugin: Plugin) -> None:
    path, gcm = tmp_path / "s.db", AesGcm("g", b"g" * 32)
    async with running(path, Sealing({"secrets": [gcm]}, "f")) as store:
        await write(store, "a")
    async with running(path, sealing(plugin, gcm)) as store:
        assert (await read(store, "a")).stale
        await write(store, "a")
    service = KmsProvider("k", plugin.socket)
    async with running(path, Sealing({"secrets": [Plain(), service]}, "f")) as store:
        found = await read(store, "a")
        assert found.stale and found.value == SECRET
    with pytest.raises(SealError, match=r'is encrypted with kms and the key "k", which enc2 does not have for secrets'):
        async with running(path, Sealing({"secrets": [gcm]}, "enc2")):
            pass


# --- plugins that are away


async def test_stopped_plugin_fails_only_writes_of_sealed_resources(tmp_path: Path, plugin: Plugin) -> None:
    given = sealing(plugin, seconds=0.2)
    async with running(tmp_path / "s.db", given) as store:
        await write(store, "a")
        plugin.kill()
        await write(store, "b")  # for a while it goes on
        await until(lambda: refused(given))
        with pytest.raises(StoreError, match=r'encryptedDEKSource with keyID hash "sha256:[0-9a-f]{64}" expired at 2'):
            await write(store, "c")
        assert "no answer within 0.2 s" in refused(given)
        await write(store, "m", b"1", "maps")
        assert (await read(store, "b")).value == SECRET and not store.failing
        plugin.start()
        await until(lambda: not refused(given))
        await write(store, "c")


async def test_store_starts_when_plugin_starts_late(tmp_path: Path, plugin: Plugin) -> None:
    path = tmp_path / "s.db"
    plugin.kill()
    given = sealing(plugin, seconds=0.2)
    async with running(path, given) as store:  # nothing in it needs a key
        with pytest.raises(SealError, match='the KMS provider "k" has no key to write with: failed to perform status'):
            await write(store, "a")
        plugin.start()
        await until(lambda: not refused(given))
        await write(store, "a")
    plugin.kill()
    asyncio.get_running_loop().call_later(0.6, plugin.start)
    began = time.monotonic()
    async with running(path, sealing(plugin, seconds=0.2)) as store:
        assert (await read(store, "a")).value == SECRET
    assert time.monotonic() - began > 0.5


async def test_store_without_plugin_does_not_start(
    tmp_path: Path, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.db"
    async with running(path, sealing(plugin)) as store:
        await write(store, "a")
    monkeypatch.setattr("haru.storage.sqlite.KEYS_SECONDS", 0.5)
    plugin.tell(lost=["key-1"])
    with pytest.raises(SealError) as caught:
        await running(path, sealing(plugin)).__aenter__()
    assert '/registry/secrets/default/a can not be decrypted with the kms key "k" of enc.yaml' in str(caught.value)
    assert "NOT_FOUND: the key key-1 was destroyed" in str(caught.value)
    plugin.tell(lost=[], cut=16)
    with pytest.raises(SealError, match="invalid seed length 16 used for key generation"):
        await running(path, sealing(plugin)).__aenter__()
    plugin.kill()
    with pytest.raises(SealError, match=r's\.db: the KMS provider "k" does not decrypt: .*no answer within 0\.2 s'):
        await running(path, sealing(plugin, seconds=0.2)).__aenter__()
    plugin.tell(cut=99)
    plugin.start()
    async with running(path, sealing(plugin)) as store:
        assert (await read(store, "a")).value == SECRET


# --- plugins that are slow or wrong


@pytest.mark.parametrize(
    ("orders", "says"),
    [
        ({"delay": 5}, "failed to perform status section of the healthz check for KMS Provider k, error: .*no answer"),
        ({"fails": "INTERNAL"}, "INTERNAL: told to fail"),
        ({"healthz": "out of paper"}, "kmsv2 Provider k is not healthy, error: got unexpected healthz status: out of"),
        ({"version": "v1beta1"}, "expected KMSv2 API version v2, got v1beta1"),
        ({"key_id": ""}, 'got invalid KMSv2 KeyID hash "": keyID is empty'),
        ({"key_id": "x" * 1025}, "keyID is 1025 bytes, which exceeds the max size of 1024"),
        ({"answer": "empty"}, "failed to rotate DEK: .*encrypted DEK source is empty"),
        ({"answer": "long"}, "encrypted DEK source is 1025 bytes"),
        ({"answer": "other_key"}, 'failed to rotate DEK: statusKeyIDHash="sha256:.*", encryptKeyIDHash="sha256:'),
        ({"answer": "annotation"}, "must be a fully qualified domain name"),
        ({"answer": "annotations"}, "which exceeds the max size of 32768"),
        ({"answer": "huge"}, "RESOURCE_EXHAUSTED"),
        ({"answer": "garbage"}, "/v2.KeyManagementService/Encrypt at .*: the bytes are no EncryptResponse"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
async def test_plugin_faults_are_reported_and_recovered(plugin: Plugin, orders: Any, says: str) -> None:
    plugin.tell(**orders)
    service = KmsProvider("k", plugin.socket, 0.3 if "delay" in orders else 30.0)
    await service.start()
    try:
        assert re.search(says, await service.check())
        if "healthz" not in orders and "version" not in orders:
            with pytest.raises(SealError, match="has no key to write with"):
                service.ready()
        plugin.tell(delay=0, fails="", healthz="ok", version="v2", key_id="k1", answer="")
        await until(lambda: not service._error)
        service.ready()
        sealed = service.seal(SECRET, b"/p")
        assert service.open(sealed, b"/p") == SECRET and not service.is_stale(sealed)
        assert envelope.read_object(sealed).annotations == {ANNOTATION: b"1"}
    finally:
        await service.stop()


async def test_plugin_version_change_is_refused_and_failures_keep_old_key(plugin: Plugin) -> None:
    service = KmsProvider("k", plugin.socket, 30.0)
    await service.start()
    try:
        plugin.tell(version="v2beta1")
        assert "KMSv2 API version should not change" in await service.check()
        plugin.tell(version="v2", key_id="key-2", answer="empty")
        assert "failed to rotate DEK" in await service.check()
        assert envelope.read_object(service.seal(SECRET, b"/p")).key_id == "key-1"
        plugin.tell(answer="")
        await until(lambda: not service._error)
        assert envelope.read_object(service.seal(SECRET, b"/p")).key_id == "key-2"
        assert 'error="too_long"' not in "\n".join(Sealing({"secrets": [service]}, "").lines())
    finally:
        await service.stop()


async def test_unused_seeds_are_evicted(plugin: Plugin) -> None:
    now = [0.0]
    service = KmsProvider("k", plugin.socket, clock=lambda: now[0])
    other = KmsProvider("k", plugin.socket)
    await service.start()
    await other.start()
    try:
        foreign = other.seal(SECRET, b"/p")
        with pytest.raises(ValueError, match="failed to decrypt DEK"):
            service.open(foreign, b"/p")
        await service.prepare([foreign], 0)
        assert service.open(foreign, b"/p") == SECRET and service.metrics.cached == 2
        own = service.seal(SECRET, b"/p")
        now[0] += provider.SEED_SECONDS + 1
        plugin.tell(key_id="key-2")
        await service.check()
        assert service.metrics.cached == 1, "the new one"
        await service.prepare([own, foreign], 0)
        assert service.open(own, b"/p") == SECRET and service.is_stale(own)
    finally:
        await service.stop()
        await other.stop()


# --- etcd


async def test_servers_over_etcd_open_each_others_seeds(etcd: Any, plugin: Plugin) -> None:
    prefix = f"/kms-{time.monotonic_ns()}"

    def store() -> EtcdStore:
        return EtcdStore([etcd.url], EtcdStoreOptions(prefix=prefix), sealing=sealing(plugin, seconds=3))

    a, b = store(), store()
    await a.start()
    await b.start()
    try:
        await write(a, "a")
        await write(b, "b")
        for each in (a, b):
            await each.progress()
            assert [(await read(each, name)).value for name in "ab"] == [SECRET, SECRET]
        plugin.kill()
        await write(a, "a2")
        await b.progress()
        assert (await read(b, "a2")).value == SECRET, "a seed that is known needs no plugin"
        plugin.start()
        c = store()
        await c.start()
        await write(c, "c")
        for each in (a, b):
            await each.progress()  # who has not seen its seed by now needs the plugin
        plugin.kill()
        try:
            assert [(await read(c, name)).value for name in ("a", "b", "a2", "c")] == [SECRET] * 4
        finally:
            await c.stop()
        await until(lambda: not a.failing)
    finally:
        plugin.kill()
        await a.stop()
        await b.stop()


async def test_following_server_waits_for_plugin_without_losing_events(etcd: Any, plugin: Plugin, caplog: Any) -> None:
    prefix = f"/kms-{time.monotonic_ns()}"
    a = EtcdStore([etcd.url], EtcdStoreOptions(prefix=prefix), sealing=sealing(plugin, seconds=0.3))
    await a.start()
    other = KmsProvider("k", plugin.socket)
    await other.start()
    b = EtcdStore([etcd.url], EtcdStoreOptions(prefix=prefix), sealing=Sealing({"secrets": [other]}, "b"))
    await b.start()
    try:
        watch = a.watch("secrets/", since=a.revision)
        plugin.tell(delay=1)
        await write(b, "x")
        await until(lambda: a.failing)
        asked = plugin.calls()["Decrypt"]
        await until(lambda: plugin.calls()["Decrypt"] >= asked + 3, "it is asked again and again")
        assert a.failing and caplog.text.count("the watch on etcd is interrupted") == 1
        plugin.tell(delay=0)
        await until(lambda: not a.failing)
        await other.check()  # its plugin was as slow: the time for which it may write without an answer may be over
        await write(b, "y")
        await a.progress()
        seen: list[str] = []
        while len(seen) < 2:
            await watch.wait(5)
            seen += [event.key for event in watch.pending()]
        assert seen == ["secrets/default/x", "secrets/default/y"]
    finally:
        await a.stop()
        await b.stop()
        await other.stop()


def test_metric_labels_are_escaped() -> None:
    service = KmsProvider('a"b\\c', "/run/kms.sock")
    text = "\n".join(Sealing({"secrets": [service]}, "").lines())
    assert 'dek_source_cache_size{provider_name="a\\"b\\\\c"} 0' in text


def test_kms_messages_round_trip() -> None:
    wanted = kms.Encrypted(b"c", "id", {"a.b": b"", "c.d": b"2"})
    assert kms.read_encrypt_answer(kms.encrypt_answer(wanted)) == wanted
    assert kms.read_decrypt_request(kms.decrypt_request(wanted, "u")) == (wanted, "u")
    assert kms.read_encrypt_request(kms.encrypt_request(b"p", "u")) == (b"p", "u")
    assert kms.read_decrypt_answer(kms.decrypt_answer(b"p")) == b"p"
    told = kms.Status("v2", "ok", "id")
    assert kms.read_status_answer(kms.status_answer(told)) == told
