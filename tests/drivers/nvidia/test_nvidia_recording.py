"""Recordings of NVML's answers: written, read back, played; what is wrong in one is told with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from nvidia_bench import NODE, recorded

from haru.cli.main import main
from haru.drivers.nvidia.cards import take_inventory
from haru.drivers.nvidia.recording import RecordingError, dump, load, record
from haru.drivers.nvidia.simulated_nvml import SimulatedNvml

FILE = Path(__file__).parents[2] / "data" / "nvml" / "two-h100-of-the-player.json"
"""Made by the player of the profile dgx-h100, not by a card: its first member says so."""


def test_stored_recording_equals_recording_of_the_player() -> None:
    assert load(FILE).made == "played: simulated dgx-h100"
    assert dump(record(SimulatedNvml(recorded("dgx-h100")), "played: simulated dgx-h100")) == FILE.read_bytes()


@pytest.mark.parametrize("profile", ["dgx-h100-mig-balanced", "a30-mig-balanced", "t4"])
def test_recording_round_trips_through_file(profile: str, tmp_path: Path) -> None:
    nvml = SimulatedNvml(recorded(profile))
    path = tmp_path / "nvml.json"
    path.write_bytes(dump(record(nvml)))
    again = SimulatedNvml(load(path))
    assert take_inventory(again, False).pool == take_inventory(nvml, False).pool
    assert dump(record(again)) == path.read_bytes()


def test_record_flag_writes_recording(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "again.json"
    assert main(["driver", "nvidia", "--play", str(FILE), "--record", str(path)]) == 0
    assert capsys.readouterr().out == f"2 cards are written down in {path}\n"
    content = json.loads(path.read_bytes())
    assert content.pop("made") == "played: played: simulated dgx-h100"
    assert content == {k: v for k, v in json.loads(FILE.read_bytes()).items() if k != "made"}


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda c: c.update(form="x"), "no recording of the form haru.dev/nvml/v1"),
        (lambda c: c.update(cards={}), ""),
        (lambda c: c.update(cards={"a": 1}), "cards: not a list"),
        (lambda c: c["system"].pop("driver_version"), r"system.driver_version: Required value"),
        (lambda c: c["cards"][1]["facts"].update(minor="1"), r'cards\[1\].facts.minor: "1": must be of type int'),
        (lambda c: c["cards"][0]["facts"].update(color="red"), r"cards\[0\].facts.color: unknown"),
        (lambda c: c["cards"][0]["profiles"].append(7), r"cards\[0\].profiles\[7\]: not an object"),
        (lambda c: c["cards"].append(7), r"cards\[2\]: not an object"),
    ],
)
def test_invalid_recording_is_refused_with_message(change: Callable[[Any], Any], told: str, tmp_path: Path) -> None:
    content = json.loads(FILE.read_bytes())
    change(content)
    path = tmp_path / "nvml.json"
    path.write_text(json.dumps(content))
    if not told:
        assert load(path).cards == []
        return
    with pytest.raises(RecordingError, match=told):
        load(path)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--play", "/no/such.json"], "/no/such.json: cannot be read"),
        (["--play", "FILE", "--driver-gates", "X=true"], "no gate has that name"),
        (["--play", "FILE", "--ignore-xids", "a"], '--ignore-xids: "a": write numbers'),
        (["--play", "FILE", "--usage-seconds", "-1"], "--usage-seconds: -1: write 0 or more"),
    ],
)
def test_invalid_nvidia_driver_flags_exit_with_2(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [str(FILE) if argument == "FILE" else argument for argument in arguments]
    assert main(["driver", "nvidia", "--node", NODE, *given]) == 2
    assert told in capsys.readouterr().err
