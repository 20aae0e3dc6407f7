"""Audit annotations and metrics of admission."""

from __future__ import annotations

import json
from pathlib import Path

from admission_objects import BINDINGS, POLICIES, binding, policy
from api_caller import MAPS, Caller, Clock, config_map, make_config
from webhook_server import WebhookServer, hook, hooks, label, mutating, patch, validating

from haru.apiserver.audit.policy import parse_policy
from haru.apiserver.audit_options import AuditOptions
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore

__all__ = ["hooks"]


async def test_admission_annotations_are_in_audit_log(hooks: WebhookServer, tmp_path: Path) -> None:
    store, clock, path = SqliteStore(":memory:"), Clock(), tmp_path / "audit.log"
    await store.start()
    rules = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
    app = ApiServer(make_config(store, clock, audit=AuditOptions(parse_policy(rules), str(path))))
    await app.start()
    api = Caller(app, clock)
    hooks.answers["/m"] = patch(label("a", "b"), auditAnnotations={"why": "so"})
    await mutating(api, hook(hooks.client("/m")), name="conf")
    checked = policy("false", auditAnnotations=[{"key": "size", "valueExpression": "string(size(object.data))"}])
    await api.create(POLICIES, checked)
    await api.create(BINDINGS, binding(validationActions=["Audit"]))
    await api.create(MAPS, config_map("m", {"x": "y"}, k="1"))
    await app.stop()
    await store.stop()
    events = [json.loads(line) for line in path.read_text().splitlines()]
    (noted,) = (e["annotations"] for e in events if e["requestURI"] == MAPS and e["stage"] == "ResponseComplete")
    failure = json.loads(noted.pop("validation.policy.admission.k8s.io/validation_failure"))
    assert failure == [
        {
            "message": "failed expression: false",
            "policy": "p.example.com",
            "binding": "b.example.com",
            "expressionIndex": 0,
            "validationActions": ["Audit"],
        }
    ]
    assert {key: value for key, value in noted.items() if not key.startswith("authorization")} == {
        "hook.example.com/why": "so",
        "mutation.webhook.admission.k8s.io/round_0_index_0": (
            '{"configuration":"conf","webhook":"hook.example.com","mutated":true}'
        ),
        "p.example.com/size": "1",
    }


async def test_admission_metrics_count_outcomes(api: Caller, hooks: WebhookServer) -> None:
    hooks.answers["/deny"] = lambda request: {"allowed": request["name"] == "m", "status": {"code": 409}}
    await validating(
        api,
        hook(hooks.client("/deny"), name="deny.example.com"),
        hook({"url": "https://127.0.0.1:1/x"}, name="gone.example.com", failurePolicy="Ignore"),
    )
    await api.create(POLICIES, policy("object.metadata.name != 'm'"))
    await api.create(BINDINGS, binding(validationActions=["Warn", "Audit"]))
    assert (await api("POST", MAPS, config_map("m"))).status == 201
    assert (await api("POST", MAPS, config_map("n"))).status == 409
    told = (await api("GET", "/metrics")).body.decode().splitlines()
    name = "apiserver_admission_webhook"
    about = 'name="deny.example.com",operation="CREATE"'
    check = 'error_type="invalid_error",policy="p.example.com",policy_binding="b.example.com"'
    for line in (
        f'{name}_request_total{{code="200",{about},rejected="false",type="validating"}} 1',
        f'{name}_request_total{{code="409",{about},rejected="true",type="validating"}} 1',
        f'{name}_rejection_count{{error_type="no_error",{about},rejection_code="409",type="validating"}} 1',
        f'{name}_fail_open_count{{name="gone.example.com",type="validating"}} 2',
        f'apiserver_validating_admission_policy_check_total{{enforcement_action="warn",{check}}} 1',
        f'apiserver_validating_admission_policy_check_total{{enforcement_action="audit",{check}}} 1',
    ):
        assert line in told, line
