"""Finds what is wrong with manifests, whether they are in files or plain dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

from haru.api.files import expanded, items_of, plain, read_text
from haru.arguments import checks_types
from haru.errors import InputError
from haru.kube.yaml import dump
from haru.lint import Report, lint_texts

Source = str | Path | Mapping[str, Any] | Iterable[Mapping[str, Any]]


@checks_types
def lint_manifests(*sources: Source) -> Report:
    """Check manifests together: errors, reasons, and suggestions.

    A source is a file, a directory, an object as a plain dict, or several of those. Findings name the file and line;
    of a plain object the line is that of its YAML. Raises InputError for files that cannot be read.
    """
    texts: dict[str, str] = {}
    for source in sources:
        if isinstance(source, str | PathLike):
            texts |= read_texts([str(source)])
        else:
            objects = [source] if isinstance(source, Mapping) else list(source)
            for obj in items_of(map(plain, objects)):
                if not isinstance(obj, dict):
                    raise InputError(f"object #{len(texts)}: this is no Kubernetes object: {obj!r}")
                name = (obj.get("metadata") or {}).get("name") if isinstance(obj.get("metadata"), dict) else None
                texts[f"object #{len(texts)} ({obj.get('kind')} {name})"] = dump(obj)
    return lint_texts(texts)


def read_texts(names: Iterable[str]) -> dict[str, str]:
    """The texts of files and of those in directories (`-` is standard input); InputError names what cannot be read."""
    texts, unread = readable_texts(names)
    for error in unread:
        raise error
    return texts


def readable_texts(names: Iterable[str]) -> tuple[dict[str, str], list[InputError]]:
    """The texts of those that can be read, and why the others cannot. Raises InputError for an empty directory."""
    texts: dict[str, str] = {}
    unread: list[InputError] = []
    for path in (path for name in names for path in expanded(name)):
        try:
            texts[path] = read_text(path)
        except InputError as error:
            unread.append(error)
    return texts, unread
