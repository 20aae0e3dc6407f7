"""Ctrl-C at any moment of a start: the command ends quietly, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from haru_process import environment

# What the installed command does, from its first step on: before, the interpreter has the signal to itself.
ENTRY = (
    "from haru.__main__ import end_at_once, main; end_at_once(); print('begun', flush=True); raise SystemExit(main())"
)
MOMENTS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5)
DELAYS = MOMENTS if os.environ.get("HARU_NIGHTLY") == "1" else MOMENTS[::2]
"""Seconds after the beginning: all moments at night, every second one by day."""
QUIET_ENDS = (0, 130)
REFUSED = (2, -signal.SIGINT)
"""A refusal, or the signal in the last moment of a process that has refused."""


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def kubeconfig(home: Path, server: str) -> Path:
    file = home / "kubeconfig"
    cluster, context = f"{{server: 'http://{server}'}}", "{cluster: c, user: u}"
    file.write_text(
        f"apiVersion: v1\nkind: Config\ncurrent-context: x\nclusters: [{{name: c, cluster: {cluster}}}]\n"
        f"contexts: [{{name: x, context: {context}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    )
    return file


def interrupted(home: Path, arguments: list[str], delay: float) -> tuple[int, str]:
    """The exit status and the messages of a command that is interrupted so long after it began."""
    process = subprocess.Popen(
        [sys.executable, "-c", ENTRY, *arguments],
        env=environment(home, TMPDIR=str(home)),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    time.sleep(delay)  # what is measured
    process.send_signal(signal.SIGINT)
    try:
        _, messages = process.communicate(timeout=60)
    finally:
        process.kill()
    return process.returncode, messages


def check_all(home: Path, arguments: list[str], delays: tuple[float, ...]) -> None:
    loud = []
    # The node's runtime is asked first, and not for long: a command that has refused by then has ended, too.
    for delay in delays:
        status, messages = interrupted(home, arguments, delay)
        # What a server that says nothing is told of (a time that ran out) may be said, a traceback may not.
        quiet = (*QUIET_ENDS, *REFUSED) if arguments[0] == "node" else QUIET_ENDS
        if status not in quiet or "Traceback" in messages or "Exception ignored" in messages:
            loud.append((delay, status, messages[-600:]))
    assert not loud, "\n".join(f"after {delay} s: status {status}\n{text}" for delay, status, text in loud)


def test_haru_up_interrupted_at_any_time_ends_quietly(tmp_path: Path) -> None:
    arguments = ["up", "--ephemeral", "--profile", "cpu:1", "--listen", "127.0.0.1:0"]
    check_all(tmp_path, arguments, DELAYS)
    left = [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("haru-")]
    assert not left, "an ephemeral directory stays"


def test_haru_up_restarts_on_directory_of_an_interrupted_start(tmp_path: Path) -> None:
    arguments = ["up", "--data-dir", str(tmp_path / "data"), "--profile", "cpu:1", "--listen", "127.0.0.1:0"]
    check_all(tmp_path, arguments, DELAYS[::3])


@pytest.mark.parametrize("command", ["scheduler", "controllers", "dashboard", "apiserver", "signer", "driver", "node"])
def test_long_running_command_interrupted_at_any_time_ends_quietly(tmp_path: Path, silent: str, command: str) -> None:
    config = ["--kubeconfig", str(kubeconfig(tmp_path, silent))]
    (tmp_path / "tokens").write_text("t,u,1\n")
    key = tmp_path / "key"
    subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key], check=True)
    arguments = {
        "scheduler": (*config, "--health-port", "0"),
        "controllers": (*config, "--health-port", "0", "--controllers", "*"),
        "dashboard": (*config, "--listen", "127.0.0.1:0"),
        "apiserver": (
            *("--etcd-servers", f"http://{silent}", "--token-auth-file", "tokens", "--secure-port", "0"),
            *("--cert-dir", "certs", "--service-account-signing-key-file", str(key)),
        ),
        "signer": ("serve", "--socket", str(tmp_path / "s.sock"), "--key-dir", str(tmp_path / "keys"), "--generate"),
        "driver": (
            *("simulated", *config, "--node", "n", "--profile", "dgx-h100"),
            *("--kubelet-dir", str(tmp_path), "--cdi-dir", str(tmp_path)),
        ),
        "node": (
            *(*config, "--hostname-override", "n", "--no-cgroups-per-qos", "--no-fail-cgroup-v1"),
            *("--root-dir", str(tmp_path / "root"), "--container-runtime-endpoint", str(tmp_path / "cri.sock")),
        ),
    }
    check_all(tmp_path, [command, *arguments[command]], DELAYS[1::3])
