"""The programs of a simulated container that work on files: `cat`, `tail`, `ls`, `wc`, `test`, `cp` and others. Pure.

Each returns its exit code, or None for files and options that nothing is known of.
Source: busybox, as behaviour.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from haru.kube.simulated_containers.file_history import LINK
from haru.kube.simulated_containers.files import MADE_DIRECTORY, ContainerFiles
from haru.kube.simulated_containers.shell_interpreter import ShellInterpreter
from haru.kube.simulated_containers.shell_output import Change, Printed, Stopped
from haru.kube.simulated_containers.shell_pipes import counted, is_quiet, line_count, part, through
from haru.kube.simulated_containers.shell_words import MOST_COMMANDS
from haru.kube.simulated_containers.text import SOME_DAY, as_printed, from_turn, has_mark, turned

_COMPARISONS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    "-eq": operator.eq, "-ne": operator.ne, "-lt": operator.lt,
    "-le": operator.le, "-gt": operator.gt, "-ge": operator.ge,
}  # fmt: skip
_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_TESTS: Final = ("-f", "-e", "-d", "-s", "-r", "-z", "-n")
_MOST_ZEROS: Final = 64 * 1024
_NO_SUCH_FILE: Final = "No such file or directory"


def run_on_files(shell: ShellInterpreter, files: ContainerFiles, name: str, words: Sequence[str]) -> int | None:
    """Run a program."""
    program = _PROGRAMS.get(name)
    return None if program is None else program(shell, files, words)


def _touch(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int:
    return _each(shell, "touch", words, lambda path: shell.change(path, "", appends=True))


def _rm(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int:
    goes_below = any(word.startswith("-") and ("r" in word or "R" in word) for word in words)

    def remove(path: str) -> None:
        for one in files.below(path) if goes_below else ():
            shell.change(one, None)
        shell.change(path, None)

    return _each(shell, "rm", words, remove)


def _mkdir(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int:
    def make(path: str) -> None:
        if files.stat(path) is None:
            shell.change(f"{path.rstrip('/')}/{MADE_DIRECTORY}", "")

    return _each(shell, "mkdir", words, make)


def _each(shell: ShellInterpreter, name: str, words: Sequence[str], change: Callable[[str], None]) -> int:
    paths = [path for path in words if not path.startswith("-")]
    return max([_changed(shell, f"{name}: {path}", partial(change, path)) for path in paths], default=0)


def _changed(shell: ShellInterpreter, where: str, change: Callable[[], None]) -> int:
    """Change files; the code of a program that says where it could not."""
    try:
        change()
    except OSError as error:
        shell.say(f"{where}: {error.strerror}", is_error=True)
        return 1
    return 0


def _copy(name: str, shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    """`cp` or `mv` of one file."""
    moves, is_told = name == "mv", words[:1] == ["-v"]
    words = words[1:] if moves and is_told else words
    if len(words) != 2:
        return None
    source, target = words
    if source not in files:
        if files.stat(source) is not None or not files.is_missing(source):
            return None
        shell.say(f"{name}: can't {'rename' if moves else 'stat'} '{source}': {_NO_SUCH_FILE}", is_error=True)
        return 1
    found = files.stat(target)
    if found is not None and found.is_directory:
        target = f"{target.rstrip('/')}/{source.rpartition('/')[2]}"
    elif not target.startswith("/") or target.endswith("/"):
        return None

    def copy() -> None:
        shell.change(target, files[source])
        if moves and files.key(source) != files.key(target):
            shell.change(source, None)

    code = _changed(shell, f"{name}: can't create '{target}'", copy)
    if moves and is_told and not code:
        shell.say(f"'{source}' -> '{target}'")
    return code


def _link(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    """Make a symbolic link to a file."""
    force, rest = words[:1] in (["-sf"], ["-fs"]), words[1:]
    if len(rest) != 2 or not (force or words[0] == "-s"):
        return None
    target, path = rest
    found = files.stat(path)
    if found is not None and found.is_directory:
        path = f"{path.rstrip('/')}/{target.rpartition('/')[2]}"
    is_there = files.link_of(path) or files.stat(path) is not None
    if is_there and not force:
        shell.say(f"ln: {path}: File exists", is_error=True)
        return 1

    def link() -> None:
        if is_there:
            shell.change(path, None)
        shell.change(path, f"{LINK}{target}")

    return _changed(shell, f"ln: {path}", link)


def _dd(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    """Write a few zeros into a file, for which blanks stand: zeros mark what is still to come."""
    said = dict(word.partition("=")[::2] for word in words)
    size, count = said.get("bs", ""), said.get("count", "")
    if said.get("if") != "/dev/zero" or not said.get("of") or not (size.isdecimal() and count.isdecimal()):
        return None
    if int(size) * int(count) > _MOST_ZEROS:
        return None
    zeros = partial(shell.change, said["of"], " " * (int(size) * int(count)))
    if _changed(shell, f"dd: can't open '{said['of']}'", zeros):
        return 1
    for way in ("in", "out"):
        shell.say(f"{count}+0 records {way}", is_error=True)
    return 0


def _test(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    words = [word for word in words if word not in ("]", "]]")]
    if words[:1] == ["!"] and len(words) > 2:
        code = _test(shell, files, words[1:])
        return None if code is None else 1 - code
    if len(words) == 3 and words[1] in ("=", "==", "!="):
        return int((words[0] == words[2]) == (words[1] == "!="))
    if len(words) == 3 and words[1] in _COMPARISONS and _NUMBER.fullmatch(words[0]) and _NUMBER.fullmatch(words[2]):
        return int(not _COMPARISONS[words[1]](int(words[0]), int(words[2])))
    if len(words) != 2 or words[0] not in _TESTS:
        return None
    option, path = words
    if option in ("-z", "-n"):
        return int(bool(path) == (option == "-z"))
    found = files.stat(path)
    if found is None:
        return 1 if files.is_missing(path) else None
    if option == "-s":
        return int(not found.is_directory and not files.get(path))
    return int({"-f": not found.is_directory, "-d": found.is_directory}.get(option, True) is False)


def _cat(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    if missing := next((one for one in words if files.is_missing(one)), ""):
        shell.say(f"cat: can't open '{missing}': {_NO_SUCH_FILE}", is_error=True)
        return 1
    return None


def _ls(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    paths = [word for word in words if not word.startswith("-")]
    options = set("".join(word[1:] for word in words if word.startswith("-")))
    is_short = options <= set("1d")
    if is_short and len(paths) > 1 and all(path in files for path in paths):
        for path in paths:
            shell.say(path)
        return 0
    if len(paths) != 1 or not options <= set("1dlih"):
        return None
    found = files.stat(paths[0])
    if found is None and files.is_missing(paths[0]):
        shell.say(f"ls: {paths[0]}: {_NO_SUCH_FILE}", is_error=True)
        return 1
    if found is None or not is_short:
        return None
    names = files.listed(paths[0]) if found.is_directory and "d" not in options else [paths[0]]
    for name in names or ():
        shell.say(name)
    return None if names is None else 0


def _find(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    """Tell a directory and all that is below it."""
    if len(words) != 1 or words[0].startswith("-"):
        return None
    path = words[0]
    if files.is_missing(path) and files.stat(path) is None:
        shell.say(f"find: {path}: {_NO_SUCH_FILE}", is_error=True)
        return 1
    found = files.stat(path)
    if found is None or (found.is_directory and files.listed(path) is None):
        return None
    parts = [one.removesuffix(f"/{MADE_DIRECTORY}").split("/") for one in files.below(path)]
    first = len(path.rstrip("/").split("/"))
    every = {"/".join(one[:number]) for one in parts for number in range(first + 1, len(one) + 1)}
    for one in (path, *sorted(every)):
        shell.say(one)
    return 0


def _wc(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    options = [word for word in words if word.startswith("-")]
    paths = [word for word in words if not word.startswith("-")]
    text = files.get(paths[0]) if len(paths) == 1 else None
    shown = None if text is None else counted(options, text, paths[0])
    if shown is not None:
        shell.say(shown)
    return None if shown is None else 0


def _rev(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    text = files.get(words[0]) if len(words) == 1 else None
    if text is None or has_mark(text):
        return None
    for line in text.splitlines():
        shell.say(line[::-1])
    return 0


def _tail(shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    rest = [word for word in words if word not in ("-f", "-F")]
    if len(rest) == len(words):
        return _part_of_file("tail", shell, files, words)
    asked = line_count(rest)
    if asked is None or len(asked[1]) != 1:
        return None
    path = asked[1][0]
    text = files.get(path)
    if text is None and not files.is_missing(path):
        return None
    if text is None:
        shell.say(f"tail: can't open '{path}': {_NO_SUCH_FILE}", is_error=True)
        if "-F" not in words:
            shell.say("tail: no files", is_error=True)
            return 1
    else:
        shell.print_text("".join(part("tail", text.splitlines(keepends=True), asked[0])))
    _follow(shell, path, text, files.history.later(files.key(path)))
    raise Stopped


def _filter(name: str, shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    """A program that takes the lines of one file."""
    text = files.get(words[-1]) if len(words) > 1 else None
    if text is None:
        return None
    command = [name, *words[:-1]]
    shown = through(command, [Printed(shell.at, line) for line in text.splitlines()], shell.at)
    for one in () if shown is None or is_quiet(command) else shown:
        shell.say(one.text)
    return None if shown is None else int(name == "grep" and not shown)


def _part_of_file(name: str, shell: ShellInterpreter, files: ContainerFiles, words: Sequence[str]) -> int | None:
    asked = line_count(words)
    text = files.get(asked[1][0]) if asked is not None and len(asked[1]) == 1 else None
    if asked is None or text is None:
        return None
    shell.print_text("".join(part(name, text.splitlines(keepends=True), asked[0])))
    return 0


def _follow(shell: ShellInterpreter, path: str, text: str | None, changes: Sequence[Change]) -> None:
    """Print what is written into a file from now on, when it is written."""
    now, length = shell.at, None if text is None else _length(text)
    was_there = text is not None
    for change, turn in sorted(((one, one.turn_after(now)) for one in changes), key=lambda one: one[0].at_turn(one[1])):
        if change.text is None:
            length = None
            continue
        shell.at = change.at_turn(turn)
        if length is None:
            how = "been replaced" if was_there else "appeared"
            shell.say(f"tail: {path} has {how}; following end of new file", is_error=True)
            was_there = True
        written = from_turn(change.text, turn)
        if change.appends or length is None:
            _print_turns(shell, change, turn, written)
            length = (length or 0) + _length(written)
            continue
        # What is written anew is read from where one has come, or from its beginning if it ends before that.
        before, length = length, _length(written)
        if length != before:
            written = written[before:] if length > before and not has_mark(written) else written
            _print_turns(shell, replace(change, every=0.0), turn, written)
    shell.at = now


def _print_turns(shell: ShellInterpreter, change: Change, turn: int, text: str) -> None:
    """Print a text at this turn of a change and at all later ones; one by one, if they end."""
    for line in text.splitlines():
        if not change.every or math.isinf(change.until):
            shell.say(line, every=change.every)
            continue
        for each in change.turns(shell.at - change.every / 2, change.until, MOST_COMMANDS):
            shell.lines.append(Printed(change.at_turn(each), turned(line, each - turn)))


def _length(text: str) -> int:
    return len(as_printed(text, SOME_DAY))


_PROGRAMS: Final[Mapping[str, Callable[[ShellInterpreter, ContainerFiles, Sequence[str]], int | None]]] = {
    "touch": _touch, "rm": _rm, "mkdir": _mkdir, "cp": partial(_copy, "cp"), "mv": partial(_copy, "mv"), "dd": _dd,
    "ln": _link, "find": _find,
    "test": _test, "[": _test, "[[": _test,
    "cat": _cat, "ls": _ls, "wc": _wc, "head": partial(_part_of_file, "head"), "tail": _tail, "rev": _rev,
    "grep": partial(_filter, "grep"), "awk": partial(_filter, "awk"), "cut": partial(_filter, "cut"),
}  # fmt: skip
