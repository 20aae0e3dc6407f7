"""The API server before a kubelet: whom it lets through, what it shows to the kubelet, what it makes of the answers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from forwarding_cluster import cluster, pod_object
from kubelet_pieces import NODE, client_context

from haru.apiserver.proxy import Endpoint, connect_request_of, endpoint_of, pod_target, required_rights
from haru.apiserver.request import Request
from haru.kube.errors import StatusError

LINE = b"2026-01-01T00:00:00.5Z stdout F one\n"
ONE = {"Authorization": "Bearer root"}


async def test_logs_are_forwarded_to_kubelet_of_the_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as api:
        await api.create("/api/v1/namespaces/default/pods", pod_object("web"))
        log = api.node.source.log("main")
        log.write_bytes(LINE * 3)
        path = "/api/v1/namespaces/default/pods/web/log"
        assert await api.ask("GET", path) == (200, "one\none\none\n")
        assert await api.ask("GET", path + "?tailLines=1&timestamps=true") == (200, "2026-01-01T00:00:00.5Z one\n")
        assert (await api.ask("GET", path, "alice"))[0] == 403
        status, said = await api.ask("GET", path + "?container=side")
        assert status == 400 and "is waiting to start: ContainerCreating" in said["message"]
        status, said = await api.ask("GET", path + "?tailLines=-1")
        assert status == 422 and said["reason"] == "Invalid" and "tailLines: Invalid value: -1" in said["message"]
        status, said = await api.ask("GET", path + "?container=none")
        assert status == 400 and said["message"] == "container none is not valid for pod web"
        async with api.session.get(path + "?follow=true&tailLines=1", headers=ONE) as answer:
            assert await answer.content.readexactly(4) == b"one\n"
            with log.open("ab") as file:
                file.write(LINE)
            assert await answer.content.readexactly(4) == b"one\n"
            api.node.source.running_now = False
            assert await asyncio.wait_for(answer.content.read(), 30) == b""
        # What the kubelet was asked for was asked for by the API server, not by the client.
        users = {spec["user"] for spec in api.node.reviews.asked}
        assert users == {"kube-apiserver-kubelet-client"}


async def test_logs_and_exec_of_simulated_or_unbound_pods_are_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as api:
        await api.create("/api/v1/namespaces/default/pods", pod_object("ghost", "simulated"))
        await api.create("/api/v1/namespaces/default/pods", pod_object("waits", ""))
        pods = "/api/v1/namespaces/default/pods"
        for name in ("ghost", "waits"):
            assert await api.ask("GET", f"{pods}/{name}/log") == (200, "")
        assert (await api.ask("GET", f"{pods}/none/log"))[0] == 404
        for name, status, words in (
            ("ghost", 400, "Upgrade request required"),
            ("waits", 400, "does not have a host assigned"),
            ("none", 404, 'pods "none" not found'),
        ):
            answer = await api.ask("POST", f"{pods}/{name}/exec?command=ls&stdout=true")
            assert answer[0] == status and words in answer[1]["message"]
        assert (await api.ask("POST", f"{pods}/ghost/portforward?ports=80"))[0] == 503
        assert (await api.ask("GET", "/api/v1/nodes/simulated/proxy/configz"))[0] == 503


async def test_refusing_or_unreachable_kubelet_is_reported(tmp_path: Path) -> None:
    async with cluster(tmp_path) as api:
        await api.create("/api/v1/namespaces/default/pods", pod_object("web"))
        path = "/api/v1/namespaces/default/pods/web/log"
        api.node.reviews.grants.clear()
        status, said = await api.ask("GET", path)
        assert status == 403 and "Forbidden (user=kube-apiserver-kubelet-client" in said["message"]
        await api.node.server.stop()
        status, said = await api.ask("GET", path)
        assert status == 500 and f"https://127.0.0.1:{api.node.server.port}/containerLogs" in said["message"]
        assert (await api.ask("GET", f"/api/v1/nodes/{NODE}/proxy/pods"))[0] == 503


async def test_node_proxy_reaches_kubelet_api(tmp_path: Path) -> None:
    async with cluster(tmp_path) as api:
        proxy = f"/api/v1/nodes/{NODE}/proxy"
        assert (await api.ask("GET", proxy + "/pods"))[1]["kind"] == "PodList"
        status, said = await api.ask("GET", proxy + "/stats/summary?only_cpu_and_memory=true")
        assert status == 200 and said["only"] is True
        assert (await api.ask("GET", proxy + "/pods", "alice"))[0] == 403
        assert (await api.ask("GET", "/api/v1/nodes/none/proxy/pods"))[0] == 404
        for name in (f"{NODE}:{api.node.server.port}", f"https:{NODE}:{api.node.server.port}", f"https:{NODE}:"):
            assert (await api.ask("GET", f"/api/v1/nodes/{name}/proxy/pods"))[1]["kind"] == "PodList"
        for name in (f"https:{NODE}:10255", f"http:{NODE}:{api.node.server.port}", f"{NODE}:x"):
            assert (await api.ask("GET", f"/api/v1/nodes/{name}/proxy/pods"))[0] == 400
        # The kubelet decides for the API server's certificate, whatever the client says of itself.
        status, said = await api.ask("GET", proxy + "/metrics", **{"X-Remote-User": "alice"})
        assert status == 403 and "user=kube-apiserver-kubelet-client" in said


def upgrade(path: str, user: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: api", "Connection: Upgrade", "Upgrade: SPDY/3.1"]
    return "\r\n".join([*lines, f"Authorization: Bearer {user}", "", ""]).encode()


async def test_exec_stream_passes_through_both_servers(tmp_path: Path) -> None:
    heads: list[bytes] = []

    async def runtime(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: SPDY/3.1\r\nConnection: Upgrade\r\n\r\n")
        while piece := await reader.read(65536):
            writer.write(piece.upper())
            if piece.endswith(b"bye"):
                break
        writer.close()

    streaming = await asyncio.start_server(runtime, "127.0.0.1", 0)
    async with cluster(tmp_path) as api:
        api.node.source.stream_port = streaming.sockets[0].getsockname()[1]
        await api.create("/api/v1/namespaces/default/pods", pod_object("web"))
        context = client_context(api.authority)
        port = int(api.url.rpartition(":")[2])

        async def talk(path: str, user: str, method: str = "POST") -> tuple[bytes, bytes]:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
            writer.write(upgrade(f"/api/v1/namespaces/default/pods/web/{path}", user, method))
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"HTTP/1.1 101"):
                writer.write(b"x" * 200_000 + b"bye")
                said = await reader.read(-1)
            else:
                said = b""
            writer.close()
            return head[9:12], said

        path = "exec?command=sh&command=-c&stdin=true&stdout=true&container=side"
        assert await talk(path, "root") == (b"101", b"X" * 200_000 + b"BYE")
        kind, options, asked = api.node.source.opened[0]
        assert kind == "exec" and options.command == ("sh", "-c") and (options.stdin, options.stderr) == (True, False)
        assert b"authorization" not in heads[0].lower() and asked.method == "POST"
        assert (await talk(path, "alice"))[0] == b"403"
        assert (await talk("exec?stdout=true", "root"))[0] == b"400"  # no command: the kubelet's answer
        assert (await talk("attach?stdout=true", "root"))[0] == b"101"
        assert (await talk("portforward", "root"))[0] == b"101"
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "gets"},
            "rules": [{"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["get"]}],
        }
        rbac = "/apis/rbac.authorization.k8s.io/v1"
        await api.create(f"{rbac}/clusterroles", role)
        to = {"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "gets"}}
        who = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]
        binding = {"apiVersion": role["apiVersion"], "kind": "ClusterRoleBinding", "metadata": {"name": "gets"}}
        await api.create(f"{rbac}/clusterrolebindings", {**binding, **to, "subjects": who})
        # A GET, as a WebSocket is, needs `create` as well.
        assert (await talk(path, "alice", "GET"))[0] == b"403"
    streaming.close()


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("/api/v1/namespaces/a/pods/b/exec", ("pods", "exec", "a", "b", "")),
        ("/api/v1/namespaces/a/pods/b/portforward/", ("pods", "portforward", "a", "b", "")),
        ("/api/v1/nodes/n/proxy", ("nodes", "proxy", "", "n", "/")),
        ("/api/v1/nodes/n/proxy/stats/summary", ("nodes", "proxy", "", "n", "/stats/summary")),
        ("/api/v1/nodes/n/proxy/../../secrets", ("nodes", "proxy", "", "n", "/../../secrets")),
        ("/api/v1/namespaces/a/pods/b/log", None),
        ("/api/v1/namespaces/a/pods/b/c/exec", None),
        ("/api/v1/nodes/n/proxyx", None),
        ("/apis/v1/nodes/n/proxy", None),
    ],
)
def test_connect_path_is_parsed(path: str, found: tuple[str, ...] | None) -> None:
    wanted = connect_request_of(path)
    told = None if wanted is None else (wanted.plural, wanted.subresource, wanted.namespace, wanted.name, wanted.rest)
    assert told == found


def request_of(method: str, query: str = "") -> Request:
    async def nothing(*_: Any) -> Any:
        return None

    return Request({"method": method, "path": "/", "headers": [], "query_string": query.encode()}, nothing, nothing)


def test_connect_request_needs_expected_permissions() -> None:
    pod, node = connect_request_of("/api/v1/namespaces/a/pods/b/exec"), connect_request_of("/api/v1/nodes/n/proxy/pods")
    assert pod is not None and node is not None
    assert [one.verb for one in required_rights(request_of("GET"), pod)] == ["get", "create"]
    assert [one.verb for one in required_rights(request_of("POST"), pod)] == ["create"]
    verbs = {
        method: required_rights(request_of(method), node)[0].verb
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH")
    }
    assert verbs == {"GET": "get", "POST": "create", "PUT": "update", "DELETE": "delete", "PATCH": "patch"}
    for method, wanted in (("PUT", pod), ("DELETE", pod), ("TRACE", node)):
        with pytest.raises(StatusError) as error:
            required_rights(request_of(method), wanted)
        assert error.value.code == 405


def test_kubelet_target_url_of_exec_and_port_forward() -> None:
    pod = {"metadata": {"name": "b"}, "spec": {"containers": [{"name": "main"}]}}
    exec_, ports = (
        connect_request_of("/api/v1/namespaces/a/pods/b/exec"),
        connect_request_of("/api/v1/namespaces/a/pods/b/portforward"),
    )
    assert exec_ is not None and ports is not None
    query = "stdin=true&stdout=1&stderr=false&tty=true&command=a%20b&command=%26"
    target = "/exec/a/b/main?input=1&output=1&tty=1&command=a+b&command=%26"
    assert pod_target(request_of("POST", query), exec_, pod) == target
    assert pod_target(request_of("GET", "ports=80&ports=81"), ports, pod) == "/portForward/a/b?port=80&port=81"


def test_kubelet_endpoint_follows_address_preference() -> None:
    addresses = [{"type": "InternalIP", "address": "fd00::1"}, {"type": "Hostname", "address": "n"}]
    node = {"status": {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}}}}
    assert endpoint_of(node, ("Hostname", "InternalIP")) == Endpoint("n", 10250)
    found = endpoint_of(node, ("ExternalIP", "InternalIP"))
    assert found is not None and found.netloc == "[fd00::1]:10250"
    assert endpoint_of({"status": {"addresses": addresses}}, ("Hostname",)) is None
    with pytest.raises(StatusError, match="no preferred addresses"):
        endpoint_of(node, ("ExternalDNS",))
