"""The simulated nodes of a data directory over several starts of `haru up`."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from haru_process import Api, Up, haru, phase, until

Obj = dict[str, Any]
_LAB = """
apiVersion: haru.dev/v1alpha1
kind: NodeProfile
metadata: {name: lab}
spec: {node: {cpu: "4", memory: 16Gi}}
"""


def start(home: Path, *flags: str, directory: str = "data") -> Up:
    return Up(home, "--data-dir", str(home / directory), "--no-dashboard", *flags)


def start_fails(home: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return haru(home, "up", "--listen", "127.0.0.1:0", "--data-dir", str(home / "data"), "--no-dashboard", *flags)


def names(api: Api, plural: str, namespace: str = "") -> list[str]:
    return sorted(obj["metadata"]["name"] for obj in api.list(plural, namespace))


def pod(name: str, node: str) -> Obj:
    spec: Obj = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
    spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def slice_nodes(api: Api) -> set[str]:
    return {obj["spec"]["nodeName"] for obj in api.list("resourceslices")}


def test_start_without_profile_has_nodes_of_last_start(tmp_path: Path) -> None:
    start(tmp_path, "--profile", "cpu:2").stop()
    up = start(tmp_path)
    try:
        assert names(up.api, "nodes") == ["cpu-0", "cpu-1"]
        assert "simulated nodes as at the last start: cpu:2" in up.log.read_text()
    finally:
        up.stop()


def test_store_without_record_keeps_its_nodes(tmp_path: Path) -> None:
    first = start(tmp_path, "--profile", "cpu:2,t4:1")
    try:
        first.api.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "real-0"}})
        first.api.delete("configmaps", "haru-up", "kube-system")
    finally:
        first.stop()
    up = start(tmp_path)
    try:
        assert names(up.api, "nodes") == ["cpu-0", "cpu-1", "real-0", "t4-0"]
        assert "simulated nodes as at the last start: cpu:2,t4:1" in up.log.read_text()
    finally:
        up.stop()
    again = start(tmp_path, "--profile", "cpu:1")
    try:
        assert names(again.api, "nodes") == ["cpu-0", "real-0"]
    finally:
        again.stop()


def test_start_without_simulated_nodes_is_remembered(tmp_path: Path) -> None:
    first = start(tmp_path, "--no-simulated-nodes")
    try:
        assert names(first.api, "deviceclasses") == []
    finally:
        first.stop()
    up = start(tmp_path)
    try:
        assert names(up.api, "nodes") == []
    finally:
        up.stop()


def test_profile_from_file_is_remembered_without_the_file(tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(_LAB)
    start(tmp_path, "--profile", f"{file}:1").stop()
    file.unlink()
    up = start(tmp_path)
    try:
        assert names(up.api, "nodes") == ["lab-0"]
        assert up.api.get("nodes", "lab-0")["status"]["capacity"]["cpu"] == "4"
    finally:
        up.stop()


def test_restored_snapshot_has_its_nodes(tmp_path: Path) -> None:
    up = start(tmp_path, "--profile", "cpu:1")
    saved = up.haru("snapshot", "save", str(tmp_path / "snapshot"))
    up.stop()
    assert saved.returncode == 0, saved.stderr
    restored = haru(tmp_path, "snapshot", "restore", str(tmp_path / "snapshot"), "--data-dir", str(tmp_path / "again"))
    assert restored.returncode == 0, restored.stderr
    up = start(tmp_path, directory="again")
    try:
        assert names(up.api, "nodes") == ["cpu-0"]
    finally:
        up.stop()


def test_profile_at_restart_replaces_nodes_with_their_slices_and_leases(tmp_path: Path) -> None:
    up = start(tmp_path, "--profile", "dgx-h100:2,cpu:2", "--controllers=")
    own = {"name": "mine", "labels": {"simulated.haru.dev/profile": "dgx-h100"}}
    up.api.create({"apiVersion": "v1", "kind": "Node", "metadata": own})
    until("the user's own node is up", lambda: "mine" in slice_nodes(up.api))
    up.stop()
    for flags in (("--profile", "dgx-h100:1,cpu:3"), ()):
        up = start(tmp_path, *flags, "--controllers=")
        try:
            wanted = ["cpu-0", "cpu-1", "cpu-2", "dgx-h100-0", "mine"]
            assert names(up.api, "nodes") == wanted
            assert names(up.api, "leases", "kube-node-lease") == wanted
            assert slice_nodes(up.api) == {"dgx-h100-0", "mine"}
        finally:
            up.stop()


def test_profile_that_removes_nodes_with_pods_is_refused_without_changes(tmp_path: Path) -> None:
    up = start(tmp_path, "--profile", "dgx-h100:1,cpu:2")
    for name, node in (("held", "cpu-1"), ("other", "cpu-0")):
        up.api.create(pod(name, node), "default")
    until("both run", lambda: {phase(p) for p in up.api.list("pods", "default")} == {"Running"})
    up.stop()
    for flag in (("--profile", "cpu:1"), ("--no-simulated-nodes",)):
        refused = start_fails(tmp_path, *flag)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"{flag[0]}: Forbidden: pods are bound to" in refused.stderr, refused.stderr
        assert "cpu-1 (default/held)" in refused.stderr and "Traceback" not in refused.stderr
        assert "dgx-h100-0" not in refused.stderr and ("cpu-0" in refused.stderr) == (len(flag) == 1)
    up = start(tmp_path)
    try:
        assert names(up.api, "nodes") == ["cpu-0", "cpu-1", "dgx-h100-0"]
        assert slice_nodes(up.api) == {"dgx-h100-0"}
        up.api.delete("pods", "held", "default")
        until("it is gone", lambda: up.api.find("pods", "held", "default") is None)
    finally:
        up.stop()
    up = start(tmp_path, "--profile", "cpu:1")
    try:
        assert names(up.api, "nodes") == ["cpu-0"]
        assert phase(up.api.get("pods", "other", "default")) == "Running"
    finally:
        up.stop()


def test_unreadable_profile_record_is_reported(tmp_path: Path) -> None:
    up = start(tmp_path, "--profile", "cpu:1")
    until("it is written", lambda: up.api.find("configmaps", "haru-up", "kube-system"))
    up.api.patch("configmaps", "haru-up", {"data": {"profiles": "[{}]"}}, "kube-system")
    up.stop()
    refused = start_fails(tmp_path)
    assert refused.returncode == 2 and "kube-system/haru-up" in refused.stderr and "--profile" in refused.stderr
    up = start(tmp_path, "--profile", "cpu:2")
    try:
        assert names(up.api, "nodes") == ["cpu-0", "cpu-1"]
    finally:
        up.stop()
