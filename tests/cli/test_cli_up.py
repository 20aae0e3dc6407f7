"""The life of `haru up`: what it writes, how it stops, what it keeps, how other commands find it."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.client
import json
import os
import signal
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from haru_process import Api, Process, Up, haru, phase, until

Obj = dict[str, Any]
CPU = ("--profile", "cpu:1")
cold = functools.partial(Up, warm=False)
"""`haru up` as the command starts by itself: here the start is what is tested."""


def config_map(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}


def pod(name: str) -> Obj:
    spec = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "c", "image": "i"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def running(api: Api, name: str) -> bool:
    return phase(api.get("pods", name, "default")) == "Running"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refuses_connections(api: Api) -> bool:
    try:
        api.close()
        api.call("GET", "/healthz")
    except OSError:
        return True
    return False


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_sigint_and_sigterm_stop_haru_up_and_remove_temporary_files(tmp_path: Path, number: int) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    up = cold(tmp_path, "--ephemeral", *CPU, TMPDIR=str(scratch))
    assert [p.name.startswith("haru-") for p in scratch.iterdir()] == [True]
    watcher = threading.Thread(target=_watch, args=(Api(up.kubeconfig),))
    watcher.start()
    api = Api(up.kubeconfig)
    api.create(pod("p"), "default")
    until("the pod runs", lambda: running(api, "p"))
    assert up.stop(number) == 0  # in time: an open watch does not hold it up
    watcher.join(60)
    assert not watcher.is_alive()
    assert list(scratch.iterdir()) == []
    assert refuses_connections(api)
    # What it said: one line on stdout, notes on stderr, no traceback.
    assert up.ready_line.startswith("haru is ready after ") and str(up.kubeconfig) in up.ready_line
    assert api.url in up.ready_line
    log = up.log.read_text()
    assert "feature gates on beyond 1.36's defaults" in log and "Traceback" not in log


def _watch(api: Api) -> None:
    # Lines of JSON are no JSON document: what matters is that the stream ends.
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        api.call("GET", "/api/v1/pods?watch=true&allowWatchBookmarks=true&timeoutSeconds=600")
    api.close()


def test_signal_during_start_ends_haru_up(tmp_path: Path) -> None:
    for pause in (0.05, 0.3, 0.5):
        process = Process(
            tmp_path, ["up", "--ephemeral", "--listen", "127.0.0.1:0", *CPU], "early", TMPDIR=str(tmp_path)
        )
        time.sleep(pause)
        status = process.stop(signal.SIGTERM)
        # Before the program has taken the signals over, the system's own ending holds.
        assert status in (0, -signal.SIGTERM), process.log.read_text()
        assert "Traceback" not in process.log.read_text()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith("haru-")] == []


def test_restart_on_same_directory_keeps_objects_and_running_pods(tmp_path: Path) -> None:
    flags = ("--data-dir", str(tmp_path / "data"), "--profile", "dgx-h100:1")
    up = cold(tmp_path, *flags)
    api = up.api
    api.create(config_map("kept"), "default")
    api.create(pod("worker"), "default")
    claim: Obj = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "card"}}
    claim["spec"] = {"devices": {"requests": [{"name": "g", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
    api.create(claim, "default")
    holder = pod("holder")
    holder["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": "card"}]
    api.create(holder, "default")
    until("the pods run", lambda: running(api, "worker") and running(api, "holder"))
    before = {name: _kept(api, name) for name in ("pods", "configmaps", "resourceclaims", "nodes", "resourceslices")}
    for number in (signal.SIGTERM, signal.SIGKILL):
        up.stop(number)
        up = cold(tmp_path, *flags)
        # The same certificate authority, the same token: old kubeconfigs stay good (but for the port, which was 0).
        assert up.api.token == api.token
        api = up.api
        assert {name: _kept(api, name) for name in before} == before
        assert running(api, "worker") and running(api, "holder")
    api.create(pod("after"), "default")
    until("a new pod runs", lambda: running(api, "after"))
    assert up.stop() == 0


def _kept(api: Api, plural: str) -> list[tuple[str, str, str]]:
    def facts(obj: Obj) -> tuple[str, str, str]:
        what = (
            obj.get("status", {}).get("allocation", {}) if plural == "resourceclaims" else obj["spec"].get("nodeName")
        )
        return obj["metadata"]["name"], obj["metadata"]["uid"], json.dumps(what)

    return sorted(facts({"spec": {}, **obj}) for obj in api.list(plural))


def test_files_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    data, loose = tmp_path / "data", tmp_path / "admin.kubeconfig"
    loose.write_text("somebody's\n")
    loose.chmod(0o644)
    data.mkdir(mode=0o755)  # somebody made it before: the files have to keep others out themselves
    up = cold(tmp_path, "--data-dir", str(data), *CPU)
    try:
        assert [file.name for file in data.rglob("*") if file.is_file() and mode(file) & 0o077] == []
        for file in (loose, data / "kubeconfig", data / "scheduler.kubeconfig", data / "controllers.kubeconfig"):
            assert mode(file) == 0o600, file
            assert yaml.safe_load(file.read_text())["clusters"][0]["cluster"]["server"] == up.api.url
        secrets = [f for f in (data / "pki").iterdir() if f.suffix in (".key", ".json")]
        assert secrets and all(mode(f) == 0o600 for f in secrets)
        answers = [Api(file).call("POST", *_who_am_i())[1] for file in data.glob("*kubeconfig")]
        names = {answer["status"]["userInfo"]["username"] for answer in answers}
        assert names == {"haru-admin", "system:kube-scheduler", "system:kube-controller-manager"}
        assert not (tmp_path / ".kube").exists()
    finally:
        assert up.stop() == 0


def _who_am_i() -> tuple[str, Obj]:
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    return "/apis/authentication.k8s.io/v1/selfsubjectreviews", body


def test_second_haru_up_on_same_directory_is_refused(tmp_path: Path) -> None:
    flags = ("--data-dir", str(tmp_path / "data"), *CPU)
    up = cold(tmp_path, *flags)
    try:
        assert mode(tmp_path / "data") == 0o700
        second = haru(tmp_path, "up", *flags, "--listen", "127.0.0.1:0")
        assert (second.returncode, second.stdout) == (2, "")
        assert f"is in use by the haru up with process id {up.process.pid}" in second.stderr
        assert "--data-dir" in second.stderr
        assert up.api.call("GET", "/readyz")[0] == 200
    finally:
        assert up.stop() == 0


def test_flags_override_configuration_file(tmp_path: Path) -> None:
    config = tmp_path / "up.yaml"
    off = ("GenericWorkload", "GangScheduling", "DRAWorkloadResourceClaims", "TopologyAwareWorkloadScheduling")
    off += ("WorkloadAwarePreemption", "WorkloadWithJob")
    text = {
        "apiVersion": "haru.dev/v1alpha1",
        "kind": "UpConfiguration",
        "profiles": [{"name": "cpu", "count": 2}, "t4:1"],
        "dataDir": str(tmp_path / "from-file"),
        "featureGates": dict.fromkeys(off, False),
        "runtimeConfig": {"resource.k8s.io/v1beta1": False},
        "controllers": ["*", "-job-controller"],
        "schedulerNames": ["one", "two"],
    }
    config.write_text(yaml.safe_dump(text))
    up = cold(tmp_path, "--config", str(config), "--profile", "cpu:3", "--data-dir", str(tmp_path / "from-flag"))
    try:
        assert sorted(n["metadata"]["name"] for n in up.api.list("nodes")) == ["cpu-0", "cpu-1", "cpu-2"]
        assert (tmp_path / "from-flag" / "state.db").exists() and not (tmp_path / "from-file").exists()
        assert up.api.call("GET", "/apis/resource.k8s.io/v1beta1")[0] == 404
        assert up.api.call("GET", "/apis/scheduling.k8s.io/v1alpha2/podgroups")[0] == 404
        log = up.log.read_text()
        assert "serves schedulerName one, two" in log and "without the controllers job-controller" in log
        assert "GangScheduling" not in log
        first, other = pod("first"), pod("other")
        first["spec"]["schedulerName"], other["spec"]["schedulerName"] = "two", "three"
        up.api.create(first, "default")
        up.api.create(other, "default")
        until("a pod of a served name runs", lambda: running(up.api, "first"))
        assert "nodeName" not in up.api.get("pods", "other", "default")["spec"]
    finally:
        assert up.stop() == 0


def test_json_log_format_writes_one_record_per_line(tmp_path: Path) -> None:
    up = cold(tmp_path, "--ephemeral", "-vv", "--log-format", "json", *CPU)
    assert up.stop() == 0
    records = [json.loads(line) for line in up.log.read_text().splitlines() if line.startswith("{")]
    assert records and all({"time", "level", "logger", "message"} <= record.keys() for record in records)


def test_every_namespace_has_ca_config_map_of_the_server(tmp_path: Path) -> None:
    up = cold(tmp_path, "--ephemeral", *CPU)
    config = yaml.safe_load(up.kubeconfig.read_text())["clusters"][0]["cluster"]
    wanted = {"ca.crt": base64.b64decode(config["certificate-authority-data"]).decode()}

    def published(namespace: str) -> bool:
        return (up.api.find("configmaps", "kube-root-ca.crt", namespace) or {}).get("data") == wanted

    try:
        up.api.namespace("young")
        for namespace in ("default", "kube-system", "kube-public", "kube-node-lease", "young"):
            until(f"{namespace} has it", lambda namespace=namespace: published(namespace))  # type: ignore[misc]
        up.api.delete("configmaps", "kube-root-ca.crt", "young")
        until("it is made again", lambda: published("young"))
        up.api.patch("configmaps", "kube-root-ca.crt", {"data": {"ca.crt": "another"}}, "young")
        until("it is mended", lambda: published("young"))
    finally:
        assert up.stop() == 0


def test_commands_find_cluster_by_flag_environment_running_haru_up_and_default(tmp_path: Path) -> None:
    """--kubeconfig, then KUBECONFIG, then the running `haru up` of this user, then ~/.kube/config."""
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    mine, other = cold(home, *CPU, name="mine"), cold(elsewhere, "--ephemeral", *CPU, name="other")
    try:
        mine.api.create(pod("of-mine"), "default")
        (home / ".kube").mkdir()
        (home / ".kube" / "config").write_text(other.kubeconfig.read_text())

        def reached(*flags: str, **env: str) -> str:
            answer = haru(home, "explain", "pod/of-mine", *flags, **env)
            assert (
                answer.returncode == 0
                or answer.stderr == 'haru explain: pods "of-mine" not found in namespace default\n'
            ), answer.stderr
            return "other" if answer.returncode else "mine"

        configs = {"mine": str(mine.kubeconfig), "other": str(other.kubeconfig)}
        assert reached("--kubeconfig", configs["mine"], KUBECONFIG=configs["other"]) == "mine"
        assert reached(KUBECONFIG=configs["other"]) == "other"
        assert (
            reached(KUBECONFIG=os.pathsep.join([str(home / "nowhere"), configs["other"], configs["mine"]])) == "other"
        )
        assert reached() == "mine"
        assert mine.stop() == 0
        assert reached() == "other"
        (home / ".kube" / "config").unlink()
        nothing = haru(home, "explain", "pod/of-mine")
        assert (nothing.returncode, "no cluster found" in nothing.stderr) == (2, True)
        gone = haru(home, "explain", "pod/of-mine", "--kubeconfig", configs["mine"])
        assert gone.returncode == 2 and "cannot be reached" in gone.stderr and gone.stderr.count("\n") == 1
    finally:
        mine.stop()
        assert other.stop() == 0


def test_namespace_and_context_of_kubeconfig_are_used(tmp_path: Path) -> None:
    up = cold(tmp_path, "--ephemeral", *CPU)
    try:
        up.api.namespace("team")
        up.api.create(pod("worker"), "team")
        config = yaml.safe_load(up.kubeconfig.read_text())
        [context] = config["contexts"]
        context["context"]["namespace"] = "team"
        config["contexts"].append({"name": "plain", "context": {**context["context"], "namespace": "default"}})
        file = tmp_path / "team.kubeconfig"
        file.write_text(yaml.safe_dump(config))
        chosen = ("--kubeconfig", str(file))
        assert haru(tmp_path, "explain", "pod/worker", *chosen).returncode == 0
        assert haru(tmp_path, "explain", "pod/worker", *chosen, "--context", "plain").returncode == 2
        assert haru(tmp_path, "explain", "pod/worker", *chosen, "--context", "plain", "-n", "team").returncode == 0
    finally:
        assert up.stop() == 0
