"""Files of one volume that would lie in each other's way.

Two entries with one path, or with a path below the other's, cannot both be there.
Source: kube-apiserver 1.36's warnings for volumes, as behaviour; `a/b` and `a/bc` are no conflict here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

Obj = dict[str, Any]


def overlap_warnings(volume: Obj) -> Iterator[str]:
    """Paths of a volume's items that lie in each other's way."""
    named = f'volume "{volume.get("name") or ""}"'
    for kind, name in (("configMap", "name"), ("secret", "secretName"), ("downwardAPI", "")):
        source = volume.get(kind)
        if source and source.get("items"):
            yield from _overlaps(_Files(), _paths(source), f"{named} ({_told(kind, source, name)})")
    projected = volume.get("projected")
    if not projected:
        return
    sources = projected.get("sources") or ()
    filled = [_projected(source) for source in sources]
    flat = [path for paths, _ in filled for path in paths]
    if all(sources) and len(set(flat)) == len(flat) and not any("/" in path for path in flat):
        return  # as nearly all are
    files = _Files()
    for source, (paths, told) in zip(sources, filled, strict=True):
        if not source:
            yield f"{named} (Projected) has no sources provided"
        yield from _overlaps(files, paths, f"{named} (Projected {told})")


def _projected(source: Obj) -> tuple[list[str], str]:
    """The paths that one source of a projected volume fills, and what it is called."""
    for kind in ("configMap", "secret", "downwardAPI"):
        found = source.get(kind)
        if found and found.get("items"):
            return _paths(found), _told(kind, found, "" if kind == "downwardAPI" else "name")
    if token := source.get("serviceAccountToken"):
        return [token.get("path") or ""], "ServiceAccountToken"
    if bundle := source.get("clusterTrustBundle"):
        name = bundle.get("name") or bundle.get("signerName") or ""
        return [bundle.get("path") or ""], f'ClusterTrustBundle "{name}"'
    return [], ""


def _told(kind: str, source: Obj, name: str) -> str:
    word = kind[0].upper() + kind[1:]
    return f'{word} "{source.get(name) or ""}"' if name else word


def _paths(source: Obj) -> list[str]:
    return [item.get("path") or "" for item in source["items"]]


def _overlaps(files: _Files, paths: Sequence[str], told: str) -> Iterator[str]:
    for path in paths:
        path = path.rstrip("/")
        other = files.add(path) if path else ""
        if other:
            yield f'{told}: overlapping paths: "{path}" with "{other}"'


class _Files:
    """The paths that are taken, as a tree: however many and long they are, each is walked once."""

    __slots__ = ("_below", "_first", "_taken")

    def __init__(self) -> None:
        self._below: dict[str, _Files] = {}
        self._first = ""
        self._taken = False

    def add(self, path: str) -> str:
        """Take a path; a path that lies in its way, if there is one."""
        at, other = self, ""
        for name in path.split("/"):
            if at._taken and not other:
                other = at._first
            following = at._below.get(name)
            if following is None:
                following = at._below[name] = _Files()
                following._first = path
            at = following
        if not other and (at._taken or at._below):
            other = at._first
        if not at._taken:
            at._taken, at._first = True, path
        return other
