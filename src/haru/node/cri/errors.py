"""What a runtime refuses, and what went wrong on the way to it."""

from __future__ import annotations

from haru.errors import HaruError
from haru.kube.go_values import rpc_error


class CriError(HaruError):
    """A call that failed: `code` is the name of its gRPC status, `details` are the runtime's words.

    Its text is that of the kubelet's client, which status and events of pods have.
    """

    def __init__(self, operation: str, code: str, details: str) -> None:
        super().__init__(rpc_error(code, details))
        self.operation, self.code, self.details = operation, code, details

    @property
    def is_gone(self) -> bool:
        """There is no such sandbox, container or image."""
        return self.code == "NOT_FOUND"
