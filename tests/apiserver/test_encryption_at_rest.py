"""`--encryption-provider-config`: what the file may say, and what a server with it does."""

from __future__ import annotations

import base64
import sqlite3
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from api_caller import Caller, Clock, config_map, make_config

from haru.apiserver.config import EncryptionOptions
from haru.apiserver.encryption.config import EncryptionError, load_encryption, parse_encryption
from haru.apiserver.server import ApiServer
from haru.cli.main import build_parser
from haru.cli.security_flags import security_of
from haru.embedded.options import OptionError
from haru.embedded.security import SecurityOptions
from haru.storage import SqliteStore
from haru.storage.kms import KmsProvider, provider
from kms_plugin import Plugin
from waiting import until

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
def test_encryption_configuration_selects_resources(given: Obj, sealed: set[str]) -> None:
    sealing = parse_encryption(given, "f")
    known = ("secrets", "configmaps", "jobs.batch", "widgets.example.com")
    assert {name for name in known if sealing.seal(name, "/p", b"{}") != b"{}"} == sealed


KMS = "resources[0].providers[0].kms"
SERVICE = {"apiVersion": "v2", "name": "k", "endpoint": "unix:///run/kms.sock", "timeout": "1s"}
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
            config(entry(["secrets"], {"kms": {}})),
            f"{KMS}.apiVersion: Forbidden: KMSv1 is deprecated, off in Kubernetes",
        ),
        (config(entry(["secrets"], {"kms": {**SERVICE, "apiVersion": "v1"}})), 'write "apiVersion: v2"'),
        (config(entry(["secrets"], {"kms": {**SERVICE, "apiVersion": "v3"}})), 'Invalid value: "v3": unsupported'),
        (config(entry(["secrets"], {"kms": {**SERVICE, "name": ""}})), f"{KMS}.name: Required value"),
        (config(entry(["secrets"], {"kms": {**SERVICE, "name": "a:b"}})), "must not contain ':'"),
        (config(entry(["secrets"], {"kms": {**SERVICE, "cachesize": 1}})), "cachesize is not supported in v2"),
        (config(entry(["secrets"], {"kms": {**SERVICE, "endpoint": ""}})), f"{KMS}.endpoint: Required value"),
        (config(entry(["secrets"], {"kms": {**SERVICE, "endpoint": "tcp://x"}})), 'unsupported scheme "tcp" for KMS'),
        (config(entry(["secrets"], {"kms": {**SERVICE, "endpoint": "unix://x"}})), "write a path after three slashes"),
        (
            config(entry(["secrets"], {"kms": {**SERVICE, "timeout": "0s"}})),
            "timeout: Invalid value: '0s': should be a",
        ),
        (config(entry(["secrets"], {"kms": {**SERVICE, "timeout": 3}})), "timeout: Invalid value: 3: should be a"),
        (config(entry(["secrets"], {"kms": {**SERVICE, "key": 3}})), "kms.key: unknown field"),
        (
            config(entry(["secrets"], {"kms": SERVICE}), entry(["configmaps"], {"kms": SERVICE})),
            'resources[1].providers[0].kms.name: Duplicate value: "k": names of KMS providers must be unique',
        ),
        (
            config(entry(["secrets"], {"secretbox": keys(a=base64.b64encode(b"x" * 16).decode())})),
            "secretbox.keys[0].secret: Invalid value: it has 16 bytes, and must have 32",
        ),
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
def test_invalid_encryption_configuration_is_refused_without_keys(given: Obj, says: str, tmp_path: Path) -> None:
    file = tmp_path / "enc.yaml"
    file.write_text(yaml.safe_dump(given))
    with pytest.raises(EncryptionError) as caught:
        load_encryption(file)
    text = str(caught.value)
    assert text.startswith(f"--encryption-provider-config: {file}: ") and says in text
    assert KEY1[1:20] not in text, "no key in a message"


def test_unreadable_encryption_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"--encryption-provider-config: .*none\.yaml: No such file"):
        SecurityOptions(encryption_config=tmp_path / "none.yaml").sealing()
    broken = tmp_path / "broken.yaml"
    broken.write_text(f"resources: [\n  secret: {KEY1}\n: {KEY1}")
    with pytest.raises(OptionError) as caught:
        SecurityOptions(encryption_config=broken).sealing()
    assert KEY1 not in str(caught.value)


def test_world_readable_encryption_file_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "enc.yaml"
    file.write_text(yaml.safe_dump(config(entry(["secrets"]))))
    file.chmod(0o644)
    load_encryption(file)
    assert "chmod 600" in caplog.text and KEY1 not in caplog.text
    caplog.clear()
    file.chmod(0o600)
    load_encryption(file)
    assert not caplog.text


def test_secretbox_without_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nacl", None)
    with pytest.raises(EncryptionError, match=r"secretbox: Forbidden: .*pip install 'haru\[secretbox\]'"):
        parse_encryption(config(entry(["secrets"], {"secretbox": keys(a=KEY1)})), "f")


