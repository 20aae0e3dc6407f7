"""What can go wrong with an expression: at compile time, with a position, or while it is evaluated.

The wording is that of cel-go, because Kubernetes hands it through to users: an API server's answer to a bad selector
contains the position block that `Issue.render` draws.
"""

from __future__ import annotations

from collections.abc import Iterable


class CompileError(ValueError):
    """The expression cannot be used. `str()` is the message; `line` and `column` count from one and zero.

    `line` is 0 where the fault has no place in the text (a wrong result type).
    """

    def __init__(self, message: str, line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.line = line
        self.column = column


class EvaluationError(Exception):
    """The expression has no value for these inputs: a missing key, a wrong type, an overflow, or too much work."""


class CostLimitError(EvaluationError):
    """The evaluation did more work than it may. No operator absorbs this error."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class Source:
    """The text of an expression, and where its lines begin."""

    __slots__ = ("_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = [0] + [index + 1 for index, char in enumerate(text) if char == "\n"]

    def location(self, offset: int) -> tuple[int, int]:
        """Line (from one) and column (from zero) of an offset."""
        line = 0
        for start in self._starts:
            if start > offset:
                break
            line += 1
        return line, offset - self._starts[line - 1]

    def line_text(self, line: int) -> str:
        """The text of one line, without its end."""
        start = self._starts[line - 1]
        end = self.text.find("\n", start)
        return self.text[start:] if end < 0 else self.text[start:end]


class Issue:
    """One fault at one place."""

    __slots__ = ("message", "offset")

    def __init__(self, offset: int, message: str) -> None:
        self.offset = offset
        self.message = message

    def render(self, source: Source) -> str:
        """The fault as cel-go shows it: position, message, the line, and a caret below it."""
        line, column = source.location(self.offset)
        if not source.text:
            return f"ERROR: <input>:1:0: {self.message}"
        text = source.line_text(line).replace("\t", " ")
        return f"ERROR: <input>:{line}:{column + 1}: {self.message}\n | {text}\n | {_dots(text, column)}"


def _dots(text: str, column: int) -> str:
    # cel-go keeps the marker aligned below wide characters by using a wide dot and a wide caret for them.
    marks = "".join("." if ord(char) < 0x80 else "．" for char in text[:column])
    wide = column < len(text) and ord(text[column]) >= 0x80
    return marks + ("＾" if wide else "^")


def compile_error(source: Source, issues: Iterable[Issue]) -> CompileError:
    """All faults of an expression as one exception, in the order of their places."""
    ordered = sorted(issues, key=lambda issue: issue.offset)
    line, column = source.location(ordered[0].offset)
    return CompileError("\n".join(issue.render(source) for issue in ordered), line, column)
