"""`haru up` with a KMS plugin and an audit webhook, all in processes of their own, killed in turn."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Timer

import pytest
import yaml

from audit_receiver import Receiver, receiver
from haru_process import Up, until
from kms_plugin import Plugin

__all__ = ["receiver"]
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.fixture
def plugin() -> Iterator[Plugin]:
    with tempfile.TemporaryDirectory(prefix="kms-") as directory:
        made = Plugin(Path(directory)).start()
        yield made
        made.kill()


def test_secrets_survive_restart_of_kms_plugin_and_server(tmp_path: Path, plugin: Plugin, receiver: Receiver) -> None:
    service = {"apiVersion": "v2", "name": "k", "endpoint": f"unix://{plugin.socket}"}
    entry = {"resources": ["secrets"], "providers": [{"kms": service}]}
    head = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration"}
    encryption, policy = tmp_path / "enc.yaml", tmp_path / "policy.yaml"
    encryption.write_text(yaml.safe_dump({**head, "resources": [entry]}))
    rules = [{"level": "Metadata", "resources": [{"group": "", "resources": ["secrets"]}]}]
    policy.write_text(yaml.safe_dump({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}))
    flags = ["--data-dir", str(tmp_path / "data"), "--profile", "cpu:0", "--no-scheduler", "--no-dashboard"]
    flags += ["--no-usage-history", "--controllers", "", "--encryption-provider-config", str(encryption)]
    flags += ["--audit-policy-file", str(policy), "--audit-webhook-config-file", str(receiver.kubeconfig())]
    flags += ["--audit-webhook-batch-max-wait", "100ms"]
    with ExitStack() as stack:
        story(tmp_path, plugin, receiver, flags, stack)


def story(tmp_path: Path, plugin: Plugin, receiver: Receiver, flags: list[str], stack: ExitStack) -> None:
    up = Up(tmp_path, *flags)
    stack.callback(up.stop, signal.SIGKILL)
    body = {"metadata": {"name": "s"}, "stringData": {"password": "swordfish"}}
    assert up.api.call("POST", SECRETS, body)[0] == 201
    found = until("the event", lambda: [e for e in receiver.events() if e["verb"] == "create"])
    assert found[0]["objectRef"]["resource"] == "secrets"
    assert up.api.call("GET", "/readyz/kms-providers")[0] == 200
    up.stop(signal.SIGKILL)
    assert all(b"swordfish" not in part.read_bytes() for part in (tmp_path / "data").glob("state.db*"))
    plugin.kill()
    later = Timer(1.5, plugin.start)
    later.start()
    again = Up(tmp_path, *flags, name="again")
    stack.callback(again.stop, signal.SIGKILL)
    later.join()
    code, secret = again.api.call("GET", f"{SECRETS}/s")
    assert code == 200 and secret["data"] == {"password": "c3dvcmRmaXNo"}
    plugin.kill()
    assert again.stop(signal.SIGTERM) == 0
    assert [e for e in receiver.events() if e["verb"] == "get"], "what waited was told at the end"
