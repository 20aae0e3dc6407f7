"""Requests to pods and services by way of the API server, over real sockets."""

from __future__ import annotations

import asyncio
import base64
import io
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from forwarding_cluster import Cluster, cluster, pod_object
from kubelet_pieces import NODE, Authority, client_context
from webhook_server import MUTATING, WebhookServer, configuration, hook, rule

from haru.apiserver.proxy import targets

Obj = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
HTML = b'<html><a href="/next">x</a></html>'


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> str:
    """An address of this machine that others reach it by; where it has none, loopback, which is let through then."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))
            found: str = probe.getsockname()[0]
        except OSError:
            found = "127.0.0.1"
    if not targets.is_proxyable(found):
        monkeypatch.setattr(targets, "is_proxyable", lambda _: True)
    return found


Answering = Callable[[bytes, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Pod:
    """What listens at a pod's address: keeps the heads of requests, answers as it is told."""

    def __init__(self) -> None:
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        self.silent = False
        self.port = 0
        self.tasks: set[asyncio.Task[None]] = set()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.add(task)
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
                self.bodies.append(await reader.readexactly(int(fields.get("content-length", 0))))
                if self.silent:
                    await asyncio.sleep(30)
                end = self.answer.index(b"\r\n\r\n") + 4 if head.startswith("HEAD ") else None
                writer.write(self.answer[:end])
                if b" 101 " in self.answer:
                    while piece := await reader.read(65536):
                        writer.write(piece.upper())
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            pass
        finally:
            self.tasks.discard(task)
            writer.close()


@asynccontextmanager
async def listening(address: str, tls: ssl.SSLContext | None = None) -> AsyncIterator[Pod]:
    pod = Pod()
    server = await asyncio.start_server(pod.talk, address, 0, ssl=tls)
    pod.port = server.sockets[0].getsockname()[1]
    try:
        yield pod
    finally:
        server.close()
        for task in pod.tasks:
            task.cancel()
        if pod.tasks:
            await asyncio.wait(set(pod.tasks))


async def place(api: Cluster, name: str, address: str, port: int = 0, node: str = NODE) -> None:
    """A pod that runs, by its status."""
    made = pod_object(name, node)
    if port:
        made["spec"]["containers"][1]["ports"] = [{"containerPort": port}]
    await api.create(PODS, made)
    if address:
        status = {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}
        merge = {"Content-Type": "application/merge-patch+json"}
        code, said = await api.ask("PATCH", f"{PODS}/{name}/status", body={"status": status}, **merge)
        assert code == 200, said


async def test_pod_proxy_forwards_request_without_client_credentials(tmp_path: Path, address: str) -> None:
    async with cluster(tmp_path) as api, listening(address) as pod:
        await place(api, "web", address, pod.port)
        given = {"Cookie": "session=1", "X-Remote-User": "root", "Impersonate-User": "", "X-Own": "1"}
        given.pop("Impersonate-User")
        assert await api.ask("POST", f"{PODS}/web/proxy/a%20b/?q=1&q=2", body={"x": 1}, **given) == (200, "ok")
        head = pod.heads[0].lower()
        assert head.startswith("post /a%20b/?q=1&q=2 http/1.1\r\n") and f"host: {address}:{pod.port}" in head
        assert "x-own: 1" in head and f"x-forwarded-uri: {PODS}/web/proxy/a%20b/" in head
        assert not any(word in head for word in ("authorization", "cookie", "x-remote", "bearer"))
        assert pod.bodies[0] == b'{"x": 1}'
        for name in (f"web:{pod.port}", f"http:web:{pod.port}", "http:web:"):
            assert await api.ask("GET", f"{PODS}/{name}/proxy/") == (200, "ok")
        for method in ("PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"):
            assert (await api.ask(method, f"{PODS}/web/proxy/m"))[0] == 200
            assert pod.heads[-1].startswith(f"{method} /m ")
        # Without a slash at the end, only a page is looked for elsewhere.
        assert await api.ask("DELETE", f"{PODS}/web/proxy?q=1") == (200, "ok")
        assert pod.heads[-1].startswith("DELETE /?q=1 ")
        assert (await api.ask("TRACE", f"{PODS}/web/proxy/m"))[0] == 405


async def test_webhook_is_asked_about_proxied_request(tmp_path: Path, address: str) -> None:
    hooks = WebhookServer(tmp_path)
    await hooks.start()
    async with cluster(tmp_path) as api, listening(address) as pod:
        await place(api, "web", address, pod.port)
        patch = base64.b64encode(b'[{"op": "replace", "path": "/path", "value": "/other"}]').decode()
        hooks.answers["/m"] = lambda _: {"allowed": True, "patch": patch, "patchType": "JSONPatch"}
        of_proxies = hook(hooks.client("/m"), rule("pods/proxy", "CONNECT"))
        await api.create(MUTATING, configuration("Mutating", "m", of_proxies))
        assert await api.ask("GET", f"{PODS}/http:web:/proxy/page") == (200, "ok")
        assert pod.heads[-1].startswith("GET /other ")
        request = hooks.asked["/m"][0]["request"]
        assert (request["name"], request["subResource"]) == ("http:web:", "proxy")
        assert request["object"] == {"kind": "PodProxyOptions", "apiVersion": "v1", "path": "/page"}
    await hooks.stop()


