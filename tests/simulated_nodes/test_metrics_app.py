"""`metrics.k8s.io` of simulated nodes: who may ask, and what is answered."""

from __future__ import annotations

import json
import ssl
from datetime import UTC, datetime
from typing import Any

import pytest
from in_memory_client import InMemoryClient

from haru.apiserver.auth import client_pair, new_authority
from haru.secure_serving.authorization import ReviewedAccess
from haru.secure_serving.options import ServingOptions
from haru.secure_serving.protocol import CERTIFICATE
from haru.secure_serving.request_header import FrontProxy, FrontProxyCertificates
from haru.simulated_nodes.metrics_server.app import NODES, PODS, MetricsApp

Obj = dict[str, Any]
NOW = datetime(2026, 1, 1, 0, 1, tzinfo=UTC)
ROOT = "/apis/metrics.k8s.io/v1beta1"
PEM = client_pair(new_authority(datetime.now(UTC), "front"), "proxy", (), datetime.now(UTC)).certificate.decode()
DER = ssl.PEM_cert_to_DER_cert(PEM[PEM.index("-----BEGIN") : PEM.index("-----END") + 30])
FRONT = FrontProxy("", ("proxy",), ("x-remote-user",), ("x-remote-uid",), ("x-remote-group",), ())


class Reviewer:
    """Lets `jane` see what is in team-a, and `root` all."""

    async def review(self, kind: Any, spec: Obj) -> Obj:
        about = spec["resourceAttributes"]
        return {"allowed": spec["user"] == "root" or (spec["user"], about.get("namespace")) == ("jane", "team-a")}


async def app() -> MetricsApp:
    client = InMemoryClient()
    client.namespaces |= {"team-a"}
    for name, labels in (("sim-0", {"simulated.haru.dev/profile": "cpu"}), ("real-0", {})):
        await client.create(NODES, {"metadata": {"name": name, "labels": {**labels, "name": name}}})
    for name, namespace, node in (("a", "team-a", "sim-0"), ("b", "default", "sim-0"), ("c", "team-a", "real-0")):
        running = {"name": "c", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        metadata = {
            "name": name,
            "namespace": namespace,
            "labels": {"app": name},
            "annotations": {"simulated.haru.dev/usage": "cpu=500m memory=1Gi; @30 cpu=2"},
        }
        spec = {"nodeName": node, "containers": [{"name": "c"}]}
        status = {"phase": "Running", "containerStatuses": [running]}
        await client.create(PODS, {"metadata": metadata, "spec": spec, "status": status})
    access = ReviewedAccess(Reviewer(), 10.0, 10.0)  # type: ignore[arg-type]
    certificates = FrontProxyCertificates(ServingOptions(address="127.0.0.1"), "metrics")
    certificates.front_proxy = FRONT
    return MetricsApp(client, access, certificates.user_of, {}, lambda: NOW)


async def ask(
    path: str,
    user: str = "root",
    *,
    method: str = "GET",
    certificate: bytes | None = DER,
    asked: MetricsApp | None = None,
) -> tuple[int, Obj]:
    said: list[Obj] = []

    async def send(message: Obj) -> None:
        said.append(message)

    async def receive() -> Obj:
        return {"type": "http.request", "body": b"", "more_body": False}

    path, _, query = path.partition("?")
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"x-remote-user", user.encode())],
        "extensions": {CERTIFICATE: certificate},
    }
    await (asked or await app())(scope, receive, send)  # type: ignore[arg-type]
    return said[0]["status"], json.loads(b"".join(one.get("body", b"") for one in said[1:]))


async def test_answer_about_one_pod_reads_no_other_pod_and_no_other_node() -> None:
    asked, read = await app(), list[int]()
    listed = asked._client.list

    async def counted(*args: Any, **options: Any) -> Obj:
        found: Obj = await listed(*args, **options)
        read.append(len(found["items"]))
        return found

    asked._client.list = counted  # type: ignore[method-assign]
    status, found = await ask(f"{ROOT}/namespaces/team-a/pods/a", asked=asked)
    assert (status, found["metadata"]["name"], read) == (200, "a", [1, 1])


async def test_pods_of_simulated_nodes_are_listed_with_what_they_use_now() -> None:
    status, found = await ask(f"{ROOT}/pods")
    assert (status, found["kind"]) == (200, "PodMetricsList")
    assert [item["metadata"]["name"] for item in found["items"]] == ["a", "b"]
    (container,) = found["items"][0]["containers"]
    assert container == {"name": "c", "usage": {"cpu": "2000000000n", "memory": "1048576Ki"}}
    assert found["items"][0]["timestamp"] == "2026-01-01T00:01:00Z"


async def test_node_uses_what_its_pods_use() -> None:
    status, found = await ask(f"{ROOT}/nodes")
    assert (status, [item["metadata"]["name"] for item in found["items"]]) == (200, ["sim-0"])
    assert found["items"][0]["usage"] == {"cpu": "4000000000n", "memory": "2097152Ki"}
    assert (await ask(f"{ROOT}/nodes/real-0"))[0] == 404
    assert (await ask(f"{ROOT}/nodes/sim-0"))[1]["kind"] == "NodeMetrics"


@pytest.mark.parametrize(
    ("path", "names"),
    [
        (f"{ROOT}/namespaces/team-a/pods", ["a"]),
        (f"{ROOT}/pods?labelSelector=app%3Db", ["b"]),
        (f"{ROOT}/pods?fieldSelector=metadata.name%3Da", ["a"]),
    ],
)
async def test_selection_narrows_the_list(path: str, names: list[str]) -> None:
    assert [item["metadata"]["name"] for item in (await ask(path))[1]["items"]] == names


@pytest.mark.parametrize(
    ("path", "more", "code"),
    [
        (f"{ROOT}/namespaces/team-a/pods", {"user": "jane"}, 200),
        (f"{ROOT}/namespaces/team-a/pods/a", {"user": "jane"}, 200),
        (f"{ROOT}/pods", {"user": "jane"}, 403),
        (f"{ROOT}/nodes", {"user": "jane"}, 403),
        (f"{ROOT}/pods", {"certificate": None}, 401),
        (f"{ROOT}/pods", {"user": ""}, 401),
        (ROOT, {"user": "jane"}, 200),
        (f"{ROOT}/namespaces/team-a/pods/none", {}, 404),
        (f"{ROOT}/namespaces/team-a/nodes", {}, 404),
        (f"{ROOT}/pods", {"method": "POST"}, 405),
        (f"{ROOT}/pods?labelSelector=%3D%3D", {}, 400),
        (f"{ROOT}/pods?fieldSelector=spec.nodeName%3Da", {}, 400),
    ],
)
async def test_question_is_answered_for_whom_the_front_proxy_names(path: str, more: dict[str, Any], code: int) -> None:
    status, found = await ask(path, **more)
    assert status == code and (code == 200 or found["kind"] == "Status")
