"""What must outlive a process: one JSON document in a file with a checksum, which is there as a whole or not at all.

A crash leaves the old content or the new one. What is there and cannot be true (a checksum that does not fit, another
form) is an error and never taken for empty: what was prepared would be forgotten. Source: the kubelet's checkpoints, as
behaviour (KEP-4381).
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import orjson

from haru.errors import InputError
from haru.files import write_whole

FORM: Final = "haru.dev/checkpoint/v1"


class CheckpointError(InputError):
    """A checkpoint cannot be read or written; the text names the file and the remedy."""


class Checkpoint:
    """A JSON document in a file; `kind` says what it is of, so that no other is read by mistake."""

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self._kind = kind

    def load(self) -> Any:
        """The document, None if none was written yet. Raises `CheckpointError`."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be read: {error.strerror}") from None
        try:
            outer = orjson.loads(data)
            content, told = outer["content"], outer["checksum"]
            form = (outer["form"], outer["kind"])
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(f"{self.path}: {_BROKEN}") from None
        if form != (FORM, self._kind):
            raise CheckpointError(f"{self.path}: of the form {form[0]} of {form[1]}, not {FORM} of {self._kind}")
        if told != _checksum(content):
            raise CheckpointError(f"{self.path}: the checksum does not fit; {_BROKEN}")
        return content

    def store(self, content: Any) -> None:
        """Replace the document. Raises `CheckpointError`; then the old one is still there."""
        outer = {"form": FORM, "kind": self._kind, "checksum": _checksum(content), "content": content}
        try:
            write_whole(self.path, orjson.dumps(outer), parents=True)
        except OSError as error:
            raise CheckpointError(f"{self.path}: cannot be written: {error.strerror}") from None


_BROKEN: Final = (
    "this is no checkpoint of Haru's, or a broken one: put back a good one, or see that no pod with claims runs here "
    "any more and remove it"
)


def _checksum(content: Any) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()
