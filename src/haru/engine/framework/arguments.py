"""Declare how a plugin reads its arguments, the `args` of one entry of `pluginConfig`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from haru.engine.framework.profile import Profile
from haru.kube.errors import FieldError


class Arguments(Protocol):
    """One object of a configuration, read strictly: the owner reports fields that no plugin has read.

    Values of the wrong type are added to `findings` and count as absent.
    """

    findings: list[FieldError]

    def at(self, name: str) -> str:
        """Return the path of a field."""

    def has(self, name: str) -> bool:
        """Return whether a field is given."""

    def take(self, name: str) -> Any:
        """Return a field as it is; None if it is absent."""

    def text(self, name: str, default: str = "") -> str:
        """Return a text."""

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean."""

    def integer(self, name: str, default: int | None = None) -> int | None:
        """Return a whole number."""

    def seconds(self, name: str, default: float) -> float:
        """Return a duration in seconds."""

    def part(self, name: str) -> Arguments:
        """Return an object; an empty one if it is absent."""

    def parts(self, name: str) -> Sequence[Arguments]:
        """Return a list of objects."""

    def texts(self, name: str) -> list[str]:
        """Return a list of texts."""

    def need(self, name: str) -> str:
        """Return a required text; add a finding if it is absent."""

    def check_node_selector(self, path: str, selector: Any) -> None:
        """Add a finding for each invalid part of a NodeSelector."""

    def check_node_selector_term(self, path: str, term: Any) -> None:
        """Add a finding for each invalid part of a NodeSelectorTerm."""

    def check_label_key(self, path: str, key: str) -> None:
        """Add a finding if the text at a path is not a label key."""

    def refuse(self, name: str, why: str) -> None:
        """Add a finding if a field is given and not empty."""

    def done(self) -> None:
        """Add a finding for each field that was not read."""


ReadArguments = Callable[[Arguments, Profile], Profile]
"""Check the arguments of a plugin and return the profile with them."""
