"""Devices from a ResourceClaim to a process: scheduler, node, driver and containerd, all of them real."""

from __future__ import annotations

import json
import re
import signal
import ssl
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from cards import GPU, Cards
from machine import NODE, Machine, container

from haru.node.cgroups import host
from haru.node.stats import psi
from haru_process import until

Obj = dict[str, Any]


@pytest.fixture
def cards(machine: Machine) -> Iterator[Cards]:
    running = Cards(machine)
    running.start()
    yield running
    machine.clear()
    running.stop()


def template(machine: Machine, name: str) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": GPU, "count": 2}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    machine.api.create({**kind, "metadata": {"name": name, "namespace": "default"}, "spec": spec})


def own_metrics(machine: Machine) -> str:
    """What the node's own API says at /metrics."""
    port = machine.api.get("nodes", NODE)["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {machine.api.token}"}
    )
    with urllib.request.urlopen(request, context=ssl._create_unverified_context(), timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def test_pod_sees_its_cards_until_it_ends(machine: Machine, cards: Cards) -> None:
    template(machine, "two")
    script = "env | grep HARU_DEVICE; cat /dev/haru/*; echo; exec sleep 1000"
    used = container("main", script, resources={"claims": [{"name": "cards"}]})
    claims = [{"name": "cards", "resourceClaimTemplateName": "two"}]
    machine.create("trains", [used], nodeName=None, resourceClaims=claims)
    pod = machine.until_ready("trains")
    (claim,) = machine.api.list("resourceclaims", "default")
    given = sorted(one["device"] for one in claim["status"]["allocation"]["devices"]["results"])
    assert len(given) == 2
    for device in given:
        machine.until_said(pod, f"HARU_DEVICE_{device.upper().replace('-', '_')}=GPU-")
        machine.until_said(pod, f'"name":"{device}"')

    assert f'dra_resource_claims_in_use{{driver_name="{GPU}"}} 1.0' in own_metrics(machine)

    # Neither the driver's death nor the agent's is noticed by the pod.
    cards.stop(signal.SIGKILL)
    machine.kill()
    cards.start()
    machine.start()
    annotation = {"simulated.haru.dev/device-health": f"{given[0]}=Unhealthy:too hot"}
    machine.api.patch("nodes", NODE, {"metadata": {"annotations": annotation}})

    def is_told(pod: Obj) -> bool:
        (status,) = pod["status"]["containerStatuses"]
        told = [one for entry in status.get("allocatedResourcesStatus") or () for one in entry["resources"]]
        return sorted(one["health"] for one in told) == ["Healthy", "Unhealthy"]

    assert machine.until("trains", "its cards' health", is_told)["status"]["containerStatuses"][0]["restartCount"] == 0
    cdi = machine.home / "cdi"
    assert list(cdi.iterdir())
    machine.delete("trains")
    until("the claim is given back", lambda: not list(cdi.iterdir()))
    until("the claim has gone", lambda: not machine.api.list("resourceclaims", "default"))
    cards.stop()
    assert [one for one in machine.api.list("resourceslices") if one["spec"]["driver"] == GPU] == []


def test_top_shows_pressure_of_pod_holding_cards(machine: Machine, cards: Cards) -> None:
    """Where the kernel of this machine accounts it; it is what the kubelet says, field by field."""
    template(machine, "pressed")
    used = container("main", "exec sleep 1000", resources={"claims": [{"name": "cards"}]})
    claims = [{"name": "cards", "resourceClaimTemplateName": "pressed"}]
    machine.create("starves", [used], nodeName=None, resourceClaims=claims)
    machine.until_ready("starves")
    accounted = psi.is_available(host.hierarchies().unified)

    def told() -> Obj | None:
        answer = machine.up.haru("top", "-o", "json")
        assert (answer.returncode, answer.stderr) == (0, "")
        found = json.loads(answer.stdout)
        assert found["pressureErrors"] == []
        (pod,) = found["pods"]
        assert (pod["name"], pod["node"], pod["owner"]) == ("starves", NODE, "pod/starves")
        return pod if ("memory" in pod) == accounted else None

    pod = until("the kubelet has looked at the pod", told, 60)
    assert pod is not None
    for resource in ("memory", "io") if accounted else ():
        for kind in ("some", "full"):
            assert pod[resource]["psi"][kind].keys() == {"total", "avg10", "avg60", "avg300"}
    text = machine.up.haru("top").stdout
    (line,) = [line.split() for line in text.splitlines() if "pod/starves" in line]
    assert [bool(re.fullmatch(r"[0-9.]+%/[0-9.]+%", cell)) for cell in line[6:8]] == [accounted] * 2


@pytest.mark.nightly
def test_pod_with_unregistered_driver_waits(machine: Machine, cards: Cards) -> None:
    template(machine, "away")
    used = container("main", "exec sleep 1000", resources={"claims": [{"name": "cards"}]})
    registrar = machine.home / "n" / "plugins_registry" / f"{GPU}-reg.sock"
    cards.stop(signal.SIGKILL)
    registrar.unlink()
    claims = [{"name": "cards", "resourceClaimTemplateName": "away"}]
    machine.create("waits", [used], nodeName=None, resourceClaims=claims)

    def events() -> list[str]:
        listed = machine.api.list("events", "default")
        return [one["message"] for one in listed if one["reason"] == "FailedPrepareDynamicResources"]

    until("the pod's event", lambda: any(f"DRA driver {GPU} is not registered" in text for text in events()))
    cards.start()
    machine.until_ready("waits")
    machine.delete("waits")
