"""What a terminal gets: lines and tables of its width, colours unless NO_COLOR, progress of what takes long."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from haru.cli import progress
from haru.cli.main import main
from haru.cli.progress import working
from haru.cli.terminal import print_lines, show_blocks, show_lines, show_table

TEXT = """\
Pod default/p: FitsLater: no device is free for request gpu, 1 is needed: 1 short of what it asks for
short by 1 device of gpu: 1 needed; of 2 devices 0 are free, 2 held
helps    uncordon a very long name of a node: kubectl uncordon a-very-long-name-of-a-node
more     haru explain pod/p -n default --wide"""


def shown(width: int, colour: bool = True) -> str:
    to = io.StringIO()
    show_lines(Console(file=to, width=width, force_terminal=True, no_color=not colour, highlight=False), TEXT)
    return to.getvalue()


def test_lines_wrap_below_their_label_and_commands_do_not() -> None:
    plain = shown(50, colour=False).replace("\x1b[1m", "").replace("\x1b[0m", "")
    lines = plain.splitlines()
    assert lines[1:6] == [
        "  request gpu, 1 is needed: 1 short of what it",
        "  asks for",
        "short by 1 device of gpu: 1 needed; of 2 devices 0",
        "         are free, 2 held",
        "helps    uncordon a very long name of a node: kubectl uncordon a-very-long-name-of-a-node",
    ]
    assert " ".join(plain.split()) == " ".join(TEXT.split())


def test_verdict_has_a_colour_unless_colours_are_off() -> None:
    assert "\x1b[33mFitsLater\x1b[0m" in shown(200)
    assert "\x1b[33m" not in shown(200, colour=False)


def test_table_wraps_cells_within_the_width() -> None:
    to = io.StringIO()
    console = Console(file=to, width=60, force_terminal=True, no_color=True, highlight=False)
    show_table(console, ("WHAT", "PODS", "FIRST REMEDY"), [("job/a", "4", "label " * 12), ("[b]", "1", "")])
    lines = to.getvalue().splitlines()
    assert len(lines) > 3 and "[b]" in lines[-1] and lines[-1].rstrip().endswith("-")
    assert all(len(line.replace("\x1b[1m", "").replace("\x1b[0m", "")) <= 60 for line in lines)


def test_tables_within_lines_wrap_below_their_label() -> None:
    to = io.StringIO()
    console = Console(file=to, width=50, force_terminal=True, no_color=True, highlight=False)
    table = (("PLUGIN", "PREFERS"), [("NodeResourcesFit", "more cpu and memory " * 4)])
    show_blocks(console, ["Pod default/p: Runs: it runs on node n", "scores   n 93 (here)", table])
    lines = to.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    assert lines[:2] == ["Pod default/p: Runs: it runs on node n", "scores   n 93 (here)"]
    assert lines[2].startswith("         PLUGIN") and len(lines) > 4
    assert all(len(line) <= 50 for line in lines)


def test_text_is_unchanged_where_stdout_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_lines(TEXT)
    assert capsys.readouterr().out == f"{TEXT}\n"


class Terminal(io.StringIO):
    """A stream that is a terminal; `wrote` is set once something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.wrote = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.wrote.set()
        return super().write(text)


def test_progress_is_told_once_work_takes_longer_and_wiped_at_the_end() -> None:
    to = Terminal()
    with working("reading the cluster", to, after=0.001) as tell:
        tell("explaining 2 of 3")
        assert to.wrote.wait(30)
    assert "explaining 2 of 3: 0 s" in to.getvalue() or "reading the cluster: " in to.getvalue()
    assert to.getvalue().endswith("\r\x1b[K")


def test_progress_of_quick_work_and_outside_a_terminal_is_silent() -> None:
    quick, pipe = Terminal(), io.StringIO()
    with working("reading", quick, after=600):
        pass
    with working("reading", pipe, after=0):
        pass
    assert (quick.getvalue(), pipe.getvalue()) == ("", "")


CLUSTER = """\
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: "8", pods: "110"}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {containers: [{name: c, image: x}]}}
"""


@pytest.mark.parametrize(
    ("command", "steps"),
    [
        (["explain", "pod/p"], ["reading the manifests", "explaining"]),
        (["explain", "--all"], ["reading the manifests", "explaining"]),
        (["whatif", "--cordon", "n1"], ["reading the manifests", "deciding what follows"]),
        (["top"], ["reading the manifests", "counting the devices"]),
        (["schedule"], ["reading the manifests", "deciding"]),
    ],
)
def test_command_says_what_takes_long(
    command: list[str], steps: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    @contextmanager
    def told(text: str, *_: object, **__: object) -> Iterator[Callable[[str], None]]:
        said.append(text)
        yield lambda _: None

    monkeypatch.setattr(progress, "working", told)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    main([*command, "-f", str(tmp_path / "cluster.yaml")])
    assert [text for text in said if text in steps] == steps