def test_kms_endpoint_and_timeout_are_parsed() -> None:
    given = [("unix:///run/kms.sock", "/run/kms.sock", "1500ms", 1.5), ("unix:///@kms", "@kms", None, 3.0)]
    for endpoint, socket, timeout, seconds in given:
        service = {"apiVersion": "v2", "name": "k", "endpoint": endpoint, **({"timeout": timeout} if timeout else {})}
        (found,) = parse_encryption(config(entry(["secrets"], {"kms": service})), "f").outside
        assert isinstance(found, KmsProvider)
        assert (found.prefix, found.socket, found.seconds) == (b"k8s:enc:kms:v2:k:", socket, seconds)


# --- a server


class Running:
    """A server over a file, with a configuration."""

    def __init__(self, path: Path, given: Obj | None, file: Path | None = None) -> None:
        self.sealing = parse_encryption(given, "enc.yaml") if given else load_encryption(file) if file else None
        self.file = file
        self.store = SqliteStore(path, sealing=self.sealing)

    async def __aenter__(self) -> Caller:
        await self.store.start()
        clock = Clock()
        self.app = ApiServer(make_config(self.store, clock, encryption=EncryptionOptions(self.sealing, self.file)))
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


async def test_encryption_keys_are_rotated_without_data_loss(tmp_path: Path) -> None:
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


async def test_server_with_kms_plugin_encrypts_and_rotates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GOOD_SECONDS", "BAD_SECONDS", "GOOD_HEALTH_SECONDS", "BAD_HEALTH_SECONDS"):
        monkeypatch.setattr(provider, name, 0.05)
    with tempfile.TemporaryDirectory(prefix="kms-") as directory:
        plugin = Plugin(Path(directory)).start()
        service = {"kms": {"apiVersion": "v2", "name": "k", "endpoint": f"unix://{plugin.socket}", "timeout": "2s"}}
        path, body = tmp_path / "state.db", {"metadata": {"name": "s"}, "stringData": {"password": "swordfish"}}
        given = config(entry(["secrets"], service, {"identity": {}}))
        try:
            async with Running(path, None) as api:
                await api.create(SECRETS, body)
            async with Running(path, given) as api:
                await served_with_a_plugin(api, plugin, body, monkeypatch)
            assert b"swordfish" not in kept(path)["s"] and kept(path)["s"].startswith(b"k8s:enc:kms:v2:k:")
            assert b"key-2" in kept(path)["s"]
        finally:
            plugin.kill()


async def served_with_a_plugin(api: Caller, plugin: Plugin, body: Obj, monkeypatch: pytest.MonkeyPatch) -> None:
    patch = {"type": "application/merge-patch+json"}

    async def version() -> str:
        answer = await api("PATCH", f"{SECRETS}/s", {}, **patch)
        return str(answer.json["metadata"]["resourceVersion"])

    first = await version()
    assert await version() == first, "nothing changed any more"
    plugin.tell(key_id="key-2")

    async def rewritten() -> bool:
        return await version() != first

    await until(rewritten)
    assert await version() == await version()
    for name in ("readyz", "healthz", "readyz/kms-providers"):
        assert (await api("GET", f"/{name}")).status == 200
    assert "[+]kms-providers ok" in (await api("GET", "/readyz?verbose")).body.decode()
    assert "kms-providers" not in (await api("GET", "/livez?verbose")).body.decode()

    async def unwell() -> bool:
        answer = await api("GET", "/readyz")
        return answer.status == 500 and b"[-]kms-providers failed: kms-provider-0" in answer.body

    async def expired() -> bool:
        answer = await api("PATCH", f"{SECRETS}/s", {"stringData": {"a": f"{time.time()}"}}, **patch)
        return answer.status == 500 and "encryptedDEKSource with keyID hash" in answer.json["message"]

    with monkeypatch.context() as short:
        short.setattr(provider, "WRITE_SECONDS", 0.1)
        asked = plugin.calls()["Status"]

        async def asked_twice() -> bool:
            return plugin.calls()["Status"] >= asked + 2

        await until(asked_twice)
        plugin.kill()
        # An answer of before may still come in: the key's life stays short until it has ended.
        await until(unwell)
        await until(expired)
    assert (await api("GET", "/livez")).status == (await api("GET", f"{SECRETS}/s")).status == 200
    assert (await api("POST", SECRETS, {**body, "metadata": {"name": "t"}})).json["reason"] == "InternalError"
    await api.create("/api/v1/namespaces/default/configmaps", config_map("m"))
    plugin.start()

    async def written() -> bool:
        return (await api("PATCH", f"{SECRETS}/s", {"stringData": {"a": "b"}}, **patch)).status == 200

    await until(written)
    text = (await api("GET", "/metrics")).body.decode()
    assert "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds{" in text
    assert 'apiserver_envelope_encryption_dek_source_cache_size{provider_name="k"} 2' in text


