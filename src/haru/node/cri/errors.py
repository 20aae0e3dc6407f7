"""What a runtime refuses, and what went wrong on the way to it."""

from __future__ import annotations

from haru.errors import HaruError


class CriError(HaruError):
    """A call that failed: `code` is the name of its gRPC status, `details` are the runtime's words."""

    def __init__(self, operation: str, code: str, details: str) -> None:
        super().__init__(f"{operation}: {code}: {details}")
        self.operation, self.code, self.details = operation, code, details

    @property
    def is_gone(self) -> bool:
        """There is no such sandbox, container or image."""
        return self.code == "NOT_FOUND"
