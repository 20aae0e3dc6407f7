"""Taints as flags and kubectl write them."""

from __future__ import annotations

import re
from typing import Final

from haru.kube.meta import Obj

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT: Final = re.compile(r"(?P<key>[^=:\s]+)(=(?P<value>[^:\s]*))?(:(?P<effect>\w+))?")


def parse_taint(text: str, *, with_effect: bool = True) -> Obj:
    """Read `KEY[=VALUE]:EFFECT`; the effect may be left out unless `with_effect`. Raises ValueError."""
    found = _TAINT.fullmatch(text)
    if found is None or found["effect"] not in (EFFECTS if with_effect else (None, *EFFECTS)):
        form = "KEY[=VALUE]:EFFECT" if with_effect else "KEY[=VALUE][:EFFECT]"
        raise ValueError(f'"{text}": write {form} with one of {", ".join(EFFECTS)}')
    return {name: found[name] for name in ("key", "value", "effect") if found[name]}


def taint_text(taint: Obj) -> str:
    """A taint as kubectl writes it: `KEY=VALUE:EFFECT`, or `KEY:EFFECT`."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"
