"""A warm process is the command: its output, its messages, its folder, its environment and how it ends."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from haru_process import Process, environment
from warm_haru import Warm, warm_command


def said(home: Path, *arguments: str, **env: str) -> tuple[int, str, str]:
    """The exit status of a warm command, its output and its messages."""
    with (home / "messages").open("w+") as messages:
        process = Warm(arguments, environment(home, **env), home, messages)
        with process.stdout:
            output = process.stdout.read()
        status = process.wait(60)
        messages.seek(0)
        return status, output, messages.read()


@pytest.mark.parametrize(
    "arguments", [("version",), ("scheduler", "--no-such-flag"), ("lint", "-f", "pod.yaml"), ("top", "--context", "x")]
)
def test_warm_command_says_what_the_cold_one_says(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "pod.yaml").write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}}")
    process = Process(tmp_path, arguments, "cold")
    assert process.process.stdout is not None
    output = process.process.stdout.read()
    assert said(tmp_path, *arguments) == (process.stop(), output, process.log.read_text())


def test_command_of_a_script_has_its_streams_folder_and_status(tmp_path: Path) -> None:
    """As the pages of how-tos run it: in pipes, with manifests from standard input, and in the background."""
    inherited = warm_command(tmp_path / "haru")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "pod.yaml").write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}}")
    script = """
        ../haru version | tr a-z A-Z
        ../haru lint -f - < pod.yaml >lint.txt 2>&1; echo $?
        ../haru lint -f pod.yaml >file.txt 2>&1; echo $?
        ../haru lint -f absent.yaml 2>/dev/null; echo $?
        ../haru up --ephemeral --listen 127.0.0.1:0 >ready.txt &
        until [ -s ready.txt ]; do sleep 0.05; done
        kill %1; wait %1; echo $?
    """
    ended = subprocess.run(
        ["bash", "-mc", script],
        env=environment(tmp_path),
        cwd=tmp_path / "work",
        pass_fds=[inherited],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    version, *statuses = ended.stdout.splitlines()
    assert version.endswith("(KUBERNETES V1.36)") and statuses == ["1", "1", "2", "0"], ended


def test_signal_ends_a_warm_process_and_is_told(tmp_path: Path) -> None:
    process = Process(tmp_path, ["up", "--ephemeral", "--listen", "127.0.0.1:0"], "up", warm=True)
    assert process.process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.process.wait(0.01)
    assert process.stop(signal.SIGKILL) == -signal.SIGKILL
    assert process.process.poll() == -signal.SIGKILL
    assert process.stop() == -signal.SIGKILL  # who has ended gets no signal
