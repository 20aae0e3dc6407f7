"""Semantic versions 2.0.0: `semver("1.2.3-rc.1+build")`, and `semver("v1.2", true)` which repairs short forms first.

Equality and order follow precedence, so build metadata does not count.
"""

from __future__ import annotations

from functools import lru_cache

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.overloads import function, member
from haru.cel.types import BOOL, INT, STRING, struct

SEMVER = struct("kubernetes.Semver")

_DIGITS = frozenset("0123456789")
_ALPHANUMERIC = _DIGITS | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-")
_UINT64 = 1 << 64


class Semver:
    """A version. Versions that differ only in build metadata are equal."""

    __slots__ = ("major", "minor", "patch", "precedence")
    cel_type = SEMVER

    def __init__(self, major: int, minor: int, patch: int, prerelease: tuple[int | str, ...]) -> None:
        self.major = major
        self.minor = minor
        self.patch = patch
        # A release comes after its pre-releases; numbers come before words; more identifiers come later.
        identifiers = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in prerelease)
        self.precedence = (major, minor, patch, not prerelease, identifiers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self.precedence == other.precedence

    def __hash__(self) -> int:
        return hash(self.precedence)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        identifiers = self.precedence[4]
        if not identifiers:
            return text
        return text + "-" + ".".join(word if kind else str(number) for kind, number, word in identifiers)

    def __repr__(self) -> str:
        return f"Semver({str(self)!r})"

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1."""
        return (self.precedence > other.precedence) - (self.precedence < other.precedence)


def _is_number(text: str) -> bool:
    return bool(text) and all(char in _DIGITS for char in text)


def _component(name: str, text: str) -> int:
    if not _is_number(text):
        raise ValueError(f'Invalid character(s) found in {name.lower()} number "{text}"')
    if len(text) > 1 and text[0] == "0":
        raise ValueError(f'{name} number must not contain leading zeroes "{text}"')
    value = int(text) if len(text) < 32 else _UINT64
    if value >= _UINT64:
        raise ValueError(f'strconv.ParseUint: parsing "{text}": value out of range')
    return value


def _identifier(text: str) -> int | str:
    if not text:
        raise ValueError("Prerelease is empty")
    if _is_number(text):
        if len(text) > 1 and text[0] == "0":
            raise ValueError(f'Numeric PreRelease version must not contain leading zeroes "{text}"')
        return int(text[:400])
    if any(char not in _ALPHANUMERIC for char in text):
        raise ValueError(f'Invalid character(s) found in prerelease "{text}"')
    return text


@lru_cache(maxsize=16384)
def parse_semver(text: str) -> Semver:
    """The version that a text spells. Raises ValueError."""
    if not text:
        raise ValueError("Version string empty")
    parts = text.split(".", 2)
    if len(parts) != 3:
        raise ValueError("No Major.Minor.Patch elements found")
    rest, plus, build = parts[2].partition("+")
    patch, minus, prerelease = rest.partition("-")
    major_number, minor_number = _component("Major", parts[0]), _component("Minor", parts[1])
    patch_number = _component("Patch", patch)
    identifiers = tuple(_identifier(part) for part in prerelease.split(".")) if minus else ()
    if plus:
        for part in build.split("."):
            if not part:
                raise ValueError("Build meta data is empty")
            if any(char not in _ALPHANUMERIC for char in part):
                raise ValueError(f'Invalid character(s) found in build meta data "{part}"')
    return Semver(major_number, minor_number, patch_number, identifiers)


def _normalized(text: str) -> str:
    parts = text.removeprefix("v").split(".", 2)
    for position, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[position] = stripped if stripped and stripped[0] in _DIGITS else f"0{stripped}"
    if len(parts) < 3 and any(char in "+-" for char in parts[-1]):
        raise ValueError("short version cannot contain PreRelease/Build meta data")
    return ".".join(parts + ["0"] * (3 - len(parts)))


def _semver(text: str, normalize: bool = False) -> Semver:
    try:
        return parse_semver(_normalized(text) if normalize else text)
    except ValueError as error:
        raise EvaluationError(str(error)) from None


def _is_semver(text: str, normalize: bool = False) -> bool:
    try:
        parse_semver(_normalized(text) if normalize else text)
    except ValueError:
        return False
    return True


def _number(value: int) -> int:
    # The reference stores components as unsigned and hands them out as signed.
    return value - _UINT64 if value >= 1 << 63 else value


_PAIR = (SEMVER, SEMVER)

SEMVERS = Library(
    "kubernetes.Semver",
    {
        "semver": (
            function("string_to_semver", (STRING,), SEMVER, _semver),
            function("string_bool_to_semver", (STRING, BOOL), SEMVER, _semver),
        ),
        "isSemver": (
            function("is_semver_string", (STRING,), BOOL, _is_semver),
            function("is_semver_string_bool", (STRING, BOOL), BOOL, _is_semver),
        ),
        "isGreaterThan": (
            member("semver_is_greater_than", _PAIR, BOOL, lambda one, other: one.precedence > other.precedence),
        ),
        "isLessThan": (
            member("semver_is_less_than", _PAIR, BOOL, lambda one, other: one.precedence < other.precedence),
        ),
        "compareTo": (member("semver_compare_to", _PAIR, INT, Semver.compare),),
        "major": (member("semver_major", (SEMVER,), INT, lambda value: _number(value.major)),),
        "minor": (member("semver_minor", (SEMVER,), INT, lambda value: _number(value.minor)),),
        "patch": (member("semver_patch", (SEMVER,), INT, lambda value: _number(value.patch)),),
    },
    types=(SEMVER,),
)