# --- a configuration that changes


def on_disk(directory: Path) -> bytes:
    return b"".join(part.read_bytes() for part in directory.glob("state.db*"))


def put(file: Path, *providers: Obj, resource: str = "secrets") -> None:
    file.write_text(yaml.safe_dump(config(entry([resource], *providers))))
    file.chmod(0o600)


async def metric(api: Caller, line: str) -> str:
    text = (await api("GET", "/metrics")).body.decode()
    return next((found.rpartition(" ")[2] for found in text.splitlines() if found.startswith(line)), "0")


async def test_changed_encryption_configuration_is_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("haru.apiserver.encryption.reload.LOOK_SECONDS", 0.05)
    file, path, patch = tmp_path / "enc.yaml", tmp_path / "state.db", {"type": "application/merge-patch+json"}
    good = 'apiserver_encryption_config_controller_automatic_reloads_total{apiserver_id_hash="",status="success"}'
    bad = good.replace("success", "failure")
    put(file, {"identity": {}}, resource="configmaps")
    async with Running(path, None, file) as api:
        await api.create(SECRETS, {"metadata": {"name": "s"}, "stringData": {"password": "swordfish"}})
        await api("PATCH", f"{SECRETS}/s", {"stringData": {"a": "b"}}, **patch)
        info = 'apiserver_encryption_config_controller_last_config_info{apiserver_id_hash="",hash="sha256:'
        assert await metric(api, info) == "1"
        put(file, {"aesgcm": keys(key1=KEY1)}, {"identity": {}})

        async def taken() -> bool:
            return await metric(api, good) == "1"

        await until(taken)
        before = await api.get(f"{SECRETS}/s")
        changed = (await api("PATCH", f"{SECRETS}/s", {}, **patch)).json
        assert changed["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"], "it was stale"
        file.write_text("resources: []")

        async def refused() -> bool:
            return int(await metric(api, bad)) > 2

        await until(refused)
        assert caplog.text.count("the old one stays in use") == 1 and await metric(api, good) == "1"
        await api("PATCH", f"{SECRETS}/s", {"stringData": {"c": "d"}}, **patch)
        assert "[+]kms-providers ok" in (await api("GET", "/readyz?verbose")).body.decode()
    assert kept(path)["s"].startswith(b"k8s:enc:aesgcm:v1:key1:")
    assert b"c3dvcmRmaXNo" not in on_disk(tmp_path), "nor what it was before is in the file"


async def test_configuration_with_unhealthy_plugin_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("haru.storage.sealing.GRACE_SECONDS", 0.1)
    monkeypatch.setattr(provider, "BAD_HEALTH_SECONDS", 0.0)
    file, path, patch = tmp_path / "enc.yaml", tmp_path / "state.db", {"type": "application/merge-patch+json"}
    first = {"aesgcm": keys(key1=KEY1)}
    put(file, first)
    with tempfile.TemporaryDirectory(prefix="kms-") as directory:
        plugin = Plugin(Path(directory))
        service = {"kms": {"apiVersion": "v2", "name": "k", "endpoint": f"unix://{plugin.socket}", "timeout": "1s"}}
        try:
            async with Running(path, None, file) as api:
                await api.create(SECRETS, {"metadata": {"name": "s"}})
                reloader = api.app.components.background._reloader
                assert reloader is not None and not await reloader.look(), "nothing has changed"
                put(file, service, first)
                assert not await reloader.look() and "failed to perform status section" in caplog.text
                assert (await api("PATCH", f"{SECRETS}/s", {"stringData": {"a": "b"}}, **patch)).status == 200
                plugin.start()
                assert await reloader.look()
                assert (await api("PATCH", f"{SECRETS}/s", {}, **patch)).status == 200
                put(file, {**service, "kms": {**service["kms"], "timeout": "2s"}})
                assert await reloader.look(), "the same plugin, asked otherwise"
            assert kept(path)["s"].startswith(b"k8s:enc:kms:v2:k:")
            async with Running(path, None, file) as api:
                assert (await api.get(f"{SECRETS}/s"))["data"] == {"a": "Yg=="}
        finally:
            plugin.kill()


def test_encryption_flags_are_validated(tmp_path: Path) -> None:
    file = tmp_path / "enc.yaml"
    put(file, {"identity": {}})
    flag = "--encryption-provider-config"
    for given, followed in (("", None), (f"{flag}-automatic-reload", file), (f"{flag}-automatic-reload=false", None)):
        flags = build_parser().parse_args(["up", f"{flag}={file}", *given.split()])
        assert security_of(flags, SecurityOptions()).encryption_file == followed
    with pytest.raises(OptionError, match="--encryption-provider-config-automatic-reload: Forbidden: must be set with"):
        SecurityOptions(encryption_reload=True).sealing()
