"""The formats that strings of custom resources may be asked for.

Source: the formats that apiextensions supports in 1.36, as behaviour of its checks.
"""

from __future__ import annotations

import ipaddress
import re
import unicodedata
from collections.abc import Callable, Mapping
from datetime import date
from typing import Final

from haru.kube.custom.mail_addresses import is_mail_address
from haru.kube.durations import nanoseconds_of
from haru.kube.names import without_leading_zeros
from haru.kube.urls import parse_request_uri

Check = Callable[[str], bool]
_LARGEST = 2**63 - 1


def _matching(pattern: str) -> Check:
    return lambda text: re.fullmatch(pattern, text) is not None


def _parsed_by(parse: Callable[[str], object]) -> Check:
    def check(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return check


# --- addresses


def _is_ipv4(text: str) -> bool:
    """Also an IPv4 address in the notation of IPv6, and numbers with leading zeros."""
    return "." in text and _is_address(without_leading_zeros(text))


def _is_ipv6(text: str) -> bool:
    return ":" in text and _is_address(text)


_PARSES = _parsed_by(ipaddress.ip_address)


def _is_address(text: str) -> bool:
    return "%" not in text and _PARSES(text)


def _is_cidr(text: str) -> bool:
    address, _, bits = text.partition("/")
    address = without_leading_zeros(address)
    if re.fullmatch("0*[0-9]{1,3}", bits) is None or not _is_address(address):
        return False
    return int(bits[-3:]) <= ipaddress.ip_address(address).max_prefixlen


_BYTE = "[0-9A-Fa-f]{2}"
_MAC = "|".join(
    f"(?:{first}{separator}){{{more}}}{first}"
    for first, separator, times in ((_BYTE, ":", 1), (_BYTE, "-", 1), (_BYTE * 2, r"\.", 2), (_BYTE, "", 1))
    for more in (6 // times - 1, 8 // times - 1, 20 // times - 1)
)

_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_PART = "[a$0]"
_HOSTNAME = _matching(f"{_PART}(?:-?{_PART}{{0,62}})?|(?:{_PART}(?:[a$0-]{{0,61}}{_PART})?\\.)+a{{2,63}}")


def _is_hostname(text: str) -> bool:
    """Letters and symbols of any script, too."""
    is_short = len(text.encode("utf-8", "replace")) <= 255
    parts = text.split(".")
    return (
        is_short
        and all(len(part.encode("utf-8", "replace")) <= 63 for part in parts)
        and _HOSTNAME("".join(map(_class_of, text)))
    )


def _class_of(char: str) -> str:
    if char in "0123456789":
        return "0"
    category = unicodedata.category(char)[0]
    return "a" if category == "L" else "$" if category == "S" else char if char in ".-" else " "


# --- times

_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile("([0-9]{2}):([0-9]{2}):([0-9]{2})(?:.[0-9]+)?(?:z|[+-][0-9]{2}:[0-9]{2})")
_UNIT = re.compile(r"(?<![0-9])(?=[0-9])0*+([0-9]*+)[ \t\n\f\r]*+([A-Za-zµ]++)")
_UNITS = frozenset(["ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"])
_LONG_UNITS = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")


def _is_date(text: str) -> bool:
    found = _DATE.fullmatch(text)
    return found is not None and _is_day(text)


@_parsed_by
def _is_day(text: str) -> date:
    return date(int(text[:4]) or 400, int(text[5:7]), int(text[8:]))  # the year 0 is a leap year, as 400 is


def _is_date_time(text: str) -> bool:
    day, *rest = text.lower().split("t")
    found = _TIME.fullmatch(rest[0]) if rest and _is_date(day) else None
    return found is not None and found[1] <= "23" and found[2] <= "59" and found[3] <= "59"


def _is_duration(text: str) -> bool:
    """Go's notation, or numbers with units anywhere in a text, as Scala has them."""
    try:
        if -_LARGEST - 1 <= nanoseconds_of(text) <= _LARGEST:
            return True
    except ValueError:
        pass
    found = _UNIT.findall(text)
    is_bounded = all(len(number) < 20 and int(number or "0") <= _LARGEST for number, _ in found)
    return is_bounded and any(unit.lower() in _UNITS or unit.lower().startswith(_LONG_UNITS) for _, unit in found)


# --- numbers with check digits

_CARD = _matching(
    "4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9]{2})[0-9]{12}|3[47][0-9]{13}"
    "|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11}"
)


def _is_card(text: str) -> bool:
    number = re.sub("[^0-9]+", "", text)
    doubled = [2 * int(digit) if place % 2 else int(digit) for place, digit in enumerate(reversed(number))]
    return _CARD(number) and sum(each - 9 if each > 9 else each for each in doubled) % 10 == 0


def _book_number(text: str) -> str:
    return re.sub(r"[ \t\n\f\r-]+", "", text)


def _is_isbn10(text: str) -> bool:
    number = _book_number(text)
    if re.fullmatch("[0-9]{9}[0-9X]", number) is None:
        return False
    return sum(place * (10 if digit == "X" else int(digit)) for place, digit in enumerate(number, 1)) % 11 == 0


def _is_isbn13(text: str) -> bool:
    number = _book_number(text)
    if re.fullmatch("[0-9]{13}", number) is None:
        return False
    return sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(number)) % 10 == 0


_SHADE = r"[ \t\n\f\r]*(?:0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])[ \t\n\f\r]*"
_UUID = "(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?%s-?%s-?[0-9a-f]{12}"
_ANY, _VARIANT = "[0-9a-f]{4}", "[89ab][0-9a-f]{3}"

FORMATS: Final[Mapping[str, Check]] = {
    "bsonobjectid": _matching("[0-9a-fA-F]{24}"),
    "byte": _matching("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "cidr": _is_cidr,
    "creditcard": _is_card,
    "date": _is_date,
    "datetime": _is_date_time,
    "duration": _is_duration,
    "email": is_mail_address,
    "hexcolor": _matching("#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "hostname": _is_hostname,
    "ipv4": _is_ipv4,
    "ipv6": _is_ipv6,
    "isbn": lambda text: _is_isbn10(text) or _is_isbn13(text),
    "isbn10": _is_isbn10,
    "isbn13": _is_isbn13,
    "k8sshortname": _matching(f"(?=.{{1,63}}$){_LABEL}"),
    "k8slongname": _matching(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*"),
    "mac": _matching(_MAC),
    "password": lambda text: True,
    "rgbcolor": _matching(rf"rgb\({_SHADE},{_SHADE},{_SHADE}\)"),
    "ssn": _matching("[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}"),
    "uri": _parsed_by(parse_request_uri),
    "uuid": _matching(_UUID % (_ANY, _ANY)),
    "uuid3": _matching(_UUID % ("3[0-9a-f]{3}", _ANY)),
    "uuid4": _matching(_UUID % ("4[0-9a-f]{3}", _VARIANT)),
    "uuid5": _matching(_UUID % ("5[0-9a-f]{3}", _VARIANT)),
}
"""By name without its hyphens; a format that is not among them judges nothing."""


def check_of(name: str) -> Check | None:
    """The check of a format; hyphens in its name say nothing."""
    return FORMATS.get(name.replace("-", ""))
