"""Starts `haru up` for the demo and talks to it with kubectl or, without kubectl, with Haru's Python client."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

Obj = dict[str, Any]
HERE = Path(__file__).parent
OLDEST_KUBECTL = (1, 27)


class StepError(AssertionError):
    """A step of the demo failed."""


class Haru:
    """A running `haru up` and its kubeconfig."""

    def __init__(self, directory: Path, profiles: str) -> None:
        self.kubeconfig = directory / "kubeconfig"
        command = [sys.executable, "-m", "haru", "up", "--listen", "127.0.0.1:0", "--profile", profiles]
        command += ["--data-dir", str(directory / "data"), "--write-kubeconfig", str(self.kubeconfig)]
        self._log = (directory / "haru.log").open("w")
        self.log_path = directory / "haru.log"
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self._log, text=True)
        assert self._process.stdout is not None
        self.ready_line = self._process.stdout.readline().strip()
        if not self.ready_line:
            raise StepError(f"haru up did not start:\n{self.log_path.read_text()}")

    def stop(self) -> int:
        """Sends SIGTERM and returns the exit status."""
        self._process.terminate()
        try:
            return self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()
        finally:
            self._log.close()

    def explain(self, what: str, namespace: str = "default") -> str:
        """Returns the output of `haru explain`."""
        command = [sys.executable, "-m", "haru", "explain", what, "-n", namespace, "--kubeconfig", str(self.kubeconfig)]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        if result.returncode != 0:
            raise StepError(f"haru explain {what} exited with {result.returncode}: {result.stderr}")
        return result.stdout


class Kubectl:
    """Access to the cluster with kubectl."""

    name = "kubectl"

    def __init__(self, kubeconfig: Path) -> None:
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig)}

    def run(self, *arguments: str) -> str:
        """Runs kubectl; raises StepError with its message if it fails."""
        result = subprocess.run(
            ["kubectl", *arguments], env=self._env, capture_output=True, text=True, check=False, timeout=60
        )
        if result.returncode != 0:
            raise StepError(f"kubectl {' '.join(arguments)}: {result.stderr.strip()}")
        return result.stdout

    def apply(self, file: str) -> None:
        """Applies a manifest file."""
        print(indent(self.run("apply", "-f", str(HERE / file))))

    def items(self, resource: str) -> list[Obj]:
        """All objects of a resource (`pods`, `resourceclaims.resource.k8s.io`), in the default namespace."""
        items: list[Obj] = json.loads(self.run("get", resource, "-o", "json"))["items"]
        return items

    def annotate(self, resource: str, name: str, key: str, value: str | None) -> None:
        """Sets or (None) removes an annotation."""
        self.run("annotate", "--overwrite", resource, name, f"{key}={value}" if value is not None else f"{key}-")

    def scale(self, name: str, replicas: int) -> None:
        """Scales a Deployment."""
        self.run("scale", "deployment", name, f"--replicas={replicas}")

    def delete(self, resource: str, name: str) -> None:
        """Deletes an object and waits until it is gone."""
        self.run("delete", resource, name, "--timeout=30s")


class PythonClient:
    """Access to the cluster with Haru's Python client, for machines without kubectl."""

    name = "Haru's Python client (no kubectl of version 1.27 or newer is installed)"
    _KINDS = {
        "pods": ("", "v1"),
        "nodes": ("", "v1"),
        "events": ("", "v1"),
        "resourceclaims": ("resource.k8s.io", "v1"),
        "resourceslices": ("resource.k8s.io", "v1"),
        "podgroups": ("scheduling.k8s.io", "v1alpha2"),
        "deployments": ("apps", "v1"),
        "jobs": ("batch", "v1"),
    }

    def __init__(self, kubeconfig: Path) -> None:
        self._kubeconfig = kubeconfig

    def _call(self, work: Callable[[Any], Any]) -> Any:
        from haru.client.api import ApiClient

        async def session() -> Any:
            async with ApiClient.from_kubeconfig(self._kubeconfig) as client:
                return await work(client)

        return asyncio.run(session())

    def _kind(self, resource: str) -> Any:
        from haru.kube import kinds

        plural = resource.split(".")[0]
        plural = plural if plural.endswith("s") else plural + "s"
        return kinds.lookup(*self._KINDS[plural], plural)

    def apply(self, file: str) -> None:
        """Server-side apply of each document."""
        from haru.kube import kinds
        from haru.kube.yaml import load_all

        for obj in load_all((HERE / file).read_text()):
            kind = kinds.by_kind(obj["apiVersion"], obj["kind"])
            name = obj["metadata"]["name"]
            namespace = "default" if kind is not None and kind.namespaced else ""
            self._call(
                lambda c, k=kind, n=name, o=obj, ns=namespace: c.patch(
                    k, n, o, ns, type="apply", field_manager="demo", force=True
                )
            )
            print(indent(f"{obj['kind'].lower()}/{name} applied"))

    def items(self, resource: str) -> list[Obj]:
        """All objects of a resource in the default namespace."""
        kind = self._kind(resource)
        listed = self._call(lambda c: c.list(kind, "default" if kind.namespaced else ""))
        items: list[Obj] = listed["items"]
        return items

    def annotate(self, resource: str, name: str, key: str, value: str | None) -> None:
        """Sets or removes an annotation."""
        kind = self._kind(resource)
        self._call(lambda c: c.patch(kind, name, {"metadata": {"annotations": {key: value}}}))

    def scale(self, name: str, replicas: int) -> None:
        """Scales a Deployment."""
        kind = self._kind("deployments")
        self._call(lambda c: c.patch(kind, name, {"spec": {"replicas": replicas}}, "default"))

    def delete(self, resource: str, name: str) -> None:
        """Deletes an object and waits until it is gone."""
        kind = self._kind(resource)
        self._call(lambda c: c.delete(kind, name, "default", propagation_policy="Background"))
        until(f"{resource} {name} is gone", lambda: all(o["metadata"]["name"] != name for o in self.items(resource)))


def connect(kubeconfig: Path) -> Kubectl | PythonClient:
    """Returns a Kubectl if kubectl is installed and new enough, else a PythonClient."""
    if shutil.which("kubectl"):
        answer = subprocess.run(["kubectl", "version", "--client", "-o", "json"], capture_output=True, check=False)
        try:
            version = json.loads(answer.stdout)["clientVersion"]
            if (int(version["major"]), int(version["minor"].rstrip("+"))) >= OLDEST_KUBECTL:
                return Kubectl(kubeconfig)
        except (ValueError, KeyError):
            pass
    return PythonClient(kubeconfig)


def until(what: str, holds: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Waits until `holds()` is truthy and returns its value; raises StepError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = holds()
        if value:
            return value
        if time.monotonic() > deadline:
            raise StepError(f"not within {seconds:.0f} s: {what}")
        time.sleep(0.2)


def indent(text: str) -> str:
    """Indents every line of a text."""
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
