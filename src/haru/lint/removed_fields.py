"""Name kinds and fields of earlier API versions, and what replaced them.

Kinds and fields of the alphas of DRA (KEP 3063, 4381 before 1.32), of gang scheduling before 1.36 (KEP 4671) and of the
first DeviceTaintRule (KEP 5055). A field is known by the path of names that leads to it, without indexes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple


class Gone(NamedTuple):
    """Why something is gone, and what is written instead."""

    reason: str
    remedy: str


def _read() -> Iterator[tuple[list[str], Gone]]:
    text = (Path(__file__).parent / "removed.txt").read_text(encoding="utf-8")
    for block in text.split("\n\n")[1:]:
        head, reason, remedy = block.strip().split("\n")
        yield head.split(" "), Gone(reason, remedy)


_REMOVED = tuple(_read())
KINDS: Mapping[str, Gone] = {head[0]: gone for head, gone in _REMOVED if len(head) == 1}
_FIELDS = tuple((head[0].split(","), head[1], gone) for head, gone in _REMOVED if len(head) == 2)
"""The kinds that had a field, its path as a pattern, and what became of it."""


def field(kind: str, names: str) -> Gone | None:
    """What became of a field; `names` is its path without indexes. Pod templates count as pods."""
    for holders, pattern, gone in _FIELDS:
        if kind not in holders and not ("Pod" in holders and kind in POD_HOLDERS):
            continue
        match = re.fullmatch(pattern, names)
        if match:
            return Gone(gone.reason, match.expand(gone.remedy))
    return None


POD_HOLDERS = frozenset(
    {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController", "PodTemplate"}
)
_INDEX = re.compile(r"\[\d+\]")


def without_indexes(path: str) -> str:
    """`spec.a[0].b` -> `spec.a.b`."""
    return _INDEX.sub("", path)
