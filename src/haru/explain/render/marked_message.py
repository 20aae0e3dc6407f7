"""The message of a condition: the scheduler's own, and after a marker the explanation.

Source: the limit of Kubernetes for the message of a condition, 32768 bytes.
"""

from __future__ import annotations

MARKER = "Explanation: "
MOST_BYTES = 32768


def with_explanation(message: str, text: str) -> str:
    """The message of a condition: the scheduler's own, and after it the explanation; without one as it is."""
    if not text:
        return message
    return shortened(f"{message}{'' if message.endswith('.') else '.'} {MARKER}{text}", MOST_BYTES)


def without_explanation(message: str) -> tuple[str, str]:
    """The scheduler's own message, as far as it can be told, and the explanation."""
    own, marker, text = message.partition(f" {MARKER}")
    return (own, text) if marker else (message, "")


def shortened(text: str, limit: int) -> str:
    """The text in at most so many bytes."""
    data = text.encode()
    return text if len(data) <= limit else data[: limit - 3].decode("utf-8", "ignore") + "..."
