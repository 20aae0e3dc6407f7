"""Two real nodes on one machine, made by examples/two-nodes/nodes.sh: a namespace, containerd, agent and proxy each."""

from __future__ import annotations

import base64
import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

import containerd_process
from containerd_process import IMAGE, busybox_image
from haru_process import HARU, Up, environment, until

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NODES = ("node-1", "node-2")
PLUGINS = Path("/usr/lib/cni")
Obj = dict[str, Any]


def missing() -> str:
    """What this machine lacks for them, or nothing."""
    programs = [name for name in ("nft", "ip", "nsenter", "iptables") if shutil.which(name) is None]
    if programs:
        return f"{', '.join(programs)}: not installed (the packages nftables, iproute2, util-linux and iptables)"
    if not all((PLUGINS / name).exists() for name in ("ptp", "host-local", "portmap", "loopback")):
        return f"{PLUGINS}: no plugins for networks of pods (the package containernetworking-plugins)"
    return containerd_process.missing()


class TwoNodes:
    """The cluster's API is `up.api`; pods reach name servers at `dns`."""

    dns = "10.96.0.10"

    def __init__(self, home: Path) -> None:
        self.home, self.subnet = home, f"10.{16 + os.getpid() % 200}"
        self.address = f"{self.subnet}.0.1"
        self.up: Up | None = None
        try:
            self.script("network")
            flags = ["--ephemeral", "--no-simulated-nodes", "--no-dashboard", "--listen", f"{self.address}:0"]
            self.up = Up(home / "up", *flags)
            self.script("up", str(self.up.kubeconfig), str(self.authority()))
            archive = home / "busybox.tar"
            archive.write_bytes(busybox_image(IMAGE))
            self.load(archive)
            until("both nodes are ready", lambda: all(map(self._is_ready, NODES)), 90)
        except BaseException:
            self.stop()
            raise

    def script(self, *arguments: str) -> str:
        """What the example's script prints."""
        flags = "--no-fail-cgroup-v1 --system-reserved cpu=100m --eviction-hard memory.available<50Mi"
        own = {"SUBNET": self.subnet, "PREFIX": f"h{os.getpid() % 100_000}", "STATE": str(self.home / "nodes")}
        own |= {"HARU": shlex.join(HARU), "SANDBOX_IMAGE": IMAGE, "DNS": self.dns, "NODE_FLAGS": flags}
        command = [str(EXAMPLES / "two-nodes" / "nodes.sh"), *arguments]
        # A file, not a pipe: what the script starts keeps it open.
        said = self.home / "nodes.log"
        with said.open("w") as log:
            env = environment(self.home, **own)
            done = subprocess.run(command, env=env, stdout=log, stderr=log, check=False, timeout=180)
        assert done.returncode == 0, f"{command}: {said.read_text()}"
        return said.read_text()

    def authority(self) -> Path:
        """The file of the cluster's authority."""
        assert self.up is not None
        cluster = yaml.safe_load(self.up.kubeconfig.read_text())["clusters"][0]["cluster"]
        file = self.home / "ca.crt"
        file.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        return file

    def load(self, archive: Path) -> None:
        """Gives an image to both nodes."""
        for node in NODES:
            self.script("ctr", node, "images", "import", str(archive))

    def _is_ready(self, node: str) -> bool:
        assert self.up is not None
        found = self.up.api.find("nodes", node) or {}
        return any(
            one["type"] == "Ready" and one["status"] == "True"
            for one in found.get("status", {}).get("conditions") or ()
        )

    def stop(self) -> None:
        """Ends everything."""
        self.script("down")
        if self.up is not None:
            self.up.stop()

    def kubectl(self, binary: str, *arguments: str, stdin: str = "") -> str:
        """What kubectl prints; it must succeed."""
        assert self.up is not None
        done = self.up.kubectl(binary, *arguments, stdin=stdin)
        logs = "".join(f"\n{file}:\n{file.read_text()[-1500:]}" for file in self.home.glob("nodes/*/node.log"))
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}{logs}"
        return done.stdout

    def pod(self, name: str, script: str, *, node: str = "", port: int = 0, **spec: Any) -> Obj:
        """A pod with one container that runs a script; ready once it listens at a port, if that is given."""
        command = ["sh", "-c", script]
        main: Obj = {"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": command}
        if port:
            main |= {"readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1}}
        meta = {"name": name, "namespace": "default", "labels": spec.pop("labels", {})}
        whole = {"terminationGracePeriodSeconds": 1, "containers": [main], **({"nodeName": node} if node else {})}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {**whole, **spec}}

    def create_ready(self, *pods: Obj) -> None:
        """Creates pods and waits until they are ready."""
        assert self.up is not None
        for pod in pods:
            self.up.api.create(pod)
        for pod in pods:
            name = pod["metadata"]["name"]
            until(f"{name} is ready", lambda name=name: self.address_of(name), 60)  # type: ignore[misc]

    def address_of(self, name: str) -> str:
        """The address of a pod that is ready, else nothing."""
        assert self.up is not None
        status = self.up.api.get("pods", name, "default")["status"]
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions") or ())
        return str(status["podIP"]) if ready else ""


def service(name: str, ports: Sequence[Obj] = (), **spec: Any) -> Obj:
    """A Service of the namespace default."""
    meta = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Service", "metadata": meta, "spec": {"ports": list(ports), **spec}}
