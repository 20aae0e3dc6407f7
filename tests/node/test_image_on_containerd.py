"""The image of the install kit in a real containerd: `haru node` runs the Deployment, which schedules a gang."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
import yaml
from machine import Machine, container, is_ready

from haru.install.manifests import manifests_of
from haru_process import until

pytestmark = pytest.mark.nightly
Obj = dict[str, Any]
ROOT = Path(__file__).parents[2]
SECONDS = 180.0


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image; HARU_IMAGE_ARCHIVE names one that is there."""
    if given := os.environ.get("HARU_IMAGE_ARCHIVE"):
        return Path(given)
    if os.geteuid() != 0 or not (shutil.which("buildah") and shutil.which("debootstrap")):
        pytest.skip("building an image needs root, buildah and debootstrap")
    home = tmp_path_factory.mktemp("image")
    subprocess.run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", home, ROOT], check=True)
    (wheel,) = home.glob("*.whl")
    made = home / "haru.tar"
    environment = {**os.environ, "PYTHON": sys.executable}
    subprocess.run(["sh", ROOT / "tools" / "build_image.sh", wheel, made], check=True, env=environment)
    return made


def on_the_host(obj: Obj, server: urllib.parse.SplitResult) -> Obj:
    """The Deployment on the host's network, as long as no proxy leads to the address of the Service."""
    if obj["kind"] == "Namespace":
        # A pod on the host's network is not allowed otherwise.
        obj["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] = "privileged"
    if obj["kind"] == "Deployment":
        obj["spec"]["replicas"] = 1
        pod = obj["spec"]["template"]["spec"]
        pod["hostNetwork"] = True
        del pod["containers"][0]["resources"]
        variables = {"KUBERNETES_SERVICE_HOST": server.hostname, "KUBERNETES_SERVICE_PORT": str(server.port)}
        pod["containers"][0]["env"] = [{"name": name, "value": text} for name, text in variables.items()]
    return obj


def test_image_runs_as_deployed_and_binds_a_gang(machine: Machine, archive: Path, kubectl: str) -> None:
    machine.runtime.ctr("images", "import", "--snapshotter", "native", str(archive))
    server = urllib.parse.urlsplit(machine.api.url)
    objects = [on_the_host(obj, server) for obj in manifests_of("second-scheduler")]
    applied = machine.up.kubectl(kubectl, "apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert applied.returncode == 0, applied.stderr
    try:
        until("the image's pod is ready", lambda: [p for p in pods(machine) if is_ready(p)], SECONDS)
        group = {
            "apiVersion": "scheduling.k8s.io/v1alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "train"},
            "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        }
        machine.api.create(group, "default")
        for name in ("train-0", "train-1"):
            machine.create(
                name,
                [container("main", "env; exec sleep 1000")],
                nodeName=None,
                schedulerName="haru",
                schedulingGroup={"podGroupName": "train"},
            )
        for name in ("train-0", "train-1"):
            machine.until_ready(name)
        log = machine.up.kubectl(kubectl, "logs", "train-0").stdout
        address = machine.api.get("services", "kubernetes", "default")["spec"]["clusterIP"]
        assert f"KUBERNETES_SERVICE_HOST={address}\n" in log
    finally:
        machine.up.kubectl(kubectl, "delete", "pods,podgroups", "--all", "--wait=false")
        machine.up.kubectl(kubectl, "delete", "--ignore-not-found", "-f", "-", stdin=yaml.safe_dump_all(objects))


def pods(machine: Machine) -> list[Obj]:
    return list(machine.api.list("pods", "haru-system"))
