"""Named formats of API fields: `format.dns1123Label().validate(name)` answers the faults, or none."""

from __future__ import annotations

from collections.abc import Callable

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.libraries.timestamps import parse_timestamp
from haru.cel.overloads import Overload, function, member
from haru.cel.types import STRING, list_of, optional_of, struct
from haru.cel.values import NONE, Optional
from haru.kube.urls import parse_request_uri

FORMAT_TYPE = struct("kubernetes.NamedFormat")

_HEX = frozenset("0123456789abcdefABCDEF")
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
Check = Callable[[str], list[str]]


class Format:
    """A format: its name, its check, and how long a regular expression for it would be (for costs)."""

    __slots__ = ("check", "name", "regex_size")
    cel_type = FORMAT_TYPE

    def __init__(self, name: str, check: Check, regex_size: int) -> None:
        self.name = name
        self.check = check
        self.regex_size = regex_size

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)


def _named_check(function: str) -> Check:
    """A check of `haru.kube.names`, which is imported when it is first needed."""

    def run(text: str) -> list[str]:
        from haru.kube import names

        found: list[str] = getattr(names, function)(text)
        return found

    return run


def _prefix(check: Check) -> Check:
    """The check for the beginning of a generated name: a dash at the end is fine there."""

    def run(text: str) -> list[str]:
        return check(text[:-1] + "a" if text.endswith("-") and len(text) > 1 else text)

    return run


def _uri(text: str) -> list[str]:
    try:
        parse_request_uri(text)
    except ValueError as error:
        return [str(error)]
    return []


def _uuid(text: str) -> list[str]:
    groups = text.split("-")
    plain = len(groups) == 1 and len(text) == 32
    dashed = [len(group) for group in groups] == [8, 4, 4, 4, 12]
    if (plain or dashed) and all(char in _HEX for group in groups for char in group):
        return []
    return ["does not match the UUID format"]


def _byte(text: str) -> list[str]:
    digits = text.rstrip("=")
    padding = len(text) - len(digits)
    valid = len(text) % 4 == 0 and padding <= 2 and all(char in _BASE64 for char in digits)
    return [] if valid else ["invalid base64"]


def _moment(text: str, message: str) -> list[str]:
    try:
        parse_timestamp(text)
    except EvaluationError:
        return [message]
    return []


def _date(text: str) -> list[str]:
    return _moment(f"{text}T00:00:00Z", "invalid date")


def _datetime(text: str) -> list[str]:
    return _moment(text.replace(" ", "T", 1), "invalid datetime")


_LABEL = _named_check("is_dns1123_label")
_SUBDOMAIN = _named_check("is_dns1123_subdomain")
_OLD_LABEL = _named_check("is_dns1035_label")

FORMATS: dict[str, Format] = {
    "dns1123Label": Format("DNS1123Label", _LABEL, 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", _SUBDOMAIN, 60),
    "dns1035Label": Format("DNS1035Label", _OLD_LABEL, 30),
    "qualifiedName": Format("QualifiedName", _named_check("is_qualified_name"), 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _prefix(_LABEL), 30),
    "dns1123SubdomainPrefix": Format("DNS1123SubdomainPrefix", _prefix(_SUBDOMAIN), 60),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _prefix(_OLD_LABEL), 30),
    "labelValue": Format("LabelValue", _named_check("is_label_value"), 40),
    "uri": Format("URI", _uri, 1_103),
    "uuid": Format("uuid", _uuid, 74),
    "byte": Format("byte", _byte, 84),
    "date": Format("date", _date, 120),
    "datetime": Format("datetime", _datetime, 120),
}


def _named(name: str) -> Optional:
    found = FORMATS.get(name)
    return NONE if found is None else Optional(found)


def _validate(format: Format, text: str) -> Optional:
    problems = format.check(text)
    return Optional(problems) if problems else NONE


def _constant(name: str) -> tuple[Overload, ...]:
    found = FORMATS[name]
    return (function(f"format.{name}", (), FORMAT_TYPE, lambda: found),)


FORMAT = Library(
    "kubernetes.format",
    {
        "validate": (member("format-validate", (FORMAT_TYPE, STRING), optional_of(list_of(STRING)), _validate),),
        "format.named": (function("format-named", (STRING,), optional_of(FORMAT_TYPE), _named),),
        **{f"format.{name}": _constant(name) for name in FORMATS},
    },
    types=(FORMAT_TYPE,),
)
