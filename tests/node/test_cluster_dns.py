"""The real CoreDNS for a cluster with real nodes, beside it and as a pod, asked by pods on both nodes.

What is asked follows Kubernetes' specification of DNS-based service discovery, 1.1.0.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from two_nodes import EXAMPLES, NODES, TwoNodes, service

from haru_process import environment, until

pytestmark = [pytest.mark.nightly, pytest.mark.host]
VERSION = "v1.15.0"
BUILD = EXAMPLES.parent / "build" / "coredns"
DEFAULT = "default.svc.cluster.local"


@pytest.fixture(scope="session")
def coredns() -> Path:
    """A static CoreDNS: of PATH, else built from the modules of Go."""
    if found := shutil.which("coredns"):
        return Path(found)
    binary = BUILD / "coredns"
    if not binary.exists():
        if shutil.which("go") is None:
            pytest.skip("neither coredns nor go is installed")
        command = ["go", "install", "-ldflags=-s -w", f"github.com/coredns/coredns@{VERSION}"]
        env = {**os.environ, "GOBIN": str(BUILD), "CGO_ENABLED": "0"}
        try:
            subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=1800)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"{' '.join(command)}: {error.stderr[-500:]}")
        except subprocess.TimeoutExpired:
            pytest.skip(f"{' '.join(command)}: not within half an hour")
    return binary


@pytest.fixture(scope="module", params=["beside", "pod"])
def cluster(
    request: pytest.FixtureRequest,
    two_nodes: TwoNodes,
    coredns: Path,
    kubectl: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[TwoNodes]:
    """With Services of each kind, pods that ask, and CoreDNS at 10.96.0.10."""
    assert two_nodes.up is not None
    home = tmp_path_factory.mktemp("dns")
    if request.param == "pod":
        image = home / "coredns.tar"
        pack = [
            sys.executable,
            str(EXAMPLES / "dns" / "pack_image.py"),
            "haru.test/coredns:1",
            str(coredns),
            str(image),
        ]
        subprocess.run(pack, check=True)
        two_nodes.load(image)
        server, manifest = None, (EXAMPLES / "dns" / "coredns.yaml").read_text()
    else:
        config = EXAMPLES / "dns" / "Corefile"
        env = environment(home, DNS_ADDRESS=two_nodes.address, KUBECONFIG=str(two_nodes.up.kubeconfig))
        with (home / "coredns.log").open("w") as log:
            server = subprocess.Popen([str(coredns), "-conf", str(config)], env=env, stdout=log, stderr=log)
        manifest = (EXAMPLES / "dns" / "beside.yaml").read_text().replace("10.89.0.1", two_nodes.address)
    try:
        two_nodes.kubectl(kubectl, "apply", "-f", "-", stdin=manifest)
        create_questions(two_nodes)
        until("10.96.0.10 answers", lambda: "10.96.0.1" in ask(two_nodes, kubectl, f"kubernetes.{DEFAULT}"), 90)
        yield two_nodes
    finally:
        for kind in ("pods", "services"):
            two_nodes.kubectl(kubectl, "delete", kind, "-l", "dns=test", "--grace-period=1")
        two_nodes.kubectl(kubectl, "delete", "-f", "-", stdin=manifest)
        if server is not None:
            server.terminate()
            server.wait(30)


def create_questions(cluster: TwoNodes) -> None:
    assert cluster.up is not None
    label = {"dns": "test"}
    pods = [
        cluster.pod(f"db-{node}", "exec sleep 1000", node=node, labels=label, hostname=node, subdomain="db")
        for node in NODES
    ]
    ports = [{"name": "sql", "port": 5432}]
    made = [
        service("web", ports, selector=label, clusterIP="10.96.77.1"),
        service("db", ports, selector=label, clusterIP="None"),
        service("elsewhere", type="ExternalName", externalName="db.example.org"),
        service("alias", type="ExternalName", externalName=f"web.{DEFAULT}"),
    ]
    for one in made:
        one["metadata"]["labels"] = label
        cluster.up.api.create(one)
    cluster.create_ready(*pods)


def ask(cluster: TwoNodes, kubectl: str, *question: str, node: str = NODES[0]) -> set[str]:
    """The answers that a pod gets: addresses, names, texts."""
    command = ["exec", f"db-{node}", "--", "sh", "-c", 'nslookup "$@" || :', "nslookup", *question]
    _, _, answers = cluster.kubectl(kubectl, *command).partition("\n\n")
    found = re.findall(r'^(?:Address: |.*(?:canonical name|text|service|name) = )"?([^"\n]*)', answers, re.MULTILINE)
    return {"NXDOMAIN"} if not found and "NXDOMAIN" in answers else set(found)


def assert_answered(
    cluster: TwoNodes, kubectl: str, question: list[str], answers: set[str], node: str = NODES[0]
) -> None:
    """Assert it in time for three attempts: one whose datagram is lost waits 15 s, and an answer is kept for 30 s."""
    last: list[set[str]] = []

    def holds() -> bool:
        last[:] = [ask(cluster, kubectl, *question, node=node)]
        return last == [answers]

    try:
        until("answered", holds, 75)
    except AssertionError as error:
        raise AssertionError(f"{question} on {node}: {last} in place of {answers}") from error


@pytest.mark.parametrize(
    ("question", "answers"),
    [
        (["kubernetes.default.svc.cluster.local"], {"10.96.0.1"}),
        (["web"], {"10.96.77.1"}),
        (["-type=srv", f"_sql._tcp.web.{DEFAULT}"], {f"0 100 5432 web.{DEFAULT}"}),
        (["-type=ptr", "1.77.96.10.in-addr.arpa"], {f"web.{DEFAULT}"}),
        (["-type=cname", f"elsewhere.{DEFAULT}"], {"db.example.org"}),
        (["-type=cname", f"alias.{DEFAULT}"], {f"web.{DEFAULT}"}),
        (["-type=a", f"alias.{DEFAULT}"], {f"web.{DEFAULT}", "10.96.77.1"}),
        (["-type=txt", "dns-version.cluster.local"], {"1.1.0"}),
        ([f"nothing.{DEFAULT}"], {"NXDOMAIN"}),
        (["web.nowhere.svc.cluster.local"], {"NXDOMAIN"}),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)  # fmt: skip
def test_pods_of_both_nodes_resolve_names_of_services(
    cluster: TwoNodes, kubectl: str, question: list[str], answers: set[str]
) -> None:
    for node in NODES:
        assert_answered(cluster, kubectl, question, answers, node=node)


def test_headless_service_resolves_to_its_pods(cluster: TwoNodes, kubectl: str) -> None:
    addresses = {node: cluster.address_of(f"db-{node}") for node in NODES}
    assert_answered(cluster, kubectl, ["-type=a", f"db.{DEFAULT}"], set(addresses.values()))
    assert_answered(cluster, kubectl, ["-type=a", f"node-2.db.{DEFAULT}"], {addresses["node-2"]})
    servers = {f"0 50 5432 {node}.db.{DEFAULT}" for node in NODES}
    assert_answered(cluster, kubectl, ["-type=srv", f"_sql._tcp.db.{DEFAULT}"], servers)


@pytest.mark.parametrize(
    ("spec", "servers"),
    [
        ({"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}, ["10.96.0.10"]),
        ({"dnsPolicy": "None", "dnsConfig": {"nameservers": ["192.0.2.9"], "searches": ["x.example"]}}, ["192.0.2.9"]),
    ],
    ids=["ClusterFirstWithHostNet", "None"],
)
def test_dns_policy_is_in_resolv_conf_of_pod(
    cluster: TwoNodes, kubectl: str, spec: dict[str, object], servers: list[str]
) -> None:
    assert cluster.up is not None
    cluster.create_ready(cluster.pod("policy", "exec sleep 1000", node=NODES[1], **spec))
    try:
        found = cluster.kubectl(kubectl, "exec", "policy", "--", "cat", "/etc/resolv.conf")
        assert re.findall(r"^nameserver (\S+)", found, re.MULTILINE) == servers
        searches = re.findall(r"^search (.*)", found, re.MULTILINE)[0].split()
        assert searches[:1] == (["x.example"] if spec["dnsPolicy"] == "None" else [f"{DEFAULT}"])
    finally:
        cluster.kubectl(kubectl, "delete", "pod", "policy", "--grace-period=1")
