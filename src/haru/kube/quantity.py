"""Quantities (`100m`, `1.5Gi`, `1e3`): exact numbers with the notation they were written in.

A quantity is an integer count of nano units plus the notation (`DecimalSI`, `BinarySI`, `DecimalExponent`) in which it
prints. Nothing finer than a nano unit exists: parsing rounds away from zero, so that a request for something never
becomes a request for nothing. Source: k8s.io/apimachinery `api/resource`, as behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache, total_ordering
from typing import Final, Literal

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

FORMAT_ERROR: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
SUFFIX_ERROR: Final = "unable to parse quantity's suffix"

_NANO: Final = 10**9
_MAX: Final = 2**63 - 1
_PARTS: Final = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def _divide_up(value: int, by: int) -> int:
    """`value / by`, rounded away from zero."""
    return -(-value // by) if value >= 0 else value // by


@total_ordering
class Quantity:
    """An exact amount; immutable, hashable by amount, ordered by amount (the notation does not take part).

    `scale` is the power of ten in which 1.36 keeps the number in 64 bits, or None where it keeps a big decimal: what
    selectors may use as an integer follows from that.
    """

    __slots__ = ("format", "nano", "scale")

    nano: int
    format: Format
    scale: int | None

    def __init__(self, nano: int, format: Format = "DecimalSI", scale: int | None = None) -> None:
        self.nano = nano
        self.format = format
        self.scale = scale

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: Quantity) -> bool:
        return self.nano < other.nano

    def __hash__(self) -> int:
        return hash(self.nano)

    def __bool__(self) -> bool:
        return self.nano != 0

    def __add__(self, other: Quantity) -> Quantity:
        return self._with(other, self.nano + other.nano)

    def __sub__(self, other: Quantity) -> Quantity:
        return self._with(other, self.nano - other.nano)

    def _with(self, other: Quantity, nano: int) -> Quantity:
        return Quantity(nano, self.format if self.nano else other.format, self._joint_scale(other, nano))

    def _joint_scale(self, other: Quantity, nano: int) -> int | None:
        if self.scale is None or other.scale is None:
            return None
        if not other.nano or not self.nano:
            return self.scale if self.nano or not other.nano else other.scale
        scale = min(self.scale, other.scale)
        return scale if all(_fits(value, scale) for value in (self.nano, other.nano, nano)) else None

    def __neg__(self) -> Quantity:
        return Quantity(-self.nano, self.format, self.scale)

    def __mul__(self, factor: int) -> Quantity:
        return Quantity(self.nano * factor, self.format)

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1, as `Cmp`."""
        return (self.nano > other.nano) - (self.nano < other.nano)

    def value(self) -> int:
        """Whole units, rounded away from zero."""
        return _divide_up(self.nano, _NANO)

    def milli(self) -> int:
        """Thousandths, rounded away from zero."""
        return _divide_up(self.nano, 10**6)

    def is_integer(self) -> bool:
        """Whether the amount is a whole number of units."""
        return self.nano % _NANO == 0

    def __str__(self) -> str:
        if not self.nano:
            return "0"
        if self.format == "BinarySI" and self.is_integer() and abs(self.nano) >= 1024 * _NANO:
            return _binary_text(self.nano // _NANO)
        return _decimal_text(self.nano, self.format)

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"


def _fits(nano: int, scale: int) -> bool:
    """Whether an amount, in units of a power of ten, is a number of 64 bits."""
    limit: int = _MAX * 10 ** (scale + 9)
    return abs(nano) <= limit


def _binary_text(units: int) -> str:
    power = 0
    while power < 6 and units % 1024 == 0:
        units //= 1024
        power += 1
    return f"{units}{_BINARY_SUFFIX[power]}"


def _decimal_text(nano: int, format: Format) -> str:
    mantissa, exponent = nano, -9
    while mantissa % 1000 == 0:
        mantissa //= 1000
        exponent += 3
    if format == "DecimalExponent" or exponent > 18:
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{_DECIMAL_SUFFIX[exponent]}"


def parse_quantity(text: str | int | float) -> Quantity:
    """The quantity that a JSON string or number stands for; ValueError worded as 1.36 does otherwise."""
    if isinstance(text, bool):
        raise ValueError(FORMAT_ERROR)
    if isinstance(text, int):
        return _parse(str(text)) if abs(text) <= _MAX else Quantity(text * _NANO)
    return _parse(text if isinstance(text, str) else repr(text))


@lru_cache(maxsize=16384)
def _parse(text: str) -> Quantity:
    parts = _PARTS.fullmatch(text)
    if parts is None or not text:
        raise ValueError(FORMAT_ERROR)
    sign, whole, fraction, suffix = parts.groups(default="")
    digits = int(whole + fraction or "0")
    format: Format
    if suffix in _BINARY:
        format = "BinarySI"
        scaled, divisor = digits << _BINARY[suffix], 10 ** len(fraction)
    else:
        format, exponent = _decimal_exponent(suffix)
        shift = exponent - len(fraction)
        scaled, divisor = (digits * 10**shift, 1) if shift >= 0 else (digits, 10**-shift)
    nano = -(-scaled * _NANO // divisor)
    if format == "BinarySI":
        nano = min(nano, _MAX * _NANO)
        if nano < _NANO:
            format = "DecimalSI"
    scale = _scale(whole.lstrip("0") or "0", fraction, suffix, nano)
    return Quantity(-nano if sign == "-" else nano, format, scale)


def _scale(whole: str, fraction: str, suffix: str, nano: int) -> int | None:
    """The power of ten in which 1.36 keeps what it has just read, or None for a big decimal."""
    if suffix in _BINARY:
        # It estimates how many digits the product has, in single precision, and puts one on top.
        room = 15 - len(whole) - _BINARY[suffix] * 3 // 10 - 1
        return 0 if not fraction and room >= 0 and nano <= _MAX * _NANO else None
    scale = _decimal_exponent(suffix)[1] - len(fraction)
    return scale if len(whole) + len(fraction) <= 18 and scale >= -9 else None


def _decimal_exponent(suffix: str) -> tuple[Format, int]:
    exponent = _DECIMAL.get(suffix)
    if exponent is not None:
        return "DecimalSI", exponent
    if suffix[0] in "eE":
        try:
            exponent = int(suffix[1:])
        except ValueError:
            raise ValueError(SUFFIX_ERROR) from None
        if abs(exponent) > 1000:
            raise ValueError(SUFFIX_ERROR)
        return "DecimalExponent", exponent
    raise ValueError(SUFFIX_ERROR)


ZERO: Final = Quantity(0)


# --- the texts of a ResourceList -------------------------------------------------------------------------------------

_SMALLER: Final = ("u", "n", "e-6", "e-9")


@lru_cache(maxsize=8192)
def canonical_quantity(text: str) -> str:
    """The text that Go would write for it, or an empty text when it is no quantity."""
    try:
        return str(parse_quantity(text))
    except ValueError:
        return ""


def are_thousandths(quantities: Mapping[str, str]) -> bool:
    """Whether none of these canonical texts is finer than 1.36 keeps a ResourceList."""
    return not any(text.endswith(_SMALLER) for text in quantities.values())


def in_thousandths(quantities: Mapping[str, str]) -> dict[str, str]:
    """Quantities as 1.36 keeps a ResourceList: rounded up to thousandths."""
    found = {name: parse_quantity(text) for name, text in quantities.items()}
    return {name: str(Quantity(one.milli() * 10**6, one.format)) for name, one in found.items()}
