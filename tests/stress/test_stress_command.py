"""`haru stress` and `haru fleet` as commands: what needs no cluster, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from haru.cli.main import main
from haru.cli.stress_display import drawn, plain
from haru.stress.run import Progress


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    status = main(arguments)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_plan_is_printed_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("stress", "--plan", "--seed", "3", "--units", "4")
    status, out, _ = run(capsys, *flags)
    assert status == 0 and out.startswith("seed 3: 4 works, 13 pods, within 60 s\n")
    status, out, _ = run(capsys, *flags, "-o", "json")
    plan = json.loads(out)
    assert plan["kind"] == "StressPlan" and plan["units"][0]["name"] == "claim-0"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("stress", "--plan", "--units", "0"), "--units: Invalid value: 0: write at least 1"),
        (("stress", "--plan", "--kinds", "weather"), '--kinds: Invalid value: "weather"'),
        (("stress", "--faults", "etcd"), "--faults: Forbidden without --local"),
        (("stress", "--local", "--faults", "flood"), '--faults: Invalid value: "flood"'),
        (("stress", "--local", "--runs", "0"), "--runs: Invalid value: 0"),
        (("fleet",), "--profile: Required value"),
        (("fleet", "--profile", "no-such:2"), 'no profile is named "no-such"'),
        (("fleet", "--profile", "cpu:2", "--taint", "x"), '--taint: Invalid value: "x"'),
        (("fleet", "--profile", "cpu:2", "--node-label", "x"), '--node-label: Invalid value: "x"'),
    ],
)
def test_bad_usage_is_refused_by_name(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], told: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, "") and told in err and err.count("\n") == 1


def test_file_that_is_no_report_is_not_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("{}")
    status, _, err = run(capsys, "stress", "--compare", str(file), str(file))
    assert status == 2 and "this is no report of haru stress" in err


def test_progress_in_a_pipe_is_one_line() -> None:
    progress = Progress(12.0, 5, 10, 2, 7, 6, 3, 4, 1, 2)
    assert plain(progress) == (
        "12 s: 5 of 10 works created, 2 wait, 3 deleted; 6 of 7 bound pods run; 4 devices held; "
        "1 broken promises; 2 faults"
    )
    assert len(drawn(progress)) == 4 and "30%" in drawn(progress)[0]
