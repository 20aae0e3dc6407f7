"""What was written into files: by a program up to now, and by others at moments of their own. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from haru.kube.simulated_containers.shell_output import Change, Stopped
from haru.kube.simulated_containers.text import turned

FILE_MODE: Final = 0o644
LINK: Final = "\2"
"""With what the text of a symbolic link begins; the path follows to which it leads."""
_MOST_TURNS: Final = 100_000
"""Of an endless loop: the last ones that a file still tells of."""
_MOST_TURNS_READ: Final = 1_000_000
"""In all that one program reads."""


class Written(NamedTuple):
    """A file as it was left at a moment; without text where it was removed."""

    text: str | None
    mode: int = FILE_MODE
    at: float = -math.inf


class FileHistory:
    """Files by name, those of volumes without a slash in front. `beside` tells what others change there meanwhile."""

    def __init__(self, beside: Callable[[], Iterable[Change]]) -> None:
        self.now: Callable[[], float] = lambda: 0.0
        self.has_read_others = False
        """Whether a file was read that others change as well."""
        self._next: float | None = None
        self.has_links = False
        """Whether a symbolic link may be among the files."""
        self._turns_left = _MOST_TURNS_READ
        self._written: dict[str, Written] = {}
        self._beside: Callable[[], Iterable[Change]] | None = beside
        self._changes: dict[str, list[Change]] = {}

    def get(self, name: str) -> Written | None:
        """A file as it is now; None if nobody has written it. Raises `Stopped` for who reads without end."""
        own, changes = self._written.get(name), self._later(name)
        self._next = min([math.inf if self._next is None else self._next, *map(self._next_turn, changes)])
        if not changes:
            return own
        self.has_read_others = True
        before = own or Written(None)
        now = self.now()
        self._turns_left -= sum(len(one.turns(before.at, now, _MOST_TURNS)) for one in changes)
        if self._turns_left < 0:
            raise Stopped
        text = text_after(changes, before.text, before.at, now)
        return own if own is None and text is None else Written(text, before.mode)

    def write(self, name: str, text: str | None, mode: int = FILE_MODE) -> None:
        """Write a file, which keeps the mode that it has; or remove it."""
        self._look(text)
        before = self._written.get(name)
        self._written[name] = Written(
            text, before.mode if before is not None and before.text is not None else mode, self.now()
        )

    def found(self, name: str, text: str) -> None:
        """A file that was there before."""
        self._look(text)
        self._written.setdefault(name, Written(text))

    def follow(self, changes: Iterable[Change]) -> None:
        """Have what others do, or what the program itself does from now on."""
        for change in changes:
            self._look(change.text)
            self._changes.setdefault(change.path, []).append(change)

    def later(self, name: str) -> Sequence[Change]:
        """What others do to a file after now, or again and again."""
        now = self.now()
        return [change for change in self._later(name) if change.every or change.at > now]

    def next_change(self) -> float | None:
        """When others change a file that was read since the last call: infinity for never; None if none was read."""
        following, self._next = self._next, None
        return following

    def _next_turn(self, change: Change) -> float:
        at = change.at_turn(change.turn_after(self.now()))
        return at if self.now() < at <= change.until else math.inf

    def own(self) -> Iterator[tuple[str, str]]:
        """The names and texts of what was written by the program itself."""
        yield from ((name, one.text) for name, one in self._written.items() if one.text is not None)

    def names(self) -> Iterator[str]:
        """The names of the files that are there now."""
        self._ask()
        for name in self._written.keys() | self._changes.keys():
            found = self.get(name)
            if found is not None and found.text is not None:
                yield name

    def _look(self, text: str | None) -> None:
        self.has_links = self.has_links or (text is not None and text.startswith(LINK))

    def _later(self, name: str) -> Sequence[Change]:
        if not name.startswith("/"):
            self._ask()
        return self._changes.get(name, ())

    def _ask(self) -> None:
        """Ask once what others do: most programs never look into a volume."""
        beside, self._beside = self._beside, None
        self.follow(() if beside is None else beside())


def text_after(changes: Iterable[Change], text: str | None, since: float, until: float) -> str | None:
    """The text of a file after these changes, those after `since` up to then."""
    due = [
        (change.at_turn(turn), number, turn, change)
        for number, change in enumerate(changes)
        for turn in change.turns(since, until, _MOST_TURNS)
    ]
    parts = [] if text is None else [text]
    for _, _, turn, change in sorted(due, key=lambda one: one[:2]):
        if not change.appends:
            parts.clear()
        if change.text is not None:
            parts.append(turned(change.text, turn))
            text = ""
        else:
            text = None
    return None if text is None and not parts else "".join(parts)
