"""The formats that strings (and numbers) of custom resources may be asked for.

Source: the formats that apiextensions supports in 1.36; a format that is not among them judges nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any, Final
from urllib.parse import urlsplit

_UUID = {
    "uuid": re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
    "uuid3": re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}"),
    "uuid4": re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}"),
    "uuid5": re.compile(r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}"),
}
_DURATION = re.compile(r"\s*(?:[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*[A-Za-zµ]+\s*)+|[+-]?0")
_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:[.,][0-9]+)?(?:[Zz]|[+-][0-9]{2}:?[0-9]{2})"
)
_HOSTNAME = re.compile(
    r"(?=.{1,255}\.?$)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*\.?"
)
_EMAIL = re.compile(r"[^@\s<>()\[\],;:\"]+@[^@\s<>()\[\],;:\"]+")
_LABEL = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(rf"{_LABEL.pattern}(?:\.{_LABEL.pattern})*")
_SHADE = r"\s*(?:0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*"
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})")
_OTHERS = {
    "bsonobjectid": re.compile(r"[0-9a-fA-F]{24}"),
    "hexcolor": re.compile(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": re.compile(rf"rgb\({_SHADE},{_SHADE},{_SHADE}\)"),
    "ssn": re.compile(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}"),
}


def _text(check: Callable[[str], bool]) -> Callable[[Any], bool]:
    """A format of texts says nothing of other values."""
    return lambda value: not isinstance(value, str) or check(value)


def _matching(form: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: form.fullmatch(text) is not None


def _raises_not(parse: Callable[[str], object]) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            parse(value)
        except ValueError:
            return False
        return True

    return check


def _is_date_time(value: str) -> bool:
    if not _DATE_TIME.fullmatch(value):
        return False
    try:
        datetime.fromisoformat(re.sub(r"[.,][0-9]+", "", value.upper().replace(" ", "T")))
    except ValueError:
        return False
    return True


def _is_uri(value: str) -> bool:
    try:
        parts = urlsplit(value)
    except ValueError:
        return False
    return bool(parts.scheme) or value.startswith("/")


FORMATS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "byte": _text(_matching(_BASE64)),
    "cidr": _text(_raises_not(lambda text: ipaddress.ip_network(text, strict=False))),
    "date": _text(_raises_not(date.fromisoformat)),
    "date-time": _text(_is_date_time),
    "datetime": _text(_is_date_time),
    "duration": _text(lambda text: _DURATION.fullmatch(text) is not None),
    "email": _text(lambda text: _EMAIL.fullmatch(text) is not None),
    "hostname": _text(lambda text: _HOSTNAME.fullmatch(text) is not None),
    "ipv4": _text(_raises_not(ipaddress.IPv4Address)),
    "ipv6": _text(_raises_not(ipaddress.IPv6Address)),
    "k8s-short-name": _text(lambda text: len(text) <= 63 and _LABEL.fullmatch(text) is not None),
    "k8s-long-name": _text(lambda text: len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None),
    "mac": _text(lambda text: re.fullmatch(r"(?i)[0-9a-f]{2}([:-][0-9a-f]{2}){5,7}", text) is not None),
    "uri": _text(_is_uri),
    **{name: _text(_matching(form)) for name, form in (_UUID | _OTHERS).items()},
}
