"""`haru top` on a real `haru up`: this moment, the history, its metrics; from a running loop; after kill -9."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from system_cluster import pod, request, template

import haru
from haru.cli.main import main
from haru_process import Up, component, devices_of, health, phase, until
from haru_process import haru as haru_command

Obj = dict[str, Any]
UTILIZATION = "simulated.haru.dev/utilization"


def start(home: Path, *more: str) -> Up:
    flags = ("--profile", "dgx-h100:1", "--data-dir", str(home / "data"), "--no-dashboard")
    return Up(home, *flags, "--usage-metrics", "127.0.0.1:0", *more)


def fill(up: Up) -> None:
    """One card idles, three are held by who does not say, and somebody waits for six of the other four."""
    for obj in (
        template("one", request()),
        template("three", request(count=3)),
        template("six", request(count=6)),
        pod("idle", template="one", annotations={UTILIZATION: "1"}),
        pod("silent", template="three"),
    ):
        up.api.create(obj, "default")
    until("both run", lambda: [phase(p) for p in up.api.list("pods", "default")] == ["Running"] * 2)
    up.api.create(pod("large", template="six"), "default")


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    running = start(tmp_path_factory.mktemp("top"))
    fill(running)
    yield running
    assert running.stop() == 0


COUNTED = "8 devices: 1 free, 3 reserved, 4 held (1 idle, 0 in use, 3 unmeasured), 0 unavailable"


def asked(up: Up, *arguments: str) -> Obj:
    answer = up.haru("top", *arguments, "-o", "json")
    assert (answer.returncode, answer.stderr) == (0, ""), answer.stderr
    told: Obj = json.loads(answer.stdout)
    assert (told["apiVersion"], told["kind"]) == ("haru.dev/v1alpha2", "DeviceUsage")
    return told


def settled(up: Up) -> Obj:
    states = {"Idle": 1, "Held": 3, "Fragmented": 4}

    return until("the scheduler has refused", lambda: (t := asked(up))["states"] == states and t)


def reserved(up: Up) -> Obj:
    """Once the pod that waits is the head of the queue: three of the free cards are kept for it."""
    settled(up)
    return until("cards are reserved", lambda: (t := asked(up))["counts"]["reserved"] == 3 and t)


def test_top_shows_current_state_by_owner(up: Up) -> None:
    told = reserved(up)
    assert [(row["owner"], row["held"], row["missed"]) for row in told["owners"]] == [
        ("pod/silent", 3, 0),
        ("pod/idle", 1, 0),
        ("pod/large", 0, 4),
    ]
    assert len(told["devices"]) == 8
    # Simulated nodes have no kubelet: of their pods no pressure is known, and nobody is asked.
    assert [set(pod) for pod in told["pods"]] == [{"namespace", "name", "owner", "node"}] * 2
    assert told["pressureErrors"] == []
    text = up.haru("top", "--owner", "large", "-n", "default").stdout.splitlines()
    assert text[:2] == [COUNTED, "not used while compatible work waits: 4 Fragmented"]
    cells = ["default", "pod/large", "0", "0", "0", "0", "-", "-", "4", "Fragmented", "4"]
    assert text[3].split() == cells and len(text) == 4
    old = up.haru("top", "-o", "json", "--output-version", "haru.dev/v1alpha1").stdout
    assert json.loads(old)["apiVersion"] == "haru.dev/v1alpha1" and "counts" not in json.loads(old)
    assert told["counts"] == json.loads(up.haru("explain", "node/dgx-h100-0", "-o", "json").stdout)["cards"]


@pytest.mark.nightly
def test_top_since_shows_recorded_history(up: Up) -> None:
    settled(up)
    told = until("it is written down", lambda: (t := asked(up, "--since", "1h"))["states"].get("Fragmented") and t)
    assert told["unit"] == "device-hours" and told["windowSeconds"] == 3600
    assert 0 < told["observedSeconds"] < 3600
    assert told["total"] == pytest.approx(8 * told["observedSeconds"] / 3600, rel=1e-3)
    assert {row["owner"] for row in told["owners"]} == {"pod/silent", "pod/idle", "pod/large"}
    assert asked(up, "--since", "1h", "--owner", "pod/idle")["owners"][0]["states"].keys() == {"Idle"}
    file = up.home / "data" / "usage.db"
    assert asked(up, "--since", "7d", "--history", str(file))["owners"]
    assert "of which" in up.haru("top", "--since", "1h").stdout


def test_metrics_count_devices_and_device_seconds_by_state(up: Up) -> None:
    reserved(up)
    found = re.search(r"usage metrics: (\S+)", up.log.read_text())
    assert found is not None

    def text() -> str:
        with urllib.request.urlopen(found[1]) as answer:
            return str(answer.read().decode())

    def value(metric: str, state: str, namespace: str = "default") -> float:
        labels = f'{{driver="gpu.nvidia.com",namespace="{namespace}",state="{state}"}}'
        line = re.search(re.escape(metric + labels) + r" (\S+)", text())
        return float(line[1]) if line else 0.0

    until("it is counted", lambda: value("haru_device_seconds_total", "Fragmented") > 0)
    assert value("haru_devices", "Idle") == 1 and value("haru_devices", "Held") == 3
    wanted = {"free": 1, "reserved": 3, "idle": 1, "inUse": 0, "unmeasured": 3, "unavailable": 0}
    line = re.compile(r'haru_cards{state="(\w+)"} (\S+)')
    until("the cards are counted", lambda: {word: float(n) for word, n in line.findall(text())} == wanted)
    assert "# TYPE haru_device_seconds_total counter" in text() and "# TYPE haru_devices gauge" in text()


def test_snapshot_fetch_works_in_a_running_event_loop(up: Up) -> None:
    settled(up)

    async def notebook() -> haru.Snapshot:
        return haru.Snapshot.fetch(up.kubeconfig)

    snapshot = asyncio.run(notebook())
    assert {row.owner: row.held for row in snapshot.usage().rows}["pod/silent"] == 3
    assert snapshot.explain("pod/large").verdict == "FitsLater"
    assert snapshot.refused == () and snapshot.counts()["Node"] == 1
    kept = haru.Snapshot.kept_in(up.home / "data")
    assert kept.counts() == snapshot.counts()
    with pytest.raises(haru.ClusterError, match="contexts has no entry"):
        haru.Snapshot.fetch(up.kubeconfig, "nowhere")


def test_top_reads_manifests(up: Up, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settled(up)
    haru.Snapshot.fetch(up.kubeconfig).write(tmp_path / "c.json")
    assert main(["top", "-f", str(tmp_path / "c.json"), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["states"] == {"Idle": 1, "Held": 3, "Fragmented": 4}


def test_utilization_in_claim_status_changes_state(up: Up) -> None:
    """In the status of the claim, as the API takes it from drivers."""
    settled(up)
    [held] = [c for c in up.api.list("resourceclaims", "default") if len(devices_of(c)) == 3]
    name, results = held["metadata"]["name"], held["status"]["allocation"]["devices"]["results"]

    def report(*percents: int) -> None:
        said = [
            {k: r[k] for k in ("driver", "pool", "device")} | {"data": {"haru.dev/utilization-percent": percent}}
            for r, percent in zip(results, percents, strict=False)
        ]
        up.api.patch("resourceclaims", name, {"status": {"devices": said}}, "default", sub="status")

    report(97, 3)
    assert asked(up)["states"] == {"Busy": 1, "Idle": 2, "Held": 1, "Fragmented": 4}
    report()
    assert settled(up)


def test_separate_scheduler_keeps_usage_history_and_metrics(up: Up, tmp_path: Path) -> None:
    """`haru scheduler` keeps a history too, and tells the metrics with its own."""
    process, port = component(tmp_path, "scheduler", up.kubeconfig, "--usage-history", str(tmp_path / "usage"))
    try:
        text = until(
            "it counts", lambda: (t := health(port, "/metrics")[1]) and "haru_device_seconds_total{" in t and t
        )
        assert 'haru_devices{driver="gpu.nvidia.com",namespace="default",state="Idle"} 1.0' in text
        assert "scheduler_pending_pods" in text
    finally:
        assert process.stop() == 0
    told = asked(up, "--since", "1h", "--history", str(tmp_path / "usage"))
    assert told["states"].keys() == {"Idle", "Held", "Fragmented"} and told["total"] > 0


def test_watch_option_prints_table_repeatedly(
    up: Up, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settled(up)
    shown: list[str] = []

    def sleep(seconds: float) -> None:
        shown.append(capsys.readouterr().out)
        if len(shown) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("haru.cli.top.time.sleep", sleep)
    assert main(["top", "-w", "--by", "namespace", "--kubeconfig", str(up.kubeconfig)]) == 130
    assert [re.findall("^8 devices: .* 4 held ", text) != [] for text in shown] == [True] * 2
    assert shown[0].splitlines()[3].split()[:3] == ["default", "4", "0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--since", "soon"], '--since: Invalid value: "soon": write a duration such as 30m, 24h or 7d'),
        (["--since", "1h", "-f", "x.yaml"], "--since needs a history, which manifests do not have"),
        (["--history", "x"], "--history goes with --since"),
        (["--since", "1h", "--history", "nowhere"], "nowhere: there is no history: haru up begins one"),
        (["--since", "1h", "--kubeconfig", "other.kubeconfig"], "this is no haru up of this machine"),
        (["-w", "-o", "json"], "-w shows the text of a running cluster"),
    ],
)
def test_invalid_arguments_exit_with_2(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.kubeconfig").write_text(
        "{current-context: a, contexts: [{name: a, context: {cluster: a}}],"
        " clusters: [{name: a, cluster: {server: 'https://example.com'}}]}"
    )
    try:
        status = main(["top", *arguments])
    except SystemExit as ended:  # argparse's own way out
        status = int(str(ended.code))
    assert status == 2 and message in capsys.readouterr().err


@pytest.mark.nightly
def test_sigkill_loses_at_most_a_few_seconds_of_history(tmp_path: Path) -> None:
    first = start(tmp_path, "--no-scheduler")
    try:
        until("a history is begun, soon after the start", (tmp_path / "data" / "usage.db").is_file)
        until("it is counted", lambda: asked(first, "--since", "1h")["total"] > 0)
    finally:
        first.stop(signal.SIGKILL)
    before = json.loads(haru_command(tmp_path, "top", "--since", "1h", "--history", "data", "-o", "json").stdout)
    assert before["states"].keys() == {"Free"} and before["total"] > 0
    second = start(tmp_path, "--no-scheduler")
    try:
        more = until(
            "it goes on",
            lambda: (t := asked(second, "--since", "1h"))["observedSeconds"] > before["observedSeconds"] and t,
        )
    finally:
        assert second.stop() == 0
    assert more["total"] == pytest.approx(8 * more["observedSeconds"] / 3600, rel=1e-3)
