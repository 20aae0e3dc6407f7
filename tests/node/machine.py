"""A cluster without simulated nodes, a real containerd, and `haru node` on this machine."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from containerd_process import IMAGE, Containerd
from haru_process import Process, Up, until

Obj = dict[str, Any]
NODE = "real-0"
SECONDS = 60.0


class Machine:
    """One node. Its cluster's API is `api`."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.up = Up(home / "up", "--ephemeral", "--no-simulated-nodes", "--no-dashboard")
        self.api = self.up.api
        self.runtime = Containerd(home / "r")
        self.agent: Process | None = None
        try:
            self.runtime.start()
            self.start()
        except BaseException:
            self.stop()
            raise

    @property
    def endpoint(self) -> str:
        """Where the agent finds the runtime."""
        return self.runtime.endpoint

    @property
    def groups(self) -> str:
        """The control group below which those of the pods are."""
        return f"haru-test-{os.getpid()}"

    def launch(self, *more: str) -> Process:
        """Runs the agent; the node may not be ready yet."""
        flags = ["--kubeconfig", str(self.up.kubeconfig), "--hostname-override", NODE]
        flags += ["--container-runtime-endpoint", self.endpoint]
        flags += ["--root-dir", str(self.home / "n"), "--pod-logs-dir", str(self.home / "logs")]
        flags += ["--cdi-dir", str(self.home / "cdi")]
        flags += ["--cgroup-root", f"/{self.groups}", "--no-fail-cgroup-v1", "--node-ip", "127.0.0.1"]
        # A machine whose disk is fairly full evicts nothing here.
        flags += ["--eviction-hard", "memory.available<50Mi", "--image-gc-high-threshold", "100"]
        flags += ["--port", "0", "--healthz-port", "0", "--client-ca-file", str(self.authority())]
        self.agent = Process(self.home, ["node", *flags, *more], "node")
        return self.agent

    def start(self, *more: str) -> None:
        """Runs the agent until it says that the node is ready."""
        assert self.launch(*more).line() == f"node {NODE} is ready"

    def authority(self) -> Path:
        """The file of the cluster's authority, out of its kubeconfig."""
        cluster = yaml.safe_load(self.up.kubeconfig.read_text())["clusters"][0]["cluster"]
        file = self.home / "ca.crt"
        file.write_bytes(base64.b64decode(cluster["certificate-authority-data"]))
        return file

    def kill(self) -> None:
        """Ends the agent without a word."""
        assert self.agent is not None
        self.agent.stop(signal.SIGKILL)

    def stop(self) -> None:
        """Ends everything."""
        if self.agent is not None:
            self.agent.stop()
        self.runtime.stop()
        self.up.stop()
        for mount in [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]:
            if mount.startswith(str(self.home)):
                subprocess.run(["umount", "-l", mount], check=False)
        for group in self._groups():
            _remove_group(group)
        shutil.rmtree(self.home / "r", ignore_errors=True)

    def _groups(self) -> list[Path]:
        """Of each controller with cgroup v1, of all with v2."""
        return [path for place in ("", "*/") for path in Path("/sys/fs/cgroup").glob(f"{place}{self.groups}")]

    # -- pods ---------------------------------------------------------------------------------------------------------

    def run(self, name: str, script: str, **spec: Any) -> Obj:
        """Creates a pod with one container, which runs a script."""
        return self.create(name, [container("main", script)], **spec)

    def create(self, name: str, containers: Sequence[Obj], **spec: Any) -> Obj:
        """Creates a pod on the node."""
        meta = {"name": name, "namespace": "default"}
        whole = {"nodeName": NODE, "terminationGracePeriodSeconds": 1, **spec, "containers": list(containers)}
        whole.setdefault("automountServiceAccountToken", False)
        return self.api.create({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": whole})

    def pod(self, name: str) -> Obj:
        """The pod as it is."""
        return self.api.get("pods", name, "default")

    def until(self, name: str, what: str, holds: Any) -> Obj:
        """Waits until something holds of a pod."""
        last: Obj = {}

        def look() -> Obj | None:
            nonlocal last
            last = self.pod(name)
            return last if holds(last) else None

        try:
            found = until(f"pod {name}: {what}", look, SECONDS)
        except AssertionError as error:
            events = [e["message"] for e in self.api.list("events", "default")]
            log = self.agent.log.read_text()[-3000:] if self.agent else ""
            raise AssertionError(f"{error}\n{last.get('status')}\n{events}\n{log}") from None
        assert found is not None
        return found

    def until_phase(self, name: str, phase: str) -> Obj:
        """Waits for a phase."""
        return self.until(name, phase, lambda pod: pod["status"].get("phase") == phase)

    def until_ready(self, name: str) -> Obj:
        """Waits until the pod is ready."""
        return self.until(name, "ready", is_ready)

    def until_gone(self, name: str) -> None:
        """Waits until the API has no such pod."""
        until(f"pod {name} is gone", lambda: self.api.find("pods", name, "default") is None, SECONDS)

    def delete(self, name: str, **options: Any) -> None:
        """Deletes a pod and waits until it has gone."""
        self.api.delete("pods", name, "default", **options)
        self.until_gone(name)

    def left_of(self, pod: Obj) -> list[Path]:
        """Directories of a pod: its own, its logs, its control groups."""
        uid = pod["metadata"]["uid"]
        places = [self.home / "n" / "pods" / uid, *(self.home / "logs").glob(f"*_{uid}")]
        for group in self._groups():
            # Not `rglob`: it stumbles over groups that go meanwhile.
            places += [Path(place) for place, _, _ in os.walk(group) if place.endswith(f"/pod{uid}")]
        return [place for place in places if place.exists()]

    def clear(self) -> None:
        """Ends all pods that are left."""
        left = [pod["metadata"]["name"] for pod in self.api.list("pods", "default")]
        for name in left:
            self.api.delete("pods", name, "default", gracePeriodSeconds=0)
        for name in left:
            self.until_gone(name)

    def log(self, pod: Obj, name: str = "main", attempt: int = 0) -> str:
        """What a container has said."""
        meta = pod["metadata"]
        file = self.home / "logs" / f"{meta['namespace']}_{meta['name']}_{meta['uid']}" / name / f"{attempt}.log"
        if not file.exists():
            return ""
        lines = [line.split(" ", 3) for line in file.read_text().splitlines()]
        return "\n".join(parts[3] for parts in lines if len(parts) == 4)

    def until_said(self, pod: Obj, text: str, name: str = "main", attempt: int = 0) -> None:
        """Waits until a container has said something."""
        until(f"{name} says {text}", lambda: text in self.log(pod, name, attempt), SECONDS)


def container(name: str, script: str, **more: Any) -> Obj:
    """A container that runs a script."""
    command = ["sh", "-c", script]
    return {"name": name, "image": IMAGE, "imagePullPolicy": "Never", "command": command, **more}


def is_ready(pod: Obj) -> bool:
    """The pod's condition Ready holds."""
    conditions = {one["type"]: one["status"] for one in pod["status"].get("conditions") or ()}
    return conditions.get("Ready") == "True"


def status_of(pod: Obj, name: str = "main") -> Obj:
    """A container's status."""
    listed = [*(pod["status"].get("initContainerStatuses") or ()), *(pod["status"].get("containerStatuses") or ())]
    return next((one for one in listed if one["name"] == name), {})


def _remove_group(group: Path) -> None:
    for path in sorted((p for p in group.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
        path.rmdir()
    group.rmdir()
