"""Waiting for what a cluster does in its own time: bounded, and with the last state in the error."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from haru.kube.meta import Obj

T = TypeVar("T")

PAUSE = 0.02


class WaitTimeoutError(AssertionError):
    """What was waited for did not come; the text says what was there instead."""


def wait_until(holds: Callable[[], T], timeout: float, what: str) -> T:
    """The first true answer of `holds`. Raises WaitTimeoutError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while True:
        found = holds()
        if found:
            return found
        if time.monotonic() >= deadline:
            raise WaitTimeoutError(f"{what}: not within {timeout:g} s; the last answer was {_short(found)}")
        time.sleep(PAUSE)


def told(obj: Obj | None) -> str:
    """An object's state in a line, for an error."""
    if obj is None:
        return "nothing"
    status = obj.get("status") or {}
    conditions = [
        f"{item.get('type')}={item.get('status')} ({item.get('reason', '')}: {item.get('message', '')})"
        for item in status.get("conditions") or ()
    ]
    return ", ".join([*([f"phase {status['phase']}"] if status.get("phase") else []), *conditions]) or "no conditions"


def _short(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < 500 else f"{text[:500]}…"
