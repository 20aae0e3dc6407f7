"""Pods on the NVIDIA cards of this machine: scheduler, node, driver and containerd, and a kernel driver that answers.

HARU_NVIDIA_DRIVER_ROOT is where the kernel driver's libraries are (/). Nothing of the cards is changed.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cards import GPU, Cards
from machine import Machine, container, status_of

from containerd_process import busybox_image
from haru_process import until

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(
        not Path("/dev/nvidiactl").exists(), reason="no NVIDIA card, or its kernel driver is not loaded"
    ),
]
Obj = dict[str, Any]
IMAGE = "haru.test/on-card:1"
ROOT = os.environ.get("HARU_NVIDIA_DRIVER_ROOT", "/")
_C = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1", "libstdc++.so.6")
_PATHS = "export LD_LIBRARY_PATH=/usr/lib64:/usr/lib/x86_64-linux-gnu:/lib64 PATH=/bin:/usr/bin\n"


class RealCards(Cards):
    """`haru driver nvidia`."""

    def flags(self) -> list[str]:
        return ["nvidia", "--driver-root", ROOT, "--usage-seconds", "1"]


def image_of(program: Path) -> bytes:
    """Busybox, the machine's C library, and a program that uses it."""
    folder = Path("/lib/x86_64-linux-gnu")
    files = {f"lib/x86_64-linux-gnu/{name}": (folder / name).read_bytes() for name in _C if (folder / name).exists()}
    files["lib64/ld-linux-x86-64.so.2"] = Path("/lib64/ld-linux-x86-64.so.2").read_bytes()
    return busybox_image(IMAGE, {**files, "bin/on-card": program.read_bytes()})


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if (compiler := shutil.which("gcc")) is None:
        pytest.skip("gcc: not installed")
    path = tmp_path_factory.mktemp("c") / "on-card"
    subprocess.run([compiler, "-O1", "-o", path, Path(__file__).with_name("on_card.c"), "-ldl"], check=True)
    return path


@pytest.fixture
def cards(program: Path, machine: Machine) -> Iterator[RealCards]:
    machine.runtime.add_image(image_of(program))
    request = {"name": "gpu", "exactly": {"deviceClassName": GPU}}
    spec = {"spec": {"devices": {"requests": [request]}}}
    kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
    machine.api.create({**kind, "metadata": {"name": "one", "namespace": "default"}, "spec": spec})
    running = RealCards(machine)
    running.start()
    yield running
    machine.clear()
    running.stop()
    machine.api.delete("resourceclaimtemplates", "one", "default")


def published(machine: Machine) -> list[Obj]:
    """The node's whole cards."""
    slices = machine.api.list("resourceslices")
    return [device for one in slices for device in one["spec"].get("devices") or ()]


def with_card(machine: Machine, name: str, script: str, **spec: Any) -> Obj:
    used = container("main", _PATHS + script, resources={"claims": [{"name": "card"}]})
    claims = [{"name": "card", "resourceClaimTemplateName": "one"}]
    return machine.create(name, [used | {"image": IMAGE}], nodeName=None, resourceClaims=claims, **spec)


def test_pod_computes_on_the_card_that_it_was_given(machine: Machine, cards: RealCards) -> None:
    with_card(machine, "computes", "nvidia-smi -L; on-card; exec sleep 1000")
    pod = machine.until_ready("computes")
    machine.until_said(pod, "right after 1000 rounds")
    said = machine.log(pod)
    (claim,) = machine.api.list("resourceclaims", "default")
    (given,) = claim["status"]["allocation"]["devices"]["results"]
    attributes = {one["name"]: one["attributes"] for one in published(machine)}[given["device"]]
    assert f"GPU 0: {attributes['productName']['string']} (UUID: {attributes['uuid']['string']})" in said
    assert f"1 cards, the first is {attributes['productName']['string']}" in said


def test_pod_without_claim_cannot_use_a_card(machine: Machine, cards: RealCards) -> None:
    """Not by asking for it as runtimes of NVIDIA's know it, nor by mounting its device file."""
    volume = {"name": "dev", "hostPath": {"path": "/dev"}}
    script = _PATHS + "on-card; ls /dev/nvidia0; cat /machine/nvidiactl; cat /machine/nvidia0"
    seen = container("main", script, env=[{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}])
    seen |= {"image": IMAGE, "volumeMounts": [{"name": "dev", "mountPath": "/machine"}]}
    machine.create("steals", [seen], volumes=[volume], restartPolicy="Never")
    said = machine.log(machine.until_phase("steals", "Failed"))
    assert "libcuda.so.1: cannot open shared object file" in said
    assert "ls: /dev/nvidia0: No such file or directory" in said
    assert said.count("Operation not permitted") == 2, said


def test_pod_waits_for_a_card_that_another_has(machine: Machine, cards: RealCards) -> None:
    count = len(published(machine))
    for number in range(count + 1):
        with_card(machine, f"p{number}", "nvidia-smi -L; exec sleep 1000")

    def waits() -> Obj | None:
        pods = [machine.pod(f"p{number}") for number in range(count + 1)]
        waiting = [pod for pod in pods if not pod["spec"].get("nodeName")]
        told = [
            one for pod in waiting for one in pod["status"].get("conditions") or () if one["type"] == "PodScheduled"
        ]
        is_done = len(waiting) == 1 and len(told) == 1 and sum(map(_is_running, pods)) == count
        return {**waiting[0], "told": told[0]} if is_done else None

    late = until("one pod waits", waits)
    assert late["told"]["reason"] == "Unschedulable"
    assert "cannot allocate all claims" in late["told"]["message"]
    first = next(f"p{number}" for number in range(count + 1) if machine.pod(f"p{number}")["spec"].get("nodeName"))
    machine.delete(first)
    machine.until_said(machine.until_ready(late["metadata"]["name"]), "UUID: GPU-")


def _is_running(pod: Obj) -> bool:
    return pod["status"].get("phase") == "Running"


def test_utilization_and_health_are_told_and_survive_the_driver(machine: Machine, cards: RealCards) -> None:
    with_card(machine, "busy", "on-card 25; exec sleep 1000")
    pod = machine.until_ready("busy")

    def percent() -> int:
        (claim,) = machine.api.list("resourceclaims", "default")
        (told,) = claim["status"].get("devices") or [{}]
        return int((told.get("data") or {}).get("haru.dev/utilization-percent", 0))

    until("the card is busy", lambda: percent() > 50)
    cards.stop(signal.SIGKILL)
    machine.kill()
    cards.start()
    machine.start()
    until("the card is busy", lambda: percent() > 50)
    machine.until_said(pod, "right after")
    until("the card rests", lambda: percent() < 5)
    status = status_of(machine.pod("busy"))
    assert status["restartCount"] == 0
    (told,) = [one for entry in status["allocatedResourcesStatus"] for one in entry["resources"]]
    assert told["health"] == "Healthy"
    assert [one.get("taints") for one in published(machine)] == [None] * len(published(machine))
    machine.delete("busy")
    assert not list((machine.home / "cdi").glob("*claim*"))
