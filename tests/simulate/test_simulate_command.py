"""`haru simulate` from files: a trace, manifests, what is drawn, and what is refused."""

from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import pytest

from haru.cli.main import main
from haru.cli.progress import Progress

NODES = "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{i},16000,65536,2,A\n" for i in range(4))
PODS = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + "".join(
    f"p{i},{2000 + 1000 * (i % 4)},4096,1,{(500, 1000, 810, 250)[i % 4]},\n" for i in range(12)
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "openb_node_list_gpu_node.csv").write_text(NODES)
    with gzip.open(tmp_path / "openb_pod_list_default.csv.gz", "wt") as file:
        file.write(PODS)
    (tmp_path / "openb_pod_list_gpuspec33.csv").write_text(PODS.replace("1000,\n", "1000,A\n"))
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["simulate", *map(str, arguments)]) == 0
    return capsys.readouterr().out


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    assert main(["simulate", *map(str, arguments)]) == 2
    return capsys.readouterr().err.strip()


def test_table_compares_policies(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head, *rows = answer(capsys, "openb", "--data", data, "--policy", "fgd,haru", "--seeds", "1-3").splitlines()
    assert head.split() == ["WORKLOAD", "POLICY", "SEEDS", "AT", "100", "%", "AT", "130", "%", "PODS/S"]
    assert [row.split()[:3] for row in rows] == [["default", "fgd", "3"], ["default", "haru", "3"]]


def test_json_has_deterministic_row_per_run(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("openb", "--data", data, "--workload", "default,gpuspec33", "--seed", "7", "-o", "json")
    told, again = (json.loads(answer(capsys, *asked)) for _ in range(2))
    assert (told["apiVersion"], told["kind"]) == ("haru.dev/v1alpha1", "Simulation")
    rows = told["rows"]
    runs = [(row["workload"], row["policy"], row["seed"]) for row in rows]
    policies = ("first-fit", "fgd", "haru")
    assert runs == [(name, policy, 7) for name in ("default", "gpuspec33") for policy in policies]
    assert all(0 < row["gpusAllocatedPercentAt"]["100"] <= row["gpusAllocatedPercentAt"]["130"] <= 100 for row in rows)
    assert all(row["placementsPerSecond"] > 0 for row in rows)
    for row in [*rows, *again["rows"]]:
        del row["placementsPerSecond"]
    assert rows == again["rows"]


def test_html_page_has_table_and_curve_per_policy(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = answer(capsys, "openb", "--data", data, "--html", data / "page.html")
    page = (data / "page.html").read_text()
    assert page.count("<polyline") == 3 and page.count("<svg") == 1
    assert table.splitlines()[-1].split()[1] in page


def test_plot_without_matplotlib_names_the_extra(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = data / "curves.png"
    status = main(["simulate", "openb", "--data", str(data), "--plot", str(picture)])
    told = capsys.readouterr().err
    if status == 0:
        assert picture.read_bytes().startswith(b"\x89PNG")
    else:
        assert status == 2 and "pip install 'haru[plots]'" in told


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["openb"], "--data: name the directory"),
        (["openb", "--data", "DATA", "--workload", "gpuspec32"], "did you mean the workload gpuspec33?"),
        (["openb", "--data", "DATA", "--policy", "worst-fit"], "--policy: worst-fit: there are first-fit,"),
        (["openb", "--data", "DATA", "--seeds", "9-3"], "--seeds: 9-3: write numbers and ranges"),
        (["openb", "--data", "DATA", "-f", "x.yaml"], "a trace and -f both name what is replayed"),
        (["openb", "--data", "DATA", "--arrivals", "x"], "--arrivals: says when pods of manifests come"),
        ([], "say what is replayed: openb --data DIR, or -f FILE"),
        (["-f", "MANIFESTS", "--policy", "fgd"], "--policy: fgd: with manifests there are default,"),
        (["-f", "MANIFESTS", "--data", "DATA"], "--data and --workload belong to a trace"),
        (["-f", "MANIFESTS", "--arrivals", "ARRIVALS"], "line 1: Invalid value"),
    ],
)
def test_invalid_replay_input_is_reported(
    data: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    (data / "work.yaml").write_text(MANIFESTS)
    (data / "arrivals.csv").write_text("p1,soon\n")
    places = {"DATA": data, "MANIFESTS": data / "work.yaml", "ARRIVALS": data / "arrivals.csv"}
    assert message in refusal(capsys, *[places.get(argument, argument) for argument in arguments])


def test_invalid_table_is_reported_with_file_line_and_column(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "openb_pod_list_broken.csv").write_text("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,2000\n")
    told = refusal(capsys, "openb", "--data", data, "--workload", "broken")
    assert told.endswith(
        "openb_pod_list_broken.csv: line 2: gpu_milli: 2000: write 1 to 1000, and 1000 with several cards"
    )


MANIFESTS = """\
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "8", memory: 32Gi, pods: "110"}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1-gpu}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}]
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: "device.driver == 'gpu.example.com'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
"""
POD = """\
---
apiVersion: v1
kind: Pod
metadata: {name: %s, annotations: {haru.dev/arrival-time: "%s"}}
spec:
  activeDeadlineSeconds: 60
  restartPolicy: Never
  priority: %d
  resourceClaims: [{name: g, resourceClaimTemplateName: one}]
  containers: [{name: c, image: x, resources: {requests: {cpu: "1"}, claims: [{name: g}]}}]
"""


def replayed(
    data: Path, capsys: pytest.CaptureFixture[str], pods: str, *more: str | Path
) -> dict[str, tuple[float, ...]]:
    (data / "work.yaml").write_text(MANIFESTS + pods)
    told = json.loads(answer(capsys, "-f", data / "work.yaml", "--policy", "haru", "-o", "json", *more))
    assert told["kind"] == "Replay"
    stories = told["rows"][0]["stories"]
    return {s["pod"]: (s["arrivedSeconds"], s["startedSeconds"], s["endedSeconds"], s["evictions"]) for s in stories}


def test_pods_arrive_wait_run_and_end_at_expected_times(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = "".join(POD % (f"p{number}", f"{number * 10}s", 0) for number in (1, 2, 3, 4))
    assert replayed(data, capsys, pods) == {
        "default/p1": (10, 10, 70, 0),
        "default/p2": (20, 20, 80, 0),
        "default/p3": (30, 70, 130, 0),
        "default/p4": (40, 80, 140, 0),
    }


def test_arrivals_file_sets_arrival_times(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "arrivals.csv").write_text("# who, when\np1,2m\ndefault/p2,5\n")
    pods = POD % ("p1", "1s", 0) + POD % ("p2", "1s", 0)
    told = replayed(data, capsys, pods, "--arrivals", data / "arrivals.csv")
    assert told == {"default/p1": (120, 120, 180, 0), "default/p2": (5, 5, 65, 0)}


def test_higher_priority_pod_preempts_lower(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pods = POD % ("low1", "1s", 0) + POD % ("low2", "2s", 0) + POD % ("high", "10s", 100)
    told = replayed(data, capsys, pods)
    assert told["default/high"][1] == 10
    assert sorted(story[3] for story in told.values()) == [0, 0, 1]


def test_invalid_arrival_time_is_reported(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (data / "work.yaml").write_text(MANIFESTS + POD % ("p1", "tomorrow", 0))
    told = refusal(capsys, "-f", data / "work.yaml")
    assert "Pod default/p1: metadata.annotations[haru.dev/arrival-time]" in told and "write a duration" in told


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_bar_is_drawn_only_on_a_terminal() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        with Progress(2, stream) as progress:
            progress.begin("default haru 42")
            progress.done()
            progress.begin("default haru 43")
    assert " 50% default haru 43" in terminal.getvalue() and terminal.getvalue().endswith("\r\x1b[K")
    assert pipe.getvalue() == ""
