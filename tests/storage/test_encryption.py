"""Encryption at rest: the format of kube-apiserver, key rotation, and files without plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC

from haru.storage import Put, SealError, Sealing, SqliteStore
from haru.storage.ciphers import AesCbc, AesGcm, Cipher, Plain, Secretbox

OLD, NEW = b"o" * 32, b"n" * 32
SECRET = b'{"data":{"password":"c3dvcmRmaXNo"}}'
PATH = "/registry/secrets/default/a"


def sealing(**providers: Sequence[Cipher]) -> Sealing:
    return Sealing(providers, "enc.yaml")


# --- the format


def test_aes_gcm_opens_published_test_vector() -> None:
    """Test case 4 of the specification of GCM, laid out as nonce, ciphertext, tag."""
    key = bytes.fromhex("feffe9928665731c6d6a8f9467308308")
    plain = bytes.fromhex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
        "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39"
    )
    nonce, tag = bytes.fromhex("cafebabefacedbaddecaf888"), bytes.fromhex("5bc94fbc3221a5db94fae95ae7121a47")
    cipher = bytes.fromhex(
        "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e"
        "21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac973d58e091"
    )
    associated = bytes.fromhex("feedfacedeadbeeffeedfacedeadbeefabaddad2")
    assert AesGcm("key1", key).open(nonce + cipher + tag, associated) == plain


def test_secretbox_opens_published_test_vector() -> None:
    """The test vector of NaCl's own secretbox."""
    pytest.importorskip("nacl", reason="PyNaCl is not installed")
    key = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
    nonce = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
    plain = bytes.fromhex(
        "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c6129"
        "6cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde"
        "048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705"
    )
    box = bytes.fromhex(
        "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186a"
        "c0dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae"
        "90224368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74"
        "e355a5"
    )
    assert Secretbox("key1", key).open(nonce + box, b"") == plain
    sealing_with = sealing(secrets=[Secretbox("key1", key), AesGcm("old", OLD)])
    kept = sealing_with.seal("secrets", PATH, SECRET)
    assert kept.startswith(b"k8s:enc:secretbox:v1:key1:") and b"password" not in kept
    assert sealing_with.open("secrets", PATH, kept) == (SECRET, False)
    for broken in (kept[:-1], kept[:-1] + bytes([kept[-1] ^ 1]), kept[:40]):
        with pytest.raises(SealError, match=r'can not be decrypted with the secretbox key "key1" of enc\.yaml'):
            sealing_with.open("secrets", PATH, broken)
    assert sealing(secrets=[AesGcm("new", NEW), Secretbox("key1", key)]).open("secrets", PATH, kept) == (SECRET, True)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1000])
def test_aes_cbc_has_pkcs7_padding(size: int) -> None:
    sealed = AesCbc("key1", OLD).seal(b"x" * size, b"")
    decryptor = BlockCipher(AES(OLD), CBC(sealed[:16])).decryptor()
    padded = decryptor.update(sealed[16:]) + decryptor.finalize()
    padding = 16 - size % 16
    assert padded == b"x" * size + bytes([padding]) * padding


@pytest.mark.parametrize(("cipher", "name"), [(AesGcm, "aesgcm"), (AesCbc, "aescbc")])
def test_sealed_value_names_provider_and_key(cipher: type[AesGcm] | type[AesCbc], name: str) -> None:
    seal = sealing(secrets=[cipher("key1", OLD)])
    first, second = (seal.seal("secrets", PATH, SECRET) for _ in range(2))
    assert first.startswith(f"k8s:enc:{name}:v1:key1:".encode())
    assert first != second and b"password" not in first
    assert seal.open("secrets", PATH, first) == (SECRET, False)


# --- several keys


def keys(*names: str) -> list[Cipher]:
    """`old` and `new` are keys of AES-GCM, `cbc` is one of AES-CBC, `plain` is none."""
    known: Mapping[str, Cipher] = {
        "old": AesGcm("old", OLD),
        "new": AesGcm("new", NEW),
        "cbc": AesCbc("cbc", OLD),
        "plain": Plain(),
    }
    return [known[name] for name in names]


@pytest.mark.parametrize(
    ("written", "read", "stale"),
    [
        (["old"], ["old"], False),
        (["old"], ["new", "old"], True),
        (["old"], ["old", "new"], False),
        (["cbc"], ["old", "cbc"], True),
        (["plain"], ["old", "plain"], True),
        (["old"], ["plain", "old"], True),
        (["plain"], ["plain", "old"], False),
        ([], ["old", "plain"], True),
        ([], [], False),
    ],
)
def test_first_provider_seals_and_all_open(written: list[str], read: list[str], stale: bool) -> None:
    kept = sealing(**({"secrets": keys(*written)} if written else {})).seal("secrets", PATH, SECRET)
    assert sealing(**({"secrets": keys(*read)} if read else {})).open("secrets", PATH, kept) == (SECRET, stale)


