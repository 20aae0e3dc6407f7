"""Read test cases, one JSON object per line, plain or compressed, and write their results."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from haru.cli.main import UsageError
from haru.kube.meta import Obj


def answer_cases(path: str, answer: Callable[[Obj], Obj]) -> int:
    """Prints one line per case of the file (`-` is standard input), in its order; raises UsageError for a bad line."""
    for number, case in _read(path):
        try:
            found = answer(case)
        except (KeyError, TypeError, AttributeError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UsageError(f"{path}: line {number}: this is no such case: {what}") from error
        print(json.dumps(found, separators=(",", ":")), flush=True)
    return 0


def answer_every_case(path: str, answer: Callable[[Obj], Obj]) -> int:
    """Answer every line, a bad one by its error; the status is 1 if there is one."""
    status = 0
    for number, line in _lines(path):
        name = f"line {number}"
        try:
            case = _parse(path, number, line)
            name = case["name"]
            found = answer(case)
        except UsageError as error:
            found = {"name": name, "error": str(error)}
        except Exception as error:  # whatever is wrong with one case must not end the others
            what = f"{error} is missing" if isinstance(error, KeyError) else f"{type(error).__name__}: {error}"
            found = {"name": name, "error": f"{path}: line {number}: this is no such case: {what}"}
        if "error" in found:
            status = 1
        print(json.dumps(found, separators=(",", ":")), flush=True)
    return status


def _read(path: str) -> Iterator[tuple[int, Obj]]:
    for number, line in _lines(path):
        yield number, _parse(path, number, line)


def _lines(path: str) -> Iterator[tuple[int, str]]:
    try:
        with _open(path) as stream:
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, line
    except (OSError, EOFError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: this is no UTF-8 text: {error.reason} at byte {error.start}") from error


def _open(path: str) -> IO[str]:
    if path == "-":
        return sys.stdin
    if path.endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8")
    return Path(path).open(encoding="utf-8")


def _parse(path: str, number: int, line: str) -> Obj:
    try:
        case = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: line {number}: this is no JSON: {error}") from error
    if not isinstance(case, dict) or not isinstance(case.get("name"), str):
        raise UsageError(f"{path}: line {number}: a case is a JSON object with a name")
    return case
