"""`--encryption-provider-config`: what the file may say, and what a server with it does."""

from __future__ import annotations

import base64
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_caller import Caller, Clock, config_map, make_config

from haru.apiserver.encryption import EncryptionError, load_encryption, parse_encryption
from haru.apiserver.server import ApiServer
from haru.embedded.options import OptionError
from haru.embedded.security import SecurityOptions
from haru.storage import SqliteStore

Obj = dict[str, Any]
SECRETS = "/api/v1/namespaces/default/secrets"
KEY1, KEY2 = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))


def keys(**secrets: str) -> Obj:
    return {"keys": [{"name": name, "secret": secret} for name, secret in secrets.items()]}


def config(*entries: Obj) -> Obj:
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": list(entries)}


def entry(resources: list[Any], *providers: Obj) -> Obj:
    return {"resources": resources, "providers": list(providers) or [{"aesgcm": keys(key1=KEY1)}]}


@pytest.mark.parametrize(
    ("given", "sealed"),
    [
        (config(entry(["secrets"])), {"secrets"}),
        (config(entry(["secrets", "widgets.example.com"])), {"secrets", "widgets.example.com"}),
        (config(entry(["*.batch", "*."])), {"secrets", "configmaps", "jobs.batch"}),
        (
            config(entry(["configmaps"], {"identity": {}}), entry(["*.*"])),
            {"secrets", "jobs.batch", "widgets.example.com"},
        ),
        (config(entry(["secrets"], {"identity": {}}), entry(["secrets"])), set()),
    ],
)
def test_what_is_encrypted(given: Obj, sealed: set[str]) -> None:
    sealing = parse_encryption(given, "f")
    known = ("secrets", "configmaps", "jobs.batch", "widgets.example.com")
    assert {name for name in known if sealing.seal(name, "/p", b"{}") != b"{}"} == sealed


GCM = "resources[0].providers[0].aesgcm"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"apiVersion": "v1", "kind": "EncryptionConfig"}, "apiVersion: apiserver.config.k8s.io/v1"),
        (config(), "resources: Required value"),
        (config({"resources": ["secrets"]}), "resources[0].providers: Required value"),
        (config(entry([])), "resources[0].resources: Required value"),
        (config(entry(["Secrets"])), "should not contain capital letters"),
        (config(entry(["*"])), "use '*.' for all resources of the core API group"),
        (config(entry(["secrets.*"])), "across groups is not supported"),
        (config(entry(["events.events.k8s.io"])), "use 'events'"),
        (config(entry(["pods/log"])), "must be RESOURCE, RESOURCE.GROUP"),
        (config(entry(["secrets", "*."])), '"*." beside it covers it'),
        (config(entry(["secrets", "secrets"])), 'Duplicate value: "secrets"'),
        (config(entry(["*.*"]), entry(["secrets"])), 'resources[1].resources[0]: Invalid value: "secrets" is masked'),
        (config(entry(["secrets"], {"aes": {}})), "resources[0].providers[0].aes: unknown field; known are aescbc"),
        (config(entry(["secrets"], {"aesgcm": keys(a=KEY1), "identity": {}})), "an entry has exactly one"),
        (config(entry(["secrets"], {"identity": {}}, {"identity": {}})), "Duplicate value: identity"),
        (
            config(entry(["secrets"], {"secretbox": keys(a=KEY1)})),
            "secretbox: Forbidden: XSalsa20 is not in the library",
        ),
        (config(entry(["secrets"], {"kms": {}})), "kms: Forbidden"),
        (config(entry(["secrets"], {"aesgcm": {}})), f"{GCM}.keys: Required value"),
        (config(entry(["secrets"], {"aesgcm": {"keys": [{"secret": KEY1}]}})), f"{GCM}.keys[0].name: Required value"),
        (config(entry(["secrets"], {"aesgcm": {"keys": [{"name": "a"}]}})), f"{GCM}.keys[0].secret: Required value"),
        (config(entry(["secrets"], {"aesgcm": keys(a=KEY1[:-8])})), "it has 27 bytes, and must have 16, 24 or 32"),
        (
            config(entry(["secrets"], {"aesgcm": keys(a="~" + KEY1[1:])})),
            f"{GCM}.keys[0].secret: Invalid value: it is no",
        ),
        (
            config(entry(["secrets"], {"aesgcm": {"keys": [{"name": "a", "secret": KEY1}] * 2}})),
            f'{GCM}.keys[1].name: Duplicate value: "a"',
        ),
    ],
)
def test_what_a_configuration_may_not_say(given: Obj, says: str, tmp_path: Path) -> None:
    file = tmp_path / "enc.yaml"
    file.write_text(yaml.safe_dump(given))
    with pytest.raises(EncryptionError) as caught:
        load_encryption(file)
    text = str(caught.value)
    assert text.startswith(f"--encryption-provider-config: {file}: ") and says in text
    assert KEY1[1:20] not in text, "no key in a message"


