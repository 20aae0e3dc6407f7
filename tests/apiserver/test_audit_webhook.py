"""The audit webhook: lists of events over TLS, batches, retries, what is lost, and requests that wait."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from api_caller import MAPS, Caller, Clock, config_map, make_config

import virtual_time
from audit_receiver import TOKEN, Receiver, receiver
from haru.apiserver.audit import webhook as webhooks
from haru.apiserver.audit.entries import Entry
from haru.apiserver.audit.webhook import AuditWebhook, Throttle
from haru.apiserver.audit_options import Delivery
from haru.apiserver.server import ApiServer
from haru.cli.main import build_parser
from haru.cli.security_flags import security_of
from haru.embedded.audit import audit_options
from haru.embedded.options import OptionError
from haru.embedded.security import SecurityOptions
from haru.storage import SqliteStore
from waiting import until

__all__ = ["receiver"]

Obj = dict[str, Any]
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "RequestResponse"}],
}
SOON = Delivery(batch_seconds=0.05, backoff=0.02)


@pytest.fixture
async def serve(tmp_path: Path, receiver: Receiver) -> AsyncIterator[Callable[..., Any]]:
    """Makes a server that posts to the receiver."""
    running: list[tuple[ApiServer, SqliteStore]] = []

    async def make(policy: Obj | None = None, **more: Any) -> Caller:
        file = tmp_path / "policy.yaml"
        file.write_text(json.dumps(policy or POLICY))
        given = {"audit_webhook": receiver.kubeconfig(), "audit_webhook_delivery": SOON, **more}
        options = audit_options(SecurityOptions(audit_policy=file, **given))
        store = SqliteStore(":memory:")
        await store.start()
        app = ApiServer(make_config(store, Clock(), audit=options))
        await app.start()
        running.append((app, store))
        return Caller(app, Clock())

    yield make
    for app, store in running:
        await app.stop()
        await store.stop()


async def metric(api: Caller, line: str) -> str:
    text: str = (await api("GET", "/metrics")).body.decode()
    return next(found.rpartition(" ")[2] for found in text.splitlines() if found.startswith(line))


async def test_events_are_sent_as_list_and_logged(serve: Any, receiver: Receiver, tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    api = await serve(audit_log=str(log))
    answer = await api("POST", MAPS, config_map("a", k="v"))
    await until(receiver.events)
    assert (receiver.lists[0]["kind"], receiver.lists[0]["apiVersion"]) == ("EventList", "audit.k8s.io/v1")
    (event,) = receiver.events()
    assert event["auditID"] == answer.headers["audit-id"] and event["objectRef"]["name"] == "a"
    assert event["requestObject"]["data"] == {"k": "v"} and event["responseObject"]["metadata"]["uid"]
    assert "kind" not in event, "it is one of a list"
    headers = receiver.headers[0]
    assert (headers["path"], headers["Authorization"]) == ("/events?from=haru", f"Bearer {TOKEN}")
    assert headers["Content-Type"] == "application/json"
    (line,) = [json.loads(line) for line in log.read_text().splitlines()]
    assert line == {"kind": "Event", "apiVersion": "audit.k8s.io/v1", **event}


async def test_batches_are_sent_by_size_and_by_time(serve: Any, receiver: Receiver) -> None:
    by_size = await serve(audit_webhook_delivery=Delivery(batch_events=3, batch_seconds=3600))
    for _ in range(4):
        await by_size("GET", MAPS)
    await until(lambda: receiver.lists)
    assert len(receiver.events()) == 3, "a full batch does not wait, the next one does"
    by_time = await serve(audit_webhook_delivery=Delivery(batch_events=3, batch_seconds=0.05))
    await by_time("GET", MAPS)
    await until(lambda: len(receiver.lists) == 2)
    assert [len(each["items"]) for each in receiver.lists] == [3, 1]


async def test_buffered_events_are_sent_on_stop(serve: Any, receiver: Receiver) -> None:
    api = await serve(audit_webhook_delivery=Delivery(batch_seconds=3600, batch_events=4))
    for _ in range(10):
        await api("GET", MAPS)
    await api.app.stop()
    assert len(receiver.events()) == 10


async def test_failing_audit_webhook_is_retried_five_times(serve: Any, receiver: Receiver, caplog: Any) -> None:
    receiver.statuses = [500, 403, 429, 302]
    api = await serve()
    await api("GET", MAPS)
    await until(receiver.events)
    assert receiver.tries == 5 and await metric(api, 'apiserver_audit_error_total{plugin="webhook"}') == "0"
    await until(lambda: len(receiver.events()) == 2)
    receiver.statuses, receiver.tries = [400] * 5, 0
    await api("GET", MAPS)
    await until(lambda: receiver.tries == 5 and "status 400" in caplog.text)
    assert await metric(api, 'apiserver_audit_error_total{plugin="webhook"}') == "1"
    assert int(await metric(api, "apiserver_audit_event_total")) >= 3


async def test_late_audit_webhook_receives_earlier_events(serve: Any, receiver: Receiver) -> None:
    api = await serve(audit_webhook_delivery=Delivery(batch_seconds=0.01, backoff=0.3))
    receiver.stop()
    assert (await api("POST", MAPS, config_map("a"))).status == 201
    await asyncio.sleep(0.05)
    receiver.start()
    await until(receiver.events)
    assert receiver.events()[0]["objectRef"]["name"] == "a"


async def test_unreachable_audit_webhook_drops_events_without_delay(
    serve: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setattr(webhooks, "STOP_SECONDS", 0.3)
    delivery = Delivery(buffer=20, batch_events=5, batch_seconds=0.01, backoff=3600, throttles=False)
    api = await serve(audit_webhook_delivery=delivery)
    receiver.stop()
    for _ in range(50):
        assert (await asyncio.wait_for(api("GET", MAPS), 60)).status == 200
    assert await metric(api, 'apiserver_audit_error_total{plugin="buffered"}') == "30"
    async with asyncio.timeout(60):  # the next attempt would come after an hour
        await api.app.stop()
    assert "what the audit webhook was told is incomplete" in caplog.text
    errors = api.app.metrics.more
    text = "\n".join(line for lines in errors for line in lines())
    assert 'apiserver_audit_error_total{plugin="webhook"} 20' in text


@pytest.mark.parametrize(("mode", "status"), [("blocking", 200), ("blocking-strict", 500)])
async def test_blocking_mode_waits_for_webhook(
    serve: Any, receiver: Receiver, mode: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = {**POLICY, "omitStages": []}
    api = await serve(everything, audit_webhook_delivery=Delivery(mode=mode, backoff=0.01))
    receiver.held.clear()
    asked = asyncio.create_task(api("GET", f"{MAPS}"))
    await until(lambda: receiver.tries)
    await asyncio.sleep(0.05)
    assert not asked.done() and not receiver.lists
    receiver.held.set()
    assert (await asked).status == 200
    assert [event["stage"] for event in receiver.events()] == ["RequestReceived", "ResponseComplete"]
    receiver.stop()
    answer = await api("GET", MAPS)
    assert answer.status == status
    receiver.start()
    if status == 500:
        assert "failed to store audit event" in answer.json["message"]
    assert await metric(api, "apiserver_audit_requests_rejected_total") == str(int(status == 500))


@pytest.mark.parametrize(("mode", "status"), [("blocking", 200), ("blocking-strict", 500)])
async def test_blocking_mode_waits_for_disk(
    serve: Any, tmp_path: Path, mode: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "audit.log"
    everything = {**POLICY, "omitStages": []}
    api = await serve(everything, audit_webhook=None, audit_log=str(log), audit_log_delivery=Delivery(mode=mode))
    await api("GET", MAPS)
    assert len(log.read_text().splitlines()) == 2, "both had been written when the answer came"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("haru.apiserver.audit.log.AuditFile.write", full)
    assert (await api("GET", MAPS)).status == status
    monkeypatch.undo()
    assert int(await metric(api, 'apiserver_audit_error_total{plugin="log"}')) >= 1


def entry(body: int, **event: Any) -> Entry:
    return Entry({"kind": "Event", "apiVersion": "audit.k8s.io/v1", "verb": "get", **event}, 3, response_body=_x(body))


def _x(count: int) -> bytes:
    return b'"' + b"x" * count + b'"'


async def test_large_events_are_truncated_and_batches_split(receiver: Receiver, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(json.dumps(POLICY))
    options = audit_options(SecurityOptions(audit_policy=tmp_path / "policy.yaml", audit_webhook=receiver.kubeconfig()))
    assert options is not None and options.webhook is not None
    delivery = Delivery(truncates=True, event_bytes=3000, batch_bytes=5000, batch_seconds=0.05)
    hook = AuditWebhook(options.webhook, delivery)
    await hook.start()
    for each in (entry(10), entry(9000), entry(10, requestURI="u" * 4000), entry(2000), entry(2000), entry(2000)):
        hook.put(each)
    await hook.stop()
    small, cut, *rest = receiver.events()
    assert small["responseObject"] and "annotations" not in small
    assert "responseObject" not in cut and cut["annotations"] == {"audit.k8s.io/truncated": "true"}
    assert len(rest) == 3 and all(size < 5200 for size in receiver.sizes) and len(receiver.sizes) == 2
    assert hook.losses.counts == {"truncate": 1}


def test_batch_rate_is_limited() -> None:
    async def work() -> list[float]:
        throttle, loop, taken = Throttle(50, 3), asyncio.get_running_loop(), []
        await asyncio.sleep(10)
        for _ in range(8):
            await throttle.take()
            taken.append(round(loop.time() - 10, 2))
        return taken

    assert virtual_time.run(work()) == [0, 0, 0, 0.02, 0.04, 0.06, 0.08, 0.1]


def test_audit_webhook_flags_are_validated(tmp_path: Path, receiver: Receiver) -> None:
    policy, hook = tmp_path / "policy.yaml", receiver.kubeconfig()
    policy.write_text(json.dumps(POLICY))
    text = (
        f"--audit-policy-file {policy} --audit-webhook-config-file {hook} --audit-webhook-mode blocking "
        "--audit-webhook-batch-buffer-size 7 --audit-webhook-batch-max-size 3 --audit-webhook-batch-max-wait 1m30s "
        "--audit-webhook-batch-throttle-enable=false --audit-webhook-batch-throttle-qps 0.5 "
        "--audit-webhook-batch-throttle-burst 2 --audit-webhook-initial-backoff 500ms --audit-webhook-truncate-enabled "
        "true --audit-webhook-truncate-max-batch-size 900 --audit-webhook-truncate-max-event-size 800 "
        "--audit-webhook-version audit.k8s.io/v1 --audit-log-mode blocking-strict"
    )
    found = audit_options(security_of(build_parser().parse_args(["up", *text.split()]), SecurityOptions()))
    assert found is not None and found.webhook is not None
    assert found.webhook_delivery == Delivery("blocking", 7, 3, 90.0, False, 0.5, 2, True, 900, 800, 0.5)
    assert found.log.mode == "blocking-strict" and found.path == ""
    good = audit_options(SecurityOptions(audit_policy=policy, audit_webhook=hook))
    assert good is not None and good.webhook_delivery == Delivery(
        "batch", 10000, 400, 30.0, True, 10.0, 15, False, 10485760, 102400, 10.0
    ), "the defaults of 1.36"
    broken = tmp_path / "broken.yaml"
    broken.write_text("clusters: []")
    plain = tmp_path / "plain.yaml"
    plain.write_text(hook.read_text().replace("certificate-authority-data: ", "certificate-authority-data: QUJD #"))
    socks = tmp_path / "socks.yaml"
    socks.write_text(
        hook.read_text().replace(
            "certificate-authority-data: ", "proxy-url: socks5://p\n    certificate-authority-data: "
        )
    )
    for given, says in (
        ({"audit_webhook": socks}, "socks.yaml: proxy socks5://p:1080: a SOCKS proxy is not supported here"),
        (
            {"audit_webhook": hook, "audit_policy": None},
            "--audit-webhook-config-file: Forbidden without --audit-policy",
        ),
        ({"audit_webhook": tmp_path / "none"}, "--audit-webhook-config-file: .*none: no such file"),
        ({"audit_webhook": broken}, "--audit-webhook-config-file: .*no current-context"),
        ({"audit_webhook": plain}, "--audit-webhook-config-file: .*plain.yaml: certificates can not be used"),
        ({"audit_webhook_delivery": Delivery("async")}, '--audit-webhook-mode: Invalid value: "async": allowed modes'),
        (
            {"audit_webhook_delivery": Delivery(buffer=0)},
            "--audit-webhook-batch-buffer-size: Invalid value: 0: must be",
        ),
        ({"audit_webhook_delivery": Delivery(burst=0)}, "--audit-webhook-batch-throttle-burst: Invalid value: 0"),
        ({"audit_webhook_delivery": Delivery(event_bytes=0)}, "--audit-webhook-truncate-max-event-size: Invalid value"),
        ({"audit_webhook_delivery": Delivery(batch_bytes=9)}, "--audit-webhook-truncate-max-batch-size: Invalid value"),
        ({"audit_log_delivery": Delivery("x")}, "--audit-log-mode: Invalid value"),
    ):
        with pytest.raises(OptionError, match=says):
            audit_options(SecurityOptions(**{"audit_policy": policy, "audit_webhook": hook, **given}))


@pytest.mark.parametrize("wrong", ["--audit-webhook-version audit.k8s.io/v1beta1", "--audit-webhook-batch-max-wait 3"])
def test_invalid_audit_webhook_values_exit_with_2(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        build_parser().parse_args(["up", *wrong.split()])
    assert caught.value.code == 2 and "Invalid value" in capsys.readouterr().err


async def test_audit_webhook_certificate_is_verified(serve: Any, receiver: Receiver, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    strange = Receiver(other)
    strange.port = receiver.port
    receiver.stop()
    strange.start()
    try:
        api = await serve()
        await api("GET", MAPS)
        hook = api.app.components.auditor._webhook
        await until(lambda: hook.losses.counts["webhook"])
        assert not strange.tries and not strange.lists
    finally:
        strange.stop()