@pytest.mark.parametrize(
    ("written", "read", "says"),
    [
        (keys("old"), [AesGcm("old", NEW)], 'the aesgcm key "old" of enc.yaml: the key does not fit'),
        (keys("cbc"), [AesCbc("cbc", NEW)], 'the aescbc key "cbc" of enc.yaml: the key does not fit'),
        (keys("old"), keys("new"), 'is encrypted with aesgcm and the key "old", which enc.yaml does not have'),
        (keys("old"), keys("plain"), "which enc.yaml does not have for secrets: add that key there"),
        (keys("plain"), keys("old"), "is not encrypted, and enc.yaml has no provider identity for secrets: add"),
    ],
)
def test_value_that_cannot_be_opened_names_reason_without_keys(
    written: list[Cipher], read: list[Cipher], says: str
) -> None:
    kept = sealing(secrets=written).seal("secrets", PATH, SECRET)
    # With another key the padding of CBC is right by chance, once in a few hundred times.
    while isinstance(read[0], AesCbc) and _opens(read, kept):
        kept = sealing(secrets=written).seal("secrets", PATH, SECRET)
    with pytest.raises(SealError) as caught:
        sealing(secrets=read).open("secrets", PATH, kept)
    assert says in str(caught.value) and PATH in str(caught.value)
    assert "oooo" not in str(caught.value) and "nnnn" not in str(caught.value)


def _opens(read: list[Cipher], kept: bytes) -> bool:
    try:
        sealing(secrets=read).open("secrets", PATH, kept)
    except SealError:
        return False
    return True


@pytest.mark.parametrize("change", ["moved", "changed", "cut"])
def test_aes_gcm_detects_moved_changed_or_truncated_value(change: str) -> None:
    seal = sealing(secrets=keys("old"))
    kept = seal.seal("secrets", PATH, SECRET)
    path = "/registry/secrets/default/b" if change == "moved" else PATH
    kept = {"moved": kept, "changed": kept[:-1] + bytes([kept[-1] ^ 1]), "cut": kept[:30]}[change]
    with pytest.raises(SealError):
        seal.open("secrets", path, kept)


@pytest.mark.parametrize(
    ("named", "resource", "sealed"),
    [
        ("secrets", "secrets", True),
        ("secrets", "configmaps", False),
        ("secrets", "secrets.example.com", False),
        ("*.", "configmaps", True),
        ("*.", "jobs.batch", False),
        ("*.batch", "jobs.batch", True),
        ("*.batch", "secrets", False),
        ("*.*", "secrets", True),
        ("*.*", "widgets.example.com", True),
    ],
)
def test_resource_names_select_what_is_sealed(named: str, resource: str, sealed: bool) -> None:
    kept = Sealing({named: keys("old")}, "enc.yaml").seal(resource, "/p", SECRET)
    assert (kept != SECRET) == sealed


def test_most_specific_resource_name_wins() -> None:
    seal = Sealing({"secrets": keys("new"), "*.": keys("old"), "*.*": keys("plain")}, "enc.yaml")
    assert seal.seal("secrets", "/p", b"1").startswith(b"k8s:enc:aesgcm:v1:new:")
    assert seal.seal("configmaps", "/p", b"1").startswith(b"k8s:enc:aesgcm:v1:old:")
    assert seal.seal("jobs.batch", "/p", b"1") == b"1"


# --- a store in a file


async def contents(path: Path, seal: Sealing | None) -> dict[str, tuple[bytes, bool]]:
    store = SqliteStore(path, sealing=seal)
    await store.start()
    found = {r.key: (r.value, r.stale) for bucket in ("secrets/", "maps/") for r in (await store.range(bucket)).records}
    await store.stop()
    return found


async def write(path: Path, seal: Sealing | None, **values: bytes) -> None:
    store = SqliteStore(path, sealing=seal)
    await store.start()
    for name, value in values.items():
        await store.transact(Put(f"secrets/default/{name}", value), Put(f"maps/default/{name}", b"open"))
    await store.stop()


def on_disk(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.iterdir())


async def test_file_shows_no_plain_text_and_keys_can_be_rotated(tmp_path: Path) -> None:
    path, long = tmp_path / "store.db", b"SWORDFISH" * 3000
    await write(path, sealing(secrets=keys("old")), a=SECRET, b=long)
    assert b"password" not in on_disk(tmp_path) and b"SWORDFISH" not in on_disk(tmp_path)
    assert b"k8s:enc:aesgcm:v1:old:" in on_disk(tmp_path)
    turned = sealing(secrets=keys("new", "old"))
    assert await contents(path, turned) == {
        "maps/default/a": (b"open", False),
        "maps/default/b": (b"open", False),
        "secrets/default/a": (SECRET, True),
        "secrets/default/b": (long, True),
    }
    await write(path, turned, a=SECRET, b=long)
    assert b":old:" not in on_disk(tmp_path)
    assert (await contents(path, sealing(secrets=keys("new"))))["secrets/default/b"] == (long, False)


async def test_plain_text_is_erased_from_file_when_encrypted(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await write(path, None, a=SECRET)
    assert b"password" in on_disk(tmp_path)
    await write(path, sealing(secrets=keys("old", "plain")), a=SECRET)
    assert b"password" not in on_disk(tmp_path)


async def test_store_that_cannot_be_decrypted_names_fix(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    await write(path, sealing(secrets=keys("old")), a=SECRET)
    with pytest.raises(
        SealError, match=r"store .*store\.db: /registry/secrets/default/a is encrypted with aesgcm"
    ) as e:
        await contents(path, None)
    assert str(e.value).endswith(
        'and the key "old": start the server with the --encryption-provider-config that has it'
    )
    with pytest.raises(SealError, match=r'the key "old", which enc\.yaml does not have for secrets'):
        await contents(path, sealing(secrets=keys("new")))
    assert (await contents(path, sealing(secrets=keys("old"))))["secrets/default/a"] == (SECRET, False)
