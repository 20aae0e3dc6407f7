"""Bad input to a running cluster: refused with the words of 1.36, or Pending for the reason that 1.36 gives."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from system_cluster import pod, selected, template

from haru_process import Api, Up, condition, path_for, until

Obj = dict[str, Any]
DATA = Path(__file__).parent.parent / "data" / "manifests"
EXPECTED: list[Obj] = [json.loads(line) for line in (DATA / "expect.jsonl").read_text().splitlines()]
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = Up(tmp_path_factory.mktemp("bad-input"), "--ephemeral")
    yield running
    assert running.stop() == 0


@pytest.fixture(scope="module")
def api(up: Up) -> Api:
    return up.api


def objects_of(case: Obj) -> list[Obj]:
    return [obj for obj in yaml.safe_load_all((DATA / case["file"]).read_text()) if obj]


def post(api: Api, obj: Obj, validation: str) -> tuple[int, str]:
    """Creates an object for a moment; the code and the message."""
    code, answer = api.call("POST", f"{path_for(obj)}?fieldValidation={validation}&dryRun=All", obj)
    return code, answer["message"] if code >= 300 else ""


@pytest.mark.parametrize("case", EXPECTED, ids=lambda c: f"{c['file']}-{c.get('path', '')}")
def test_expected_finding_is_reported_by_the_server(up: Up, api: Api, kubectl: str, case: Obj) -> None:
    if case["stage"] in ("yaml", "kind"):
        # The client finds these, with what the server tells it.
        answer = up.kubectl(kubectl, "apply", "-f", str(DATA / case["file"]))
        assert (answer.returncode, case["message"] in answer.stderr) == (1, True), answer.stderr
        return
    kind, name = case["object"].split("/")
    [obj] = [o for o in objects_of(case) if o["kind"] == kind and o["metadata"]["name"] == name]
    if case["stage"] in ("semantic", "ok"):
        code, message = post(api, obj, "Strict")
        assert (code, message) == (201, "")
        return
    code, message = post(api, obj, "Strict" if case["stage"] == "schema" else "Ignore")
    assert code == (400 if case["stage"] == "schema" else 422), message
    assert case["message"] in message and case.get("path", "") in message


def test_manifests_are_refused_or_accepted_as_a_whole(api: Api) -> None:
    refused = {(c["file"], c["object"]) for c in EXPECTED if c["stage"] in ("schema", "validation")}
    for path in sorted(DATA.glob("*.yaml")):
        if path.name.startswith(("a1", "a4")):
            continue
        for obj in yaml.safe_load_all(path.read_text()):
            code, message = post(api, obj, "Strict")
            key = (path.name, f"{obj['kind']}/{obj['metadata']['name']}")
            assert (code >= 400) == (key in refused), f"{key}: {code} {message}"


def test_removed_kind_is_reported_as_by_kubectl(up: Up, kubectl: str) -> None:
    answer = up.kubectl(kubectl, "apply", "-f", str(DATA / "a1-resourceclass.yaml"))
    assert answer.returncode == 1
    assert 'no matches for kind "ResourceClass" in version "resource.k8s.io/v1beta1"' in answer.stderr
    assert "ensure CRDs are installed first" in answer.stderr


def test_yaml_body_is_accepted_like_json(api: Api) -> None:
    text = (DATA / "d4-claim-tolerations.yaml").read_bytes()
    path = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims?dryRun=All&fieldValidation=Strict"
    code, answer = api.call("POST", path, text, "application/yaml")
    assert (code, answer["metadata"]["name"]) == (201, "any-card")


def test_missing_device_class_leaves_pod_pending_until_created(up: Up, api: Api) -> None:
    api.create(template("missing", {"name": "gpu", "exactly": {"deviceClassName": "nope.example.com"}}), "default")
    api.create(pod("no-class", template="missing"), "default")
    said = until("the pod is rejected", lambda: condition(api.get("pods", "no-class", "default"), "PodScheduled"))
    assert (said["status"], said["reason"]) == ("False", "Unschedulable")
    assert said["message"].startswith(
        "0/4 nodes are available: request gpu: device class nope.example.com does not exist."
    )
    assert api.get("pods", "no-class", "default")["status"]["phase"] == "Pending"
    assert "nope.example.com" in up.haru("explain", "pod/no-class").stdout
    # It runs as soon as the class is there.
    api.create(
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": "nope.example.com"},
            "spec": {"selectors": [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]},
        }
    )
    until("the pod runs", lambda: api.get("pods", "no-class", "default")["status"]["phase"] == "Running")


def test_selector_runtime_error_is_reported_in_condition_and_event(api: Api) -> None:
    api.create(template("typo", selected('device.attributes["gpu.nvidia.com"].architektur == "Hopper"')), "default")
    api.create(pod("typo", template="typo"), "default")
    said = until("the pod is rejected", lambda: condition(api.get("pods", "typo", "default"), "PodScheduled"))
    assert (said["status"], said["reason"]) == ("False", "SchedulerError")
    [claim] = [c for c in api.list("resourceclaims", "default") if c["metadata"]["name"].startswith("typo-gpu-")]
    name = claim["metadata"]["name"]
    assert said["message"] == f"claim default/{name}: selector #0: CEL runtime error: no such key: architektur"
    until("the event is told", lambda: _told(api, "typo", "FailedScheduling", said["message"]))


def _told(api: Api, name: str, reason: str, message: str) -> bool:
    events = [e for e in api.list("events", "default") if e["involvedObject"]["name"] == name]
    return any(e["reason"] == reason and e["message"] == message for e in events)


def test_missing_template_and_missing_claim_are_reported(api: Api) -> None:
    api.create(pod("no-template", template="absent"), "default")
    api.create(pod("no-claim", claim="absent"), "default")
    until(
        "the template is missed",
        lambda: _told(
            api,
            "no-template",
            "FailedResourceClaimCreation",
            'PodResourceClaim gpu: resource claim template "absent": '
            'resourceclaimtemplate.resource.k8s.io "absent" not found',
        ),
    )
    assert {api.get("pods", n, "default")["status"]["phase"] for n in ("no-template", "no-claim")} == {"Pending"}


def malformed(lines: int, broken: int) -> str:
    """A manifest of so many lines of which one opens a list that nothing closes."""
    body = ["apiVersion: v1", "kind: ConfigMap", "metadata:", "  name: long", "data:"]
    body += [f"  key-{number}: value" for number in range(lines - len(body))]
    body[broken - 1] = "  broken: [1, 2"
    return "\n".join(body) + "\n"


def test_long_malformed_manifest_names_its_line(up: Up, kubectl: str, tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text(malformed(100, 66))
    answer = up.kubectl(kubectl, "apply", "-f", str(file))
    assert answer.returncode == 1
    expected = "error converting YAML to JSON: yaml: line 66: did not find expected ',' or ']'"
    assert answer.stderr == f"error: error parsing {file}: {expected}\n"
    code, status = up.api.call("POST", CONFIG_MAPS, file.read_bytes(), "application/yaml")
    assert (code, status["reason"]) == (400, "BadRequest")
    assert "yaml: line 6" in status["message"] and "did not find expected ',' or ']'" in status["message"]


def test_unknown_field_is_reported_through_kubectl(up: Up, kubectl: str) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: u\ndatas: {}\n"
    answer = up.kubectl(kubectl, "apply", "-f", "-", stdin=text)
    assert (answer.returncode, answer.stderr) == (
        1,
        'Error from server (BadRequest): error when creating "STDIN": ConfigMap in version "v1" cannot be handled as '
        'a ConfigMap: strict decoding error: unknown field "datas"\n',
    )
    warned = up.kubectl(kubectl, "apply", "--validate=warn", "-f", "-", stdin=text)
    assert (warned.returncode, warned.stdout) == (0, "configmap/u created\n")
    assert 'Warning: unknown field "datas"' in warned.stderr
    silent = up.kubectl(kubectl, "apply", "--validate=false", "-f", "-", stdin=text)
    assert (silent.returncode, silent.stderr) == (0, "")


def test_duplicate_field_is_refused_with_strict_validation(api: Api) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","name":"y"}}'
    code, status = api.call("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", body)
    assert code == 400 and status["message"].endswith('strict decoding error: duplicate field "metadata.name"')


def test_body_over_size_limit_is_refused(api: Api) -> None:
    def config_map(size: int) -> bytes:
        head = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"x":"'
        return head + b"y" * (size - len(head) - 3) + b'"}}'

    code, status = api.call("POST", CONFIG_MAPS, config_map(3 * 1024 * 1024 + 1))
    assert (code, status["reason"]) == (413, "RequestEntityTooLarge")
    assert status["message"] == "Request entity too large: limit is 3145728"
    code, status = api.call("POST", CONFIG_MAPS, config_map(3 * 1024 * 1024))
    assert (code, status["message"]) == (
        422,
        'ConfigMap "big" is invalid: []: Too long: may not be more than 1048576 bytes',
    )
    assert api.call("GET", "/readyz")[0] == 200


MALFORMED = {
    "no document": b"",
    "half a document": b'{"apiVersion": "v1"',
    "two documents": b"{}{}",
    "not UTF-8": b"\xff\xfe{}",
    "a number that is none": b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":NaN}}',
    "a list": b"[]",
    "deep lists": b"[" * 50_000 + b"]" * 50_000,
    "deep objects": b'{"a":' * 50_000 + b"1" + b"}" * 50_000,
    "another kind": b'{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}',
    "another version": b'{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"x"}}',
    "a number for a name": b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":7}}',
    "a list for metadata": b'{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}',
}

_READ_AS_YAML = ("no document", "two documents", "a number that is none", "not UTF-8")
"""What a YAML parser makes something of, if only an object without a name."""


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_body_is_a_bad_request(api: Api, name: str) -> None:
    for content_type in ("application/json", "application/yaml"):
        if content_type == "application/yaml" and name in _READ_AS_YAML:
            continue
        code, status = api.call("POST", f"{CONFIG_MAPS}?fieldValidation=Strict", MALFORMED[name], content_type)
        assert code == 400, (content_type, code, status)
        assert (status["kind"], status["status"], status["reason"]) == ("Status", "Failure", "BadRequest")
        assert status["message"]


@pytest.mark.parametrize(
    ("query", "code", "part"),
    [
        ("labelSelector=a%3D%3D%3D", 400, "unable to parse requirement"),
        ("fieldSelector=spec.image%3Dx", 400, "field label not supported"),
        ("limit=x", 400, "invalid syntax"),
        ("resourceVersion=new", 400, "resourceVersion"),
        ("continue=nonsense", 400, "continue"),
        ("resourceVersionMatch=Exact", 422, "resourceVersionMatch"),
    ],
)
def test_invalid_query_is_refused(api: Api, query: str, code: int, part: str) -> None:
    got, status = api.call("GET", f"/api/v1/namespaces/default/pods?{query}")
    assert got == code, status
    assert part in status["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "content_type", "code"),
    [
        ("GET", "/apis/resource.k8s.io/v1beta1/resourceclasses", None, "", 404),
        ("GET", "/api/v9/pods", None, "", 404),
        ("DELETE", "/healthz", None, "", 405),
        ("PATCH", f"{CONFIG_MAPS}/x", b"{}", "text/plain", 415),
        ("POST", CONFIG_MAPS, b"<a/>", "application/xml", 415),
        ("PATCH", f"{CONFIG_MAPS}/absent", b"{}", "application/merge-patch+json", 404),
        ("PUT", "/api/v1/namespaces/default", b'{"metadata":{"name":"x"}}', "application/json", 400),
    ],
)
def test_invalid_request_is_refused(
    api: Api, method: str, path: str, body: bytes | None, content_type: str, code: int
) -> None:
    got, answer = api.call(method, path, body, content_type or "application/json")
    assert got == code, answer


def test_wrong_token_is_unauthorized(up: Up, api: Api) -> None:
    code, status = api.call("GET", "/api/v1/pods", Authorization="Bearer wrong")
    assert (code, status["reason"], status["message"]) == (401, "Unauthorized", "Unauthorized")
