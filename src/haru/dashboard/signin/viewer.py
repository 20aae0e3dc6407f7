"""Somebody who looks at the dashboard, and what of the cluster that person may see."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass

VIEWER = "haru.viewer"
"""The member of an ASGI scope with the `Viewer` of a request."""
Allowed = Callable[[str, str, str, str], Awaitable[bool]]
"""Whether the person may do something: verb, API group, resource, and namespace (empty: all of them)."""


@dataclass(frozen=True, slots=True)
class Visibility:
    """What somebody may see: everything, or the objects of some namespaces. Equal ones share pages."""

    everything: bool = False
    namespaces: frozenset[str] = frozenset()

    @property
    def nothing(self) -> bool:
        """Whether there is no namespace that may be seen."""
        return not (self.everything or self.namespaces)


EVERYTHING = Visibility(everything=True)


async def _always(verb: str, group: str, resource: str, namespace: str) -> bool:
    return True


async def _unchanged() -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person of a request; without a name there is no sign-out: the one browser that has the code."""

    visibility: Visibility
    name: str = ""
    sign_out: str = ""
    """What the form that ends the session has to send; empty where a proxy has authenticated the person."""
    allowed: Allowed = _always
    unchanged: Callable[[], Awaitable[bool]] = _unchanged
    """Whether the person is still signed in, and may see the same."""
    session: Hashable = ""
    """What its connections have in common: as long as one is signed in all are."""


OWNER = Viewer(EVERYTHING)
"""Who has started the server."""
