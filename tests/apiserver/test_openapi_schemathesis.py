"""Schemathesis over the served OpenAPI: all operations of all group versions, against a server in its own process.

HARU_FUZZ_SECONDS says for how long. A failure names the request as a command for curl.
"""

from __future__ import annotations

import base64
import json
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import requests
import yaml
from fuzz_target import resident_mebibytes
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded
from sample_objects import SAMPLES, path_of

from haru_process import Up

if TYPE_CHECKING:
    from schemathesis import Case
    from schemathesis.schemas import APIOperation

Obj = dict[str, Any]
SECONDS = float(os.environ.get("HARU_FUZZ_SECONDS", "600"))
SEED = int(os.environ.get("HARU_FUZZ_SEED") or secrets.randbits(32))
CASES_A_TURN = 4
HANG_SECONDS = 60
NAMES = ("a", "b.example.com", "default", "v1.a.b")
GROWTH_MEBIBYTES = 200
NULL_REFERENCES = {"podGroupTemplateRef", "schedulingConstraints", "workload"}
TIMES = {f"io.k8s.apimachinery.pkg.apis.meta.v1.{name}" for name in ("Time", "MicroTime")}


def allow_null(schemas: dict[str, Any]) -> None:
    """What nobody has set is written as null in 1.36, too, if it is a time, a collection or one of a few references."""
    collections = [
        value
        for schema in schemas.values()
        for value in schema.get("properties", {}).values()
        if value.get("type") == "array" or "additionalProperties" in value
    ]
    for schema in (*(schemas[name] for name in TIMES & schemas.keys()), *collections):
        schema["nullable"] = True
    for schema in schemas.values():
        for name in NULL_REFERENCES & schema.get("properties", {}).keys():
            schema["properties"][name] = {"nullable": True}


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(
        tmp_path / "up", "--ephemeral", "--no-dashboard", "--no-scheduler", "--controllers", "", "--profile", "cpu:1"
    )
    yield running
    running.stop()


class Caller:
    """Sends cases to the server and judges the answers."""

    def __init__(self, up: Up) -> None:
        import schemathesis.checks  # here, as it costs a moment that only the night has
        import schemathesis.specs.openapi.checks as documented

        self.api = up.api
        self.session = requests.Session()
        self.session.headers["Authorization"] = f"Bearer {up.api.token}"
        config = yaml.safe_load(up.kubeconfig.read_text())
        authority = up.home / "authority.pem"
        authority.write_bytes(base64.b64decode(config["clusters"][0]["cluster"]["certificate-authority-data"]))
        self.authority = str(authority)
        self.always: list[Any] = [schemathesis.checks.not_a_server_error]
        self.on_success: list[Any] = [
            *self.always,
            documented.status_code_conformance,
            documented.content_type_conformance,
            documented.response_schema_conformance,
        ]
        self.random = random.Random(SEED)
        self.names: dict[str, str] = {}
        """Plural -> the name of an object that is there."""
        self.answers: Counter[int] = Counter()

    def fill(self) -> None:
        """One object of most kinds."""
        for obj in SAMPLES:
            path = path_of(obj)
            if self.api.call("POST", path, obj)[0] == 201:
                self.names[path.rpartition("/")[2]] = obj["metadata"]["name"]

    def operations(self) -> list[APIOperation[Any, Any, Any, Any]]:
        """All that is documented, of all group versions."""
        import schemathesis
        from schemathesis.core.result import Ok

        _, index = self.api.call("GET", "/openapi/v3")
        found: list[APIOperation[Any, Any, Any, Any]] = []
        for entry in index["paths"].values():
            code, document = self.api.call("GET", entry["serverRelativeURL"])
            assert code == 200 and document["openapi"].startswith("3.0"), entry
            allow_null(document["components"]["schemas"])
            if document.get("paths"):
                for result in schemathesis.openapi.from_dict(document).get_all_operations():
                    assert isinstance(result, Ok), result
                    found.append(result.ok())
        return found

    def _aim(self, case: Case[Any]) -> None:
        """Most cases go to what is there: random names alone would be told 404, and watches must end."""
        plural = case.path.partition("/{name}")[0].rpartition("/")[2]
        there = self.names.get(plural, "a") if self.random.random() < 0.7 else self.random.choice(NAMES)
        for name, value in (("namespace", "default"), ("name", there)):
            if name in case.path_parameters and self.random.random() < 0.8:
                case.path_parameters[name] = value
        if isinstance(case.body, dict) and self.random.random() < 0.8 and case.method in ("POST", "PUT"):
            case.body.pop("apiVersion", None)
            case.body.pop("kind", None)
            case.body["metadata"] = {"name": case.path_parameters.get("name") or self.random.choice(NAMES)}
        if case.media_type and case.method != "PATCH" and self.random.random() < 0.9:
            case.media_type = "application/json"
        if "watch" in case.query:
            case.query["timeoutSeconds"] = 1

    def try_out(self, case: Case[Any]) -> None:
        """One request: answered in time, by no failure of the server's, and as the document says."""
        self._aim(case)
        answer = case.call(base_url=self.api.url, session=self.session, verify=self.authority, timeout=HANG_SECONDS)
        self.answers[answer.status_code] += 1
        text, media = answer.content, answer.headers.get("content-type", [""])[0]
        if answer.status_code >= 400:
            told = json.loads(text)
            assert (told["kind"], told["status"], told["code"]) == ("Status", "Failure", answer.status_code), told
            assert told["message"], told
            assert told["reason"] or "failed to create typed patch object" in told["message"], told
        elif media == "application/json" and "watch" not in case.query:
            json.loads(text)
        # As in 1.36, an event written in the older form has no eventTime, which the newer form requires, and a token
        # that is bound to nothing has a boundObjectRef that is null.
        kept = case.method != "DELETE" and "/events" not in case.path and not case.path.endswith("/token")
        plain = kept and answer.status_code < 300 and "watch" not in case.query
        case.validate_response(answer, checks=self.on_success if plain else self.always)


def turn(operation: APIOperation[Any, Any, Any, Any], number: int, caller: Caller) -> None:
    """A few cases of one operation, some of them against its document."""
    from schemathesis import GenerationMode

    mode = GenerationMode.NEGATIVE if number % 3 == 2 and operation.body else GenerationMode.POSITIVE

    @seeded(SEED + number)
    @settings(
        max_examples=CASES_A_TURN,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def cases(case: Case[Any]) -> None:
        caller.try_out(case)

    cases()


@pytest.mark.nightly
@pytest.mark.filterwarnings("default")
def test_documented_operations_conform_to_openapi(up: Up) -> None:
    caller = Caller(up)
    operations = caller.operations()
    caller.fill()
    assert len(caller.names) > 30
    assert len(operations) > 500
    random.Random(SEED).shuffle(operations)
    began, number, before = time.monotonic(), 0, 0.0
    while time.monotonic() - began < SECONDS:
        operation = operations[number % len(operations)]
        try:
            turn(operation, number, caller)
        except BaseException as error:
            error.add_note(f"{operation.label}, turn {number} of HARU_FUZZ_SEED={SEED}")
            raise
        number += 1
        if not before and time.monotonic() - began > SECONDS / 4:
            before = resident_mebibytes(up.process.pid)
    grown = resident_mebibytes(up.process.pid) - before
    told = f"{number} turns, {sum(caller.answers.values())} requests, {grown:.0f} MiB grown"
    print(f"{told}, answers {dict(caller.answers)}")
    assert grown < GROWTH_MEBIBYTES
    assert sum(count for code, count in caller.answers.items() if code < 300) > number / 10
