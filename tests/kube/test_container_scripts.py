"""The trivial commands that simulated containers run."""

from __future__ import annotations

from typing import Any

import pytest

from haru.kube.container_scripts import Script, script_of

ENV = [{"name": "X", "value": "v"}, {"name": "SECRET", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]


def script(*command: str, **container: Any) -> Script | None:
    return script_of({"metadata": {"name": "p"}}, {"name": "c", "command": list(command), "env": ENV, **container})


@pytest.mark.parametrize(
    ("command", "after", "code"),
    [
        (["true"], 0, 0),
        (["/bin/false"], 0, 1),
        (["sleep", "5"], 5, 0),
        (["sleep", "1.5m", "2"], 92, 0),
        (["sleep", "soon"], 0, 1),
        (["sh", "-c", "exit 3"], 0, 3),
        (["sh", "-c", "exit 300"], 0, 44),
        (["sh", "-c", "false; exit"], 0, 1),
        (["sh", "-c", "false; true"], 0, 0),
        (["bash", "-ec", "sleep 2; false; sleep 9"], 2, 1),
        (["sh", "-e", "-c", "false || true; sleep 3"], 3, 0),
        (["sh", "-c", "set -e\nfalse\nsleep 9"], 0, 1),
        (["sh", "-c", "true && sleep 4 || sleep 8"], 4, 0),
        (["sh", "-c", "exec sleep 3; exit 9"], 3, 0),
        (["sh", "-c", "# exit 1\nsleep 1 # exit 2\nexit 3"], 1, 3),
        (["sh", "-c", "echo 'never closed"], 0, 2),
        (["sh", "-c", "exit $(X)5"], 0, 2),
    ],
)
def test_understood_command_ends_after_time_with_code(command: list[str], after: float, code: int) -> None:
    found = script(*command)
    assert found is not None and (found.ends_after, found.exit_code) == (after, code)


@pytest.mark.parametrize(
    "command",
    [
        ["python", "train.py"],
        ["sleep", "infinity"],
        ["sh", "-c", "while true; do sleep 1; done"],
        ["sh", "-c", "ls | wc; exit 1"],
        ["sh", "-c", "exit `date`"],
        ["sh", "-c", "sleep 1 & exit 1"],
        ["sh", "run.sh"],
        ["sh"],
    ],
)
def test_other_command_runs_on(command: list[str]) -> None:
    found = script(*command)
    assert found is None or found.ends_after is None


def test_echo_prints_expanded_words_at_their_times() -> None:
    found = script("sh", "-c", 'echo "start  $X" ${HOSTNAME} "a; b"; sleep 2; false; echo $? >&2; python x; echo never')
    assert found == Script(((0.0, "start  v p a; b"), (2.0, "1")))
    assert script("echo", "$(X)", "$(Y)") == Script(((0.0, "v $(Y)"),), 0.0)


def test_memory_above_the_limit_is_an_oom_kill() -> None:
    args = ["--vm", "2", "--vm-bytes", "250M", "--vm-hang", "1"]
    limits = {"limits": {"memory": "300Mi"}}
    killed = script("stress", args=args, resources=limits)
    assert killed is not None and (killed.exit_code, killed.reason) == (137, "OOMKilled")
    assert script("stress", args=args, resources={"limits": {"memory": "1Gi"}}) is None
    assert script("stress", args=args) is None


def test_builtin_of_a_shell_is_no_program() -> None:
    found = script("exit", "1")
    assert found is not None and (found.exit_code, found.reason) == (128, "StartError")
    assert 'exec: "exit": executable file not found in $PATH' in found.message


def test_container_without_command_has_no_script() -> None:
    assert script_of({"metadata": {"name": "p"}}, {"name": "c", "image": "i"}) is None
