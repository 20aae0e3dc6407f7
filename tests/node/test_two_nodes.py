"""Two real nodes on one machine: traffic between their pods, Services with endpoints on both, kubectl to both."""

from __future__ import annotations

from typing import Any

import pytest
from two_nodes import NODES, TwoNodes, service

from haru_process import until

pytestmark = [pytest.mark.nightly, pytest.mark.host]
SERVES = "mkdir /w; hostname >/w/index.html; exec httpd -f -v -p 8080 -h /w"
WEB: dict[str, Any] = {"port": 80, "targetPort": 8080, "name": "http"}


@pytest.fixture(scope="module")
def nodes(two_nodes: TwoNodes) -> TwoNodes:
    """With a web server on each."""
    pods = [two_nodes.pod(f"web-{node}", SERVES, node=node, port=8080, labels={"app": "web"}) for node in NODES]
    two_nodes.create_ready(*pods)
    return two_nodes


def fetch(nodes: TwoNodes, kubectl: str, client: str, url: str) -> str:
    return nodes.kubectl(kubectl, "exec", client, "--", "wget", "-qO-", url).strip()


@pytest.mark.parametrize(("client", "server"), [NODES, NODES[::-1]])
def test_pod_reaches_pod_of_other_node_with_its_own_address(
    nodes: TwoNodes, kubectl: str, client: str, server: str
) -> None:
    url = f"http://{nodes.address_of(f'web-{server}')}:8080/"
    assert fetch(nodes, kubectl, f"web-{client}", url) == f"web-{server}"
    assert nodes.address_of(f"web-{client}") in nodes.kubectl(kubectl, "logs", f"web-{server}")


def test_service_leads_from_each_node_to_pods_of_both(nodes: TwoNodes, kubectl: str) -> None:
    assert nodes.up is not None
    made = nodes.up.api.create(service("both", [WEB], selector={"app": "web"}, type="NodePort"))
    url, port = f"http://{made['spec']['clusterIP']}/", made["spec"]["ports"][0]["nodePort"]
    both = {f"web-{node}" for node in NODES}
    for node in NODES:
        until(
            f"{node} reaches both",
            lambda node=node: {fetch(nodes, kubectl, f"web-{node}", url) for _ in range(8)} == both,  # type: ignore[misc]
        )
    # From outside the cluster by a node's port: a pod of the other node answers, too.
    outside = f"http://{nodes.subnet}.0.11:{port}/"
    got = {nodes.script("enter", "node-2", "busybox", "wget", "-qO-", outside).strip() for _ in range(12)}
    assert got == both


def test_external_traffic_policy_local_keeps_client_address_and_node(nodes: TwoNodes, kubectl: str) -> None:
    assert nodes.up is not None
    spec = {"selector": {"app": "web"}, "type": "NodePort", "externalTrafficPolicy": "Local"}
    made = nodes.up.api.create(service("local", [WEB], **spec))
    port = made["spec"]["ports"][0]["nodePort"]

    def get() -> str:
        done = nodes.script("enter", "node-2", "sh", "-c", f"busybox wget -qO- http://{nodes.subnet}.0.11:{port}/ ||:")
        return done.strip()

    until("the node's port answers", lambda: get() == "web-node-1")
    assert {get() for _ in range(6)} == {"web-node-1"}
    assert f"{nodes.subnet}.0.12]" in nodes.kubectl(kubectl, "logs", "web-node-1")


def test_pod_with_host_network_has_the_name_and_address_of_its_node(nodes: TwoNodes, kubectl: str) -> None:
    nodes.create_ready(*(nodes.pod(f"host-{node}", "exec sleep 1000", node=node, hostNetwork=True) for node in NODES))
    for number, node in enumerate(NODES):
        assert nodes.kubectl(kubectl, "exec", f"host-{node}", "--", "hostname") == f"{node}\n"
        assert nodes.address_of(f"host-{node}") == f"{nodes.subnet}.0.{11 + number}"


def test_kubectl_logs_and_exec_reach_both_nodes(nodes: TwoNodes, kubectl: str) -> None:
    for node in NODES:
        assert nodes.kubectl(kubectl, "exec", f"web-{node}", "--", "hostname") == f"web-{node}\n"
        fetch(nodes, kubectl, f"web-{node}", "http://127.0.0.1:8080/")
        assert "response:200" in nodes.kubectl(kubectl, "logs", f"web-{node}")
    shown = nodes.kubectl(kubectl, "get", "nodes", "-o", "wide", "--no-headers").split()
    assert {f"{nodes.subnet}.0.11", f"{nodes.subnet}.0.12"} <= set(shown)
