"""What simulated containers do with their standard input."""

from __future__ import annotations

import json
from typing import Any

import pytest

from haru.kube.simulated_containers.commands import run_in_container
from haru.kube.simulated_containers.container_scripts import Script, script_of
from haru.kube.simulated_containers.standard_input import MOST_INPUT, Given, with_input

ALL = [[2.0, "one\ntwo"], [3.0, None]]


def pod_with(given: Any) -> dict[str, Any]:
    annotations = {} if given is None else {"stdin.simulated.haru.dev/c": json.dumps(given)}
    return {"metadata": {"name": "p", "uid": "u", "annotations": annotations}}


def script(given: Any, *command: str, **container: Any) -> Script | None:
    return script_of(pod_with(given), {"name": "c", "command": list(command), "stdin": True, **container})


@pytest.mark.parametrize(
    ("command", "lines", "after", "code"),
    [
        (["cat"], [(2, "one"), (2, "two")], 3, 0),
        (["sh", "-c", "echo -n read: && cat && echo ' closed'; exit 4"], [(2, "read:one"), (3, "two closed")], 3, 4),
        (["sh", "-c", "read a; echo $a; read b && exit 3; echo $b; exit 5"], [(2, "one"), (3, "two")], 3, 5),
        (["wc", "-l"], [(3, "1")], 3, 0),
        (["sh", "-c", "grep w; echo $?"], [(2, "two"), (3, "0")], 3, 0),
        (["sh", "-c", "cat | grep none || exit 7"], [], 3, 7),
        (["sh", "-c", "while read x; do echo got $x; done"], [(2, "got one"), (2, "got two")], 3, 0),
        (["sh", "-c", "sleep 9; cat"], [(9, "one"), (9, "two")], 9, 0),
    ],
)
def test_container_reads_what_it_is_given(
    command: list[str], lines: list[tuple[float, str]], after: float, code: int
) -> None:
    found = script(ALL, *command)
    assert found is not None and (list(found.lines), found.ends_after, found.exit_code) == (lines, after, code)


def test_shell_runs_the_lines_of_its_input() -> None:
    found = script([[1, "echo a\nfor i in 1 2; do\necho $i\ndone\nec"], [2, "ho b; exit 3\necho c\n"]], "sh")
    assert found is not None
    assert list(found.lines) == [(1, "a"), (1, "1"), (1, "2"), (2, "b")]
    assert (found.ends_after, found.exit_code) == (2, 3)


@pytest.mark.parametrize("given", [None, [[2, "one\n"]]])
def test_container_waits_for_input_that_nobody_has_given(given: Any) -> None:
    found = script(given, "sh", "-c", "cat; echo closed")
    assert found is not None and found.awaits_input and found.ends_after is None
    assert list(found.lines) == ([(2, "one")] if given else [])


def test_input_of_a_container_without_one_is_empty() -> None:
    found = script(None, "sh", "-c", "cat && echo closed", stdin=False)
    assert found is not None and (found.lines, found.ends_after) == (((0, "closed"),), 0)
    terminal = script(None, "cat", stdin=False, tty=True)
    assert terminal is not None and terminal.awaits_input


def test_input_is_added_up_to_a_bound() -> None:
    pod = with_input(with_input(pod_with(None), "c", Given(2.0, "one\ntwo")), "c", Given(3.0, None))
    assert pod["metadata"]["annotations"] == pod_with(ALL)["metadata"]["annotations"]
    with pytest.raises(ValueError, match="128 KiB"):
        with_input(pod, "c", Given(4.0, "x" * MOST_INPUT))


@pytest.mark.parametrize("given", ["text", [1], [["x", "y"]], {"a": 1}])
def test_malformed_input_is_told(given: Any) -> None:
    with pytest.raises(ValueError, match="write a list of seconds and texts"):
        script(given, "cat")


def test_command_that_is_run_reads_its_own_input() -> None:
    pod, container = pod_with(ALL), {"name": "c", "command": ["cat"], "stdin": True}
    assert [one.text for one in run_in_container(pod, container, ["wc", "-c"]).lines] == ["0"]
    given = (Given(0.0, "x\n"), Given(0.0, None))
    assert [one.text for one in run_in_container(pod, container, ["sort"], given=given).lines] == ["x"]
    assert run_in_container(pod, container, ["sh", "-c", "read x"], given=()).awaits_input


def test_input_is_that_of_one_run() -> None:
    pod, container = (
        with_input(pod_with(None), "c", Given(1.0, "one\n", 0)),
        {"name": "c", "command": ["cat"], "stdin": True},
    )
    first, again = (
        script_of(pod, container),
        {**pod, "status": {"containerStatuses": [{"name": "c", "restartCount": 1}]}},
    )
    second, third = script_of(again, container), script_of(with_input(again, "c", Given(2.0, "two\n", 1)), container)
    assert first is not None and second is not None and third is not None
    assert [list(one.lines) for one in (first, second, third)] == [[(1, "one")], [], [(2, "two")]]