def test_files_that_can_not_be_read(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"--encryption-provider-config: .*none\.yaml: No such file"):
        SecurityOptions(encryption_config=tmp_path / "none.yaml").sealing()
    broken = tmp_path / "broken.yaml"
    broken.write_text(f"resources: [\n  secret: {KEY1}\n: {KEY1}")
    with pytest.raises(OptionError) as caught:
        SecurityOptions(encryption_config=broken).sealing()
    assert KEY1 not in str(caught.value)


def test_a_file_that_others_may_read_is_told_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "enc.yaml"
    file.write_text(yaml.safe_dump(config(entry(["secrets"]))))
    file.chmod(0o644)
    load_encryption(file)
    assert "chmod 600" in caplog.text and KEY1 not in caplog.text
    caplog.clear()
    file.chmod(0o600)
    load_encryption(file)
    assert not caplog.text


# --- a server


class Running:
    """A server over a file, with a configuration."""

    def __init__(self, path: Path, given: Obj | None) -> None:
        sealing = parse_encryption(given, "enc.yaml") if given else None
        self.store = SqliteStore(path, sealing=sealing)

    async def __aenter__(self) -> Caller:
        await self.store.start()
        clock = Clock()
        self.app = ApiServer(make_config(self.store, clock))
        await self.app.start()
        return Caller(self.app, clock)

    async def __aexit__(self, *_: object) -> None:
        await self.app.stop()
        await self.store.stop()


def kept(path: Path) -> dict[str, bytes]:
    """The rows of secrets and config maps, as they are in the file."""
    connection = sqlite3.connect(path)
    rows = connection.execute("SELECT key, value FROM objects WHERE key LIKE 'secrets/%' OR key LIKE 'configmaps/%'")
    found = {key.rpartition("/")[2]: bytes(value) for key, value in rows}
    connection.close()
    return found


async def test_keys_are_changed_without_losing_anything(tmp_path: Path) -> None:
    path, body = tmp_path / "state.db", {"metadata": {"name": "s"}, "stringData": {"password": "swordfish"}}
    async with Running(path, None) as api:
        await api.create(SECRETS, body)
        await api.create("/api/v1/namespaces/default/configmaps", config_map("m"))
    assert kept(path)["s"].startswith(b'{"apiVersion":"v1"')
    first = {"aesgcm": keys(key1=KEY1)}
    async with Running(path, config(entry(["secrets"], first, {"identity": {}}))) as api:
        before = await api.get(f"{SECRETS}/s")
        same = await api("PUT", f"{SECRETS}/s", before)
        assert same.json["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"], "it was stale"
        again = await api("PUT", f"{SECRETS}/s", same.json)
        assert again.json["metadata"]["resourceVersion"] == same.json["metadata"]["resourceVersion"]
    assert kept(path)["s"].startswith(b"k8s:enc:aesgcm:v1:key1:")
    assert kept(path)["m"].startswith(b"{")
    second = {"aescbc": keys(key2=KEY2)}
    async with Running(path, config(entry(["secrets"], second, first))) as api:
        patch = await api("PATCH", f"{SECRETS}/s", {}, type="application/merge-patch+json")
        assert patch.status == 200
        watch = await api.stream(f"{SECRETS}?watch=1")
        assert (await watch.next())["object"]["data"] == before["data"]
        await watch.close()
    assert kept(path)["s"].startswith(b"k8s:enc:aescbc:v1:key2:")
    async with Running(path, config(entry(["secrets"], second))) as api:
        assert (await api.get(f"{SECRETS}/s"))["data"] == before["data"]
    async with Running(path, config(entry(["secrets"], {"identity": {}}, second))) as api:
        await api("PATCH", f"{SECRETS}/s", {}, type="application/merge-patch+json")
    assert kept(path)["s"].startswith(b'{"apiVersion":"v1"')
