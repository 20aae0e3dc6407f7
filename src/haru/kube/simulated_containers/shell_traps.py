"""The handlers of signals in the text of a shell script. Pure.

Source: `trap` of POSIX sh: its command, or a function of the script; `''` is to take no notice of the signal.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

SIGNALS: Final = frozenset({"TERM", "INT", "HUP", "QUIT", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "15"})
"""Which no container gets before it is stopped."""
_TRAP: Final = re.compile(
    r"(?P<begin>^|[;\n{&])[ \t]*trap[ \t]+(?:--[ \t]+)?('[^']*'|\"[^\"]*\"|\w+|-)((?:[ \t]+\w+)+)"
)
_FUNCTION: Final = r"(?:^|(?<=[;\n]))[ \t]*(?:function[ \t]+)?{name}[ \t]*(?:\(\))?[ \t\n]*\{{(.*?)(?:[;\n])[ \t]*\}}"


def handler_of(script: str, signals: Collection[str]) -> str | None:
    """The commands that a script runs at one of these signals; None if it traps none of them."""
    found = [one[2] for one in _TRAP.finditer(script) if not set(signals).isdisjoint(one[3].split())]
    if not found or found[-1] == "-":
        return None
    text = found[-1].strip("'\"")
    body = _function(script, text)
    return body[1].strip() if body is not None else text


def without_handlers(script: str) -> str:
    """The script without what it runs only when it is stopped."""
    for one in reversed([*_TRAP.finditer(script)]):
        if not SIGNALS.issuperset(one[3].split()):
            continue
        script = f"{script[: one.start()]}{one['begin']} trap : {one[3]}{script[one.end() :]}"
        body = _function(script, one[2].strip("'\""))
        if body is not None and len(re.findall(rf"\b{re.escape(one[2])}\b", script)) == 1:
            script = f"{script[: body.start()]}:{script[body.end() :]}"
    return script


def _function(script: str, name: str) -> re.Match[str] | None:
    """Where a function of the script is defined."""
    return re.search(_FUNCTION.format(name=re.escape(name)), script, re.DOTALL) if name.isidentifier() else None
