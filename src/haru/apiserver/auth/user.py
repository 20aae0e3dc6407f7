"""Define the user of a request; a leaf module without imports of other modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class UserInfo:
    """Identify the user of a request, as UserInfo of `authentication.k8s.io` does."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


def user_object(user: UserInfo) -> dict[str, Any]:
    """Return the user as a JSON object, in the form that reviews and webhooks get."""
    shown: dict[str, Any] = {"username": user.name}
    if user.uid:
        shown["uid"] = user.uid
    if user.groups:
        shown["groups"] = list(user.groups)
    if user.extra:
        shown["extra"] = {key: list(values) for key, values in user.extra.items()}
    return shown


AUTHENTICATED = "system:authenticated"
ANONYMOUS = UserInfo("system:anonymous", ("system:unauthenticated",))


def with_group(user: UserInfo) -> UserInfo:
    """The user as a member of all who are authenticated."""
    if AUTHENTICATED in user.groups or user.name == ANONYMOUS.name:
        return user
    return UserInfo(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)
