"""What can go wrong when Haru is asked, as a program sees it.

    HaruError
    ├── InputError            what was passed in cannot be understood (a ValueError too)
    │   ├── NotFoundError     there is no such object in the snapshot (a LookupError too)
    │   └── ChangeInputError  a change cannot be made to this snapshot; `change` is the one
    └── ClusterError          a cluster cannot be found, cannot be reached, or refuses (an OSError too)

The texts name what is wrong (file, object, field), the value, and how to mend it.
"""

from __future__ import annotations

from typing import Any


class HaruError(Exception):
    """Whatever Haru has to say against what it was asked."""


class InputError(HaruError, ValueError):
    """What was passed in cannot be understood; the text names the object, the value and what is wrong with it."""


class NotFoundError(InputError, LookupError):
    """The object that was asked about is not there."""


class ChangeInputError(InputError):
    """A hypothetical change makes no sense here. `change` is the change, `problem` what is wrong with it."""

    def __init__(self, change: object, problem: str) -> None:
        super().__init__(f"{type(change).__name__}: {problem}")
        self.change = change
        self.problem = problem


class ClusterError(HaruError, OSError):
    """A cluster cannot be found, cannot be reached, or refuses to be read."""


def raise_first(outcomes: list[Any]) -> None:
    """Raise the first error among some outcomes, if there is one, and empty the list.

    An error knows the frames that it went through, with all that is in their variables. One that a variable of these
    still holds is garbage which reference counts do not free: it stays until a collection looks at it.
    """
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            outcomes.clear()
            try:
                raise outcome
            finally:
                del outcome