async def test_pod_proxy_requires_proxy_permission(tmp_path: Path, address: str) -> None:
    async with cluster(tmp_path) as api, listening(address) as pod:
        await place(api, "web", address, pod.port)
        status, said = await api.ask("GET", f"{PODS}/web:{pod.port}/proxy/", "alice")
        assert status == 403 and 'cannot get resource "pods/proxy" in API group ""' in said["message"]
        rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
        rule = {"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"], "resourceNames": [f"web:{pod.port}"]}
        await api.create(f"{rbac}/roles", {"metadata": {"name": "r"}, "rules": [rule]})
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
        who = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}]
        await api.create(f"{rbac}/rolebindings", {"metadata": {"name": "b"}, "roleRef": reference, "subjects": who})
        assert await api.ask("GET", f"{PODS}/web:{pod.port}/proxy/", "alice") == (200, "ok")
        for method, name in (("GET", "web"), ("POST", f"web:{pod.port}")):
            assert (await api.ask(method, f"{PODS}/{name}/proxy/", "alice"))[0] == 403
        assert len(pod.heads) == 1
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:aggregate-to-edit"}
        await api.create(f"{rbac}/rolebindings", {"metadata": {"name": "e"}, "roleRef": reference, "subjects": who})
        assert (await api.ask("POST", f"{PODS}/web/proxy/", "alice"))[0] == 200


async def test_pod_proxy_refuses_invalid_targets(tmp_path: Path, address: str) -> None:
    async with cluster(tmp_path) as api, listening(address) as pod, listening("127.0.0.1") as own:
        await place(api, "web", address, pod.port)
        await place(api, "ghost", address, pod.port, "simulated")
        await place(api, "waits", "", pod.port, "")
        await place(api, "young", "")
        for number, bad in enumerate(("127.0.0.1", "169.254.169.254", "::1")):
            await place(api, f"bad{number}", bad, own.port)
        for name, status, words in (
            ("ghost", 503, "its pods are simulated"),
            ("waits", 400, "address not allowed"),
            ("young", 400, "address not allowed"),
            ("bad0", 400, "address not allowed"),
            ("bad1", 400, "address not allowed"),
            ("bad2", 400, "address not allowed"),
            ("none", 404, 'pods "none" not found'),
            ("ftp:web:80", 400, 'invalid pod request "ftp:web:80"'),
            ("web:http", 400, 'invalid port "http"'),
            ("web:70000", 400, 'invalid port "70000"'),
        ):
            code, said = await api.ask("GET", f"{PODS}/{name}/proxy/")
            assert (code, words in said["message"]) == (status, True), (name, said)
        assert not pod.heads and not own.heads


