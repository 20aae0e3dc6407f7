"""`haru proxy` with a real API server and the real nftables, on a machine made of network namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haru_process import HARU, Up, environment, until

Obj = dict[str, Any]
REFUSED = "Couldn't connect to server"
pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not all(map(shutil.which, ("nft", "ip", "busybox", "curl"))),
    reason="network namespaces need root, and the programs nft, ip, busybox and curl (Debian: nftables, iproute2)",
)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Space:
    """A network namespace."""

    def __init__(self, name: str) -> None:
        self.name = name
        run("ip", "netns", "add", name)
        run("ip", "-n", name, "link", "set", "lo", "up")

    def command(self, *words: str) -> list[str]:
        return ["ip", "netns", "exec", self.name, *words]

    def fetch(self, url: str) -> str:
        """What a client in it gets from an address, or why it gets nothing."""
        words = self.command("curl", "-sS", "--noproxy", "*", "-m", "2", url)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        return done.stdout.strip() or done.stderr.strip()

    def remove(self) -> None:
        run("ip", "netns", "del", self.name)


class Pod(Space):
    """A namespace with a link to the node's, in which a web server says its name."""

    def __init__(self, node: Space, home: Path, number: int) -> None:
        super().__init__(f"{node.name}p{number}")
        gateway, self.address = f"10.214.{number}.1", f"10.214.{number}.2"
        link = f"pod{number}"
        run("ip", "-n", node.name, "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        for place, name, address in ((node.name, link, gateway), (self.name, "eth0", self.address)):
            run("ip", "-n", place, "addr", "add", f"{address}/24", "dev", name)
            run("ip", "-n", place, "link", "set", name, "up")
        run("ip", "-n", self.name, "route", "add", "default", "via", gateway)
        pages = home / self.name
        pages.mkdir()
        (pages / "index.html").write_text(self.name)
        self.server = subprocess.Popen(self.command("busybox", "httpd", "-f", "-p", "8080", "-h", str(pages)))

    def remove(self) -> None:
        self.server.kill()
        self.server.wait()
        super().remove()


class Machine:
    """A node in a namespace, with two pods and the proxy; the API server is outside, behind a link."""

    def __init__(self, home: Path) -> None:
        self.home, number = home, os.getpid() % 250
        outside, inside = f"10.215.{number}.1", f"10.215.{number}.2"
        self.node = Space(f"haru{os.getpid()}")
        link = f"haru{os.getpid()}"
        run("ip", "link", "add", link, "type", "veth", "peer", "name", "up0", "netns", self.node.name)
        run("ip", "addr", "add", f"{outside}/24", "dev", link)
        run("ip", "link", "set", link, "up")
        run("ip", "-n", self.node.name, "addr", "add", f"{inside}/24", "dev", "up0")
        run("ip", "-n", self.node.name, "link", "set", "up0", "up")
        run("ip", "-n", self.node.name, "route", "add", "default", "via", outside)
        run(*self.node.command("sh", "-c", "echo 1 >/proc/sys/net/ipv4/ip_forward"))
        self.pods = [Pod(self.node, home, one) for one in (1, 2)]
        flags = ["--ephemeral", "--no-simulated-nodes", "--no-dashboard", "--no-scheduler"]
        self.up = Up(home / "up", *flags, "--listen", f"{outside}:0")
        self.proxy = self.start()

    def start(self) -> subprocess.Popen[str]:
        flags = ["--kubeconfig", str(self.up.kubeconfig), "--hostname-override", "here", "--min-sync-period", "0.05"]
        command = self.node.command(*HARU, "proxy", *flags)
        with (self.home / "proxy.log").open("a") as log:
            made = subprocess.Popen(command, env=environment(self.home), stdout=subprocess.PIPE, stderr=log, text=True)
        assert made.stdout is not None
        assert made.stdout.readline() == "services are served on here\n", (self.home / "proxy.log").read_text()
        return made

    def stop_proxy(self) -> None:
        self.proxy.terminate()
        assert self.proxy.wait(30) == 0
        assert self.proxy.stdout is not None
        self.proxy.stdout.close()

    def remove(self) -> None:
        self.stop_proxy()
        self.up.stop()
        for space in (*self.pods, self.node):
            space.remove()

    def tables(self) -> str:
        return run(*self.node.command("nft", "list", "tables"))

    def listed(self, name: str) -> str:
        """What a set of the table has."""
        return run(*self.node.command("nft", "list", "set", "ip", "haru-service-proxy", name))

    def serve(self, name: str, *pods: Pod, protocol: str = "TCP", **spec: Any) -> Obj:
        """A Service of these pods."""
        meta = {"name": name, "namespace": "default"}
        ports = [{"port": 80, "targetPort": 8080, "protocol": "TCP"}]
        body = {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": ports, **spec}}
        made = self.up.api.create(body)
        self.up.api.create(slice_of(name, *pods, protocol=protocol))
        return made


def slice_of(name: str, *pods: Pod, node: str = "here", protocol: str = "TCP") -> Obj:
    ready = {"nodeName": node, "conditions": {"ready": True}}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"{name}-1", "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [pod.address], **ready} for pod in pods],
        "ports": [{"name": "", "port": 8080, "protocol": protocol}],
    }


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    made = Machine(tmp_path_factory.mktemp("proxy"))
    yield made
    made.remove()


def test_cluster_ip_reaches_every_endpoint_from_node_and_pods(machine: Machine) -> None:
    names = {pod.name for pod in machine.pods}
    url = f"http://{machine.serve('both', *machine.pods)['spec']['clusterIP']}/"
    until("the Service answers", lambda: machine.node.fetch(url) in names, 30)
    assert {machine.node.fetch(url) for _ in range(40)} == names
    # A pod reaches itself by way of the Service, too.
    assert {machine.pods[0].fetch(url) for _ in range(40)} == names


def test_rules_follow_endpoints_and_refuse_where_none_is_left(machine: Machine) -> None:
    one, two = machine.pods
    url = f"http://{machine.serve('moves', one)['spec']['clusterIP']}/"
    until("the first serves", lambda: machine.node.fetch(url) == one.name, 30)
    for pods, answer in (((two,), two.name), ((), REFUSED), ((one,), one.name)):
        machine.up.api.update(slice_of("moves", *pods))
        until(f"answered: {answer}", lambda answer=answer: answer in machine.node.fetch(url), 30)  # type: ignore[misc]


def test_node_port_keeps_client_at_one_endpoint_with_affinity(machine: Machine) -> None:
    one, two = machine.pods
    made = machine.serve("port", one, two, type="NodePort", sessionAffinity="ClientIP")
    url = f"http://10.214.1.1:{made['spec']['ports'][0]['nodePort']}/"
    until("the node port answers", lambda: one.fetch(url) in (one.name, two.name), 30)
    assert len({one.fetch(url) for _ in range(12)}) == 1


def test_clients_keep_their_endpoints_over_a_restart(machine: Machine) -> None:
    names, clients = {pod.name for pod in machine.pods}, (machine.node, *machine.pods)
    made = machine.serve("kept", *machine.pods, sessionAffinity="ClientIP")
    url = f"http://{made['spec']['clusterIP']}/"
    until("the Service answers", lambda: machine.node.fetch(url) in names, 30)
    before = [client.fetch(url) for client in clients]
    machine.stop_proxy()
    machine.proxy = machine.start()
    assert [client.fetch(url) for client in clients] == before


def test_port_that_a_service_does_not_have_is_refused(machine: Machine) -> None:
    address = machine.serve("ports", machine.pods[0])["spec"]["clusterIP"]
    until("the Service answers", lambda: machine.pods[1].fetch(f"http://{address}/") == machine.pods[0].name, 30)
    for client in (machine.node, machine.pods[1]):
        assert REFUSED in client.fetch(f"http://{address}:81/")


def test_proxy_tells_how_it_is(machine: Machine) -> None:
    for path in ("healthz", "livez"):
        assert '"healthy":true' in machine.node.fetch(f"http://127.0.0.1:10256/{path}")
    found = machine.node.fetch("http://127.0.0.1:10249/metrics")
    assert 'kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1' in found


def test_packet_to_a_cluster_ip_of_no_service_is_dropped(machine: Machine) -> None:
    until("the CIDRs are known", lambda: "10.96.0.0/16" in machine.listed("service-cidrs"))
    assert "timed out" in machine.node.fetch("http://10.96.250.250/")
    assert "timed out" in machine.pods[0].fetch("http://10.96.250.250/")
    extra = {"metadata": {"name": "extra"}, "spec": {"cidrs": ["10.96.0.0/15", "fd00:5::/112"]}}
    machine.up.api.create({"apiVersion": "networking.k8s.io/v1", "kind": "ServiceCIDR", **extra})
    until("they are joined", lambda: "10.96.0.0/15" in machine.listed("service-cidrs"))
    assert "10.96.0.0/16" not in machine.listed("service-cidrs")


def test_policy_local_drops_what_others_send_and_leads_the_node_to_all(machine: Machine) -> None:
    one, two = machine.pods
    made = machine.serve("policy", one, type="NodePort", externalTrafficPolicy="Local")
    url = f"http://10.214.1.1:{made['spec']['ports'][0]['nodePort']}/"
    until("the node's endpoint serves", lambda: two.fetch(url) == one.name, 30)
    machine.up.api.update(slice_of("policy", one, node="elsewhere"))
    until("others' packets are dropped", lambda: "timed out" in two.fetch(url), 30)
    assert machine.node.fetch(url) == one.name


def test_source_ranges_of_load_balancer_keep_others_out(machine: Machine) -> None:
    one, two = machine.pods
    machine.serve("balanced", one, type="LoadBalancer", loadBalancerSourceRanges=[f"{two.address}/32"])
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.77", "ipMode": "VIP"}]}}}
    machine.up.api.patch("services", "balanced", status, "default", sub="status")
    until("it serves whom it names", lambda: two.fetch("http://192.0.2.77/") == one.name, 30)
    assert "timed out" in one.fetch("http://192.0.2.77/")


SAYS_NAME = """
import socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 8080))
while True:
    server.sendto(sys.argv[1].encode(), server.recvfrom(100)[1])
"""
ASKS_FROM_ONE_PORT = """
import socket, sys
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.bind(("0.0.0.0", 5000))
client.settimeout(1)
client.sendto(b"?", (sys.argv[1], 80))
print(client.recv(100).decode())
"""


def test_flow_of_udp_follows_when_its_endpoint_goes(machine: Machine) -> None:
    one, two = machine.pods
    servers = [subprocess.Popen(pod.command(sys.executable, "-c", SAYS_NAME, pod.name)) for pod in (one, two)]
    try:
        ports = [{"port": 80, "targetPort": 8080, "protocol": "UDP"}]
        made = machine.serve("datagrams", one, protocol="UDP", ports=ports)
        asks = machine.node.command(sys.executable, "-c", ASKS_FROM_ONE_PORT, made["spec"]["clusterIP"])

        def ask() -> str:
            return subprocess.run(asks, capture_output=True, text=True, check=False).stdout.strip()

        for pod in (one, two, one):
            machine.up.api.update(slice_of("datagrams", pod, protocol="UDP"))
            until(f"answered: {pod.name}", lambda pod=pod: ask() == pod.name, 20)  # type: ignore[misc]
    finally:
        for server in servers:
            server.kill()
            server.wait()


def test_rules_outlive_the_proxy_until_cleanup(machine: Machine) -> None:
    machine.stop_proxy()
    assert "haru-service-proxy" in machine.tables()
    run(*machine.node.command(*HARU, "proxy", "--cleanup"))
    assert machine.tables() == ""
    machine.proxy = machine.start()
    assert "haru-service-proxy" in machine.tables()
