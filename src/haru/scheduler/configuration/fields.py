"""Reading a configuration strictly: every field by name and type, everything else an error that says where it is.

Source: the strict decoding of component configuration in Kubernetes, as behaviour; the wording of remedies is ours.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from haru.kube.durations import seconds_of
from haru.kube.errors import FieldError, forbidden, invalid, required
from haru.kube.meta import Obj
from haru.kube.validation.common import label_key
from haru.kube.validation.selectors import validate_node_selector, validate_node_selector_term


class ConfigurationError(ValueError):
    """A configuration cannot be used; the text has one finding a line: path, value, what to do."""

    def __init__(self, findings: Iterable[FieldError | str]) -> None:
        super().__init__("\n".join(str(finding) for finding in findings))


class Fields:
    """One object of a configuration. Fields that are asked for are taken; `done` complains about the rest.

    Values of the wrong type are reported to `findings` and count as absent.
    """

    def __init__(self, obj: Any, path: str, findings: list[FieldError]) -> None:
        self.path = path
        self.findings = findings
        self._asked: set[str] = set()
        self._obj: Obj = {}
        if isinstance(obj, dict):
            self._obj = {name: value for name, value in obj.items() if value is not None}
        elif obj is not None:
            findings.append(invalid(path, obj, "must be an object"))

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether a field is given."""
        return name in self._obj

    def take(self, name: str) -> Any:
        """A field as it is; None if it is absent."""
        self._asked.add(name)
        return self._obj.get(name)

    def text(self, name: str, default: str = "") -> str:
        """A text."""
        return str(self._typed(name, str, "must be a text", default))

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        return bool(self._typed(name, bool, "must be true or false", default))

    def integer(self, name: str, default: int | None = None) -> int | None:
        """A whole number; None if it is absent."""
        value = self.take(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            self.findings.append(invalid(self.at(name), value, "must be a whole number"))
            return default
        return value

    def seconds(self, name: str, default: float) -> float:
        """A duration such as `15s` or `1m30s`, in seconds."""
        value = self.take(name)
        if value is None:
            return default
        try:
            seconds = seconds_of(value) if isinstance(value, str) else -1.0
        except ValueError:
            seconds = -1.0
        if seconds < 0:
            self.findings.append(invalid(self.at(name), value, "must be a duration such as 15s or 1m30s"))
            return default
        return seconds

    def part(self, name: str) -> Fields:
        """An object; an empty one if it is absent."""
        return Fields(self.take(name), self.at(name), self.findings)

    def parts(self, name: str) -> list[Fields]:
        """A list of objects."""
        return [Fields(item, f"{self.at(name)}[{i}]", self.findings) for i, item in enumerate(self._items(name))]

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        found = []
        for index, item in enumerate(self._items(name)):
            if isinstance(item, str):
                found.append(item)
            else:
                self.findings.append(invalid(f"{self.at(name)}[{index}]", item, "must be a text"))
        return found

    def need(self, name: str) -> str:
        """A text that must be there."""
        value = self.text(name)
        if not value:
            self.findings.append(required(self.at(name)))
        return value

    def refuse(self, name: str, why: str) -> None:
        """Complain about a field if it is given and says anything."""
        if self.take(name):
            self.findings.append(forbidden(self.at(name), why))

    def check_node_selector(self, path: str, selector: Any) -> None:
        """Add a finding for each invalid part of a NodeSelector."""
        self.findings += validate_node_selector(path, selector)

    def check_node_selector_term(self, path: str, term: Any) -> None:
        """Add a finding for each invalid part of a NodeSelectorTerm."""
        self.findings += validate_node_selector_term(path, term)

    def check_label_key(self, path: str, key: str) -> None:
        """Add a finding if the text at a path is not a label key."""
        self.findings += label_key(path, key)

    def skip(self, *names: str) -> None:
        """Fields that are known and have no meaning here."""
        self._asked.update(names)

    def done(self) -> None:
        """Complain about fields that nobody asked for."""
        for name in self._obj:
            if name not in self._asked:
                self.findings.append(
                    forbidden(self.at(str(name)), f"unknown field{suggestion(str(name), self._asked)}")
                )

    def _items(self, name: str) -> Sequence[Any]:
        value = self.take(name)
        if value is None or isinstance(value, list):
            return value or ()
        self.findings.append(invalid(self.at(name), value, "must be a list"))
        return ()

    def _typed(self, name: str, kind: type, what: str, default: Any) -> Any:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, kind):
            self.findings.append(invalid(self.at(name), value, what))
            return default
        return value


def suggestion(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?` if a known name is close, else what is known."""
    listed = sorted(known)
    close = difflib.get_close_matches(name, listed, 1)
    return f"; did you mean {close[0]}?" if close else f"; known are {', '.join(listed)}"
