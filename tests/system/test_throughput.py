"""`benchmarks.throughput`: any scheduler on any API server, by turns, with its ratios and bars."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks.control_planes import Scheduler
from benchmarks.load import Load, Measured
from benchmarks.processes import Used
from benchmarks.throughput import SUITE, _bars
from benchmarks.throughput_report import Run, compare, ratios, table

LOAD = Load("claims-200", "claims", 200, 600)
KUBECONFIG = Path("/tmp/kubeconfig")


def a_run(scheduler: str, number: int, seconds: float, p50: float = 1.0, p99: float = 2.0) -> Run:
    used = {"scheduler": Used(1.2, 80.0)}
    return Run(LOAD, scheduler, number, Measured(LOAD.name, 600, 600, seconds, 1.0, p50, p99, used))


def test_scheduler_names_come_from_name_or_program() -> None:
    assert Scheduler.parse("new=/a/bin/haru").name == "new"
    assert Scheduler.parse("/a/bin/kube-scheduler --config=x.yaml").name == "kube-scheduler"
    assert Scheduler.parse("haru scheduler --kubeconfig={kubeconfig}").name == "haru"


def test_program_alone_gets_comparable_flags() -> None:
    kube = Scheduler.parse("/a/bin/kube-scheduler").arguments(KUBECONFIG)
    assert kube[:2] == ["/a/bin/kube-scheduler", f"--kubeconfig={KUBECONFIG}"]
    haru = Scheduler.parse("old=/a/bin/haru").arguments(KUBECONFIG)
    assert haru[:3] == ["/a/bin/haru", "scheduler", f"--kubeconfig={KUBECONFIG}"]
    gates = [word for word in kube if word.startswith("--feature-gates")]
    assert gates and gates == [word for word in haru if word.startswith("--feature-gates")]


def test_command_keeps_its_flags_and_gets_the_kubeconfig() -> None:
    own = Scheduler.parse("one=prog --kubeconfig {kubeconfig} -v").arguments(KUBECONFIG)
    assert own == ["prog", "--kubeconfig", str(KUBECONFIG), "-v"]
    ours = Scheduler.parse("haru scheduler --kubeconfig={kubeconfig}").arguments(KUBECONFIG)
    assert ours == [sys.executable, "-m", "haru", "scheduler", f"--kubeconfig={KUBECONFIG}"]


def test_ratio_is_median_of_rounds_and_not_of_schedulers() -> None:
    # The machine is twice as slow in the second round, for both.
    runs = [a_run("kube-scheduler", 0, 6.0), a_run("haru", 0, 2.0)]
    runs += [a_run("haru", 1, 4.0, p50=1.1), a_run("kube-scheduler", 1, 12.0)]
    (one,) = compare(runs, "kube-scheduler")
    assert (one.scheduler, one.rate, one.p99) == ("haru", 3.0, 1.0)
    assert one.p50 == pytest.approx(1.05)
    assert one.missed(2.5) == ["p50"]
    assert one.missed(4.0) == ["pods/s", "p50"]
    assert "≥ 2.5" in ratios([one], {LOAD: 2.5}, "kube-scheduler")


def test_bars_hold_for_loads_of_the_size_of_the_suite_alone() -> None:
    small = replace(LOAD, nodes=20, pods=60)
    runs = [replace(a_run("haru", 0, 2.0), load=load) for load in (LOAD, small)]
    assert LOAD in SUITE
    assert _bars(runs) == {LOAD: 2.5}


def test_table_leaves_cells_of_unmeasured_processes_empty() -> None:
    served = Measured(LOAD.name, 600, 600, 3.0, 1.0, 1.0, 2.0, {"apiserver": Used(2.4, 100.0)})
    text = table([a_run("haru", 0, 2.0), Run(LOAD, "other", 0, served)], in_markdown=True)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    by_name = {row[1]: dict(zip(rows[0], row, strict=True)) for row in rows[2:]}
    assert by_name["haru"]["scheduler ms/pod"] == "2.00"
    assert by_name["haru"]["apiserver ms/pod"] == ""
    assert by_name["other"]["apiserver ms/pod"] == "4.00"


def test_table_leaves_out_columns_by_word() -> None:
    head = table([a_run("haru", 0, 2.0)], in_markdown=True, without=("cores", "p99")).splitlines()[0]
    shown = [cell.strip() for cell in head.split("|")[1:-1]]
    assert shown == ["load", "scheduler", "bound", "pods/s", "p50 s", "scheduler ms/pod", "scheduler MiB"]


@pytest.mark.parametrize("scenario", ["plain", "gangs"])
def test_scheduler_binds_a_load_on_a_server_of_its_own(scenario: str) -> None:
    command = [sys.executable, "-m", "benchmarks.throughput", scenario, "-o", "json", "--settle", "0"]
    # Enough pods that each process takes several of the ticks of 10 ms that its processor time is counted in.
    command += ["--nodes", "14", "--pods", "96", "--size", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    (one,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (one["server"], one["scheduler"], one["bound"]) == ("haru up", "haru", 96)
    assert one["podsPerSecond"] > 0
    assert one["p50Seconds"] <= one["p99Seconds"] <= one["seconds"]
    assert all(one["processes"][name]["cpuSeconds"] > 0 for name in ("scheduler", "apiserver", "client"))
    assert all(one["processes"][name]["highWaterMiB"] > 20 for name in ("scheduler", "apiserver", "client"))


def test_scheduler_that_ends_is_reported_with_its_last_words() -> None:
    command = [sys.executable, "-m", "benchmarks.throughput", "plain", "--nodes", "1", "--pods", "8"]
    command += ["--scheduler", "broken=sh -c 'echo no such gate; exit 3'"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2])
    assert done.returncode != 0
    assert "broken ended with status 3" in done.stderr
    assert "no such gate" in done.stderr