async def test_unreachable_or_silent_pod_gives_error(
    tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haru.apiserver.proxy.forward.HEAD_SECONDS", 0.3)
    async with cluster(tmp_path) as api, listening(address) as pod:
        await place(api, "web", address, pod.port)
        pod.silent = True
        code, said = await api.ask("GET", f"{PODS}/web/proxy/")
        assert code == 503 and said["message"] == f"error trying to reach service: no answer from {address}:{pod.port}"
        code, said = await api.ask("GET", f"{PODS}/web:1/proxy/")
        assert code == 503 and said["message"].endswith(f"dial tcp {address}:1: connect: connection refused")
        large, root = io.BytesIO(b"x" * 4_000_000), {"Authorization": "Bearer root"}
        async with api.session.post(f"{PODS}/web/proxy/", data=large, headers=root) as answer:
            assert answer.status == 413 and len(pod.heads) == 1


async def test_redirects_html_links_and_headers_are_rewritten(tmp_path: Path, address: str) -> None:
    async with cluster(tmp_path) as api, listening(address) as pod:
        await place(api, "web", address, pod.port)
        url = f"{PODS}/web:{pod.port}/proxy"

        async def ask(path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
            given = {"Authorization": "Bearer root", **headers}
            async with api.session.get(url + path, headers=given, allow_redirects=False) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, await answer.read()

        code, headers, _ = await ask("?a=b")
        assert (code, headers["location"]) == (301, f"{url}/?a=b") and not pod.heads
        for told, new in (("/login?x=1", f"{url}/login?x=1"), ("there", "there"), ("http://x.y/z", "http://x.y/z")):
            pod.answer = f"HTTP/1.1 302 Found\r\nLocation: {told}\r\nContent-Length: 0\r\n\r\n".encode()
            assert (await ask("/"))[1]["location"] == new
        kept = b"X-App: 1\r\nAccess-Control-Allow-Origin: *\r\nContent-Type: text/html; charset=utf-8\r\n"
        pod.answer = b"HTTP/1.1 404 Not Found\r\n" + kept + b"Content-Length: %d\r\n\r\n" % len(HTML) + HTML
        code, headers, body = await ask("/page", Accept="text/html", **{"Accept-Encoding": "gzip"})
        assert (code, headers["x-app"], body) == (404, "1", HTML.replace(b"/next", f"{url}/next".encode()))
        assert "access-control-allow-origin" not in headers and "gzip" not in pod.heads[-1]
        pod.answer = pod.answer.replace(b"text/html", b"text/plain")
        assert (await ask("/page"))[2] == HTML


async def test_service_proxy_uses_a_ready_endpoint(tmp_path: Path, address: str) -> None:
    async with cluster(tmp_path) as api, listening(address) as pod, listening("127.0.0.1") as own:
        await place(api, "web", address)
        await place(api, "ghost", address, node="simulated")
        ports = [{"name": "http", "port": 80}, {"name": "other", "port": 81}]
        await api.create(SERVICES, {"metadata": {"name": "s"}, "spec": {"ports": ports}})
        slice_path = f"{SLICES}/s-1"

        def endpoint(name: str, at: str, *, ready: bool = True, **target: str) -> Obj:
            reference = {"kind": "Pod", "name": name, "namespace": "default", **target}
            return {"addresses": [at], "conditions": {"ready": ready}, "targetRef": reference}

        made: Obj = {
            "metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": pod.port, "protocol": "TCP"}],
            "endpoints": [],
        }
        await api.create(SLICES, made)

        async def ask(name: str, *endpoints: Obj) -> tuple[int, Any]:
            code, said = await api.ask("PUT", slice_path, body={**made, "endpoints": list(endpoints)})
            assert code == 200, said
            code, said = await api.ask("GET", f"{SERVICES}/{name}/proxy/x")
            return code, said if code == 200 else said["message"]

        good = endpoint("web", address)
        for name in ("s:http", "s:80", "http:s:http"):
            assert await ask(name, good) == (200, "ok")
        none = 'no endpoints available for service "s:http"'
        for bad in (
            endpoint("web", address, ready=False),
            endpoint("none", address),
            endpoint("web", "10.255.255.1"),
            endpoint("web", "127.0.0.1"),
            endpoint("web", address, kind="Node"),
            endpoint("web", address, namespace="other"),
            {"addresses": [address], "conditions": {"ready": True}},
        ):
            assert await ask("s:http", bad) == (503, none), bad
            assert await ask("s:http", bad, good) == (200, "ok")
        code, said = await ask("s:http", endpoint("ghost", address))
        assert code == 503 and "its pods are simulated" in said
        assert await ask("s", good) == (503, 'no endpoints available for service "s"')
        assert await ask("s:81", good) == (503, 'no endpoints available for service "s:81"')
        assert await ask("s:82", good) == (503, 'no service port 82 found for service "s"')
        assert await ask("none:80", good) == (404, 'services "none" not found')
        assert await ask("ftp:s:80", good) == (400, 'invalid service request "ftp:s:80"')
        assert not own.heads


async def test_pod_proxy_works_over_tls_and_web_socket(tmp_path: Path, address: str) -> None:
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*Authority(tmp_path / "pod", "pod").server())
    async with cluster(tmp_path) as api, listening(address, serving) as pod:
        await place(api, "web", address)
        assert await api.ask("GET", f"{PODS}/https:web:{pod.port}/proxy/") == (200, "ok")
        pod.answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
        port, context = int(api.url.rpartition(":")[2]), client_context(api.authority)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="127.0.0.1")
        lines = [f"GET {PODS}/https:web:{pod.port}/proxy/ws?x=1 HTTP/1.1", "Host: api", "Connection: Upgrade"]
        writer.write("\r\n".join([*lines, "Upgrade: websocket", "Authorization: Bearer root", "", ""]).encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        writer.write(b"hello")
        assert await asyncio.wait_for(reader.readexactly(5), 60) == b"HELLO"
        writer.close()
        assert pod.heads[-1].startswith("GET /ws?x=1 ") and "uthorization" not in pod.heads[-1]


async def test_discovery_lists_connect_subresources(tmp_path: Path) -> None:
    async with cluster(tmp_path) as api:
        _, said = await api.ask("GET", "/api/v1")
        found = {each["name"]: (each["kind"], each["verbs"]) for each in said["resources"] if "/" in each["name"]}
        every = ["create", "delete", "get", "patch", "update"]
        for name, kind in (("pods", "Pod"), ("services", "Service"), ("nodes", "Node")):
            assert found[f"{name}/proxy"] == (f"{kind}ProxyOptions", every)
        for name, kind in (("exec", "Exec"), ("attach", "Attach"), ("portforward", "PortForward")):
            assert found[f"pods/{name}"] == (f"Pod{kind}Options", ["create", "get"])
