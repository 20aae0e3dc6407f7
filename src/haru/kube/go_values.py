"""Values as Go prints them: messages of 1.36 show JSON values in these forms.

Source: Go's `fmt` (`%v`, `%#v`, `%T`) and `strconv`, as behaviour.
"""

from __future__ import annotations

import json
import math
import os
import re
from types import NoneType
from typing import Any, Final, Self

_FIRST_EXPONENT: Final = 6
"""From this power of ten on, Go writes an exponent where it may choose."""
HTML_ESCAPES: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
"""What Go's JSON escapes in texts."""
_LARGEST_INT: Final = 2**63 - 1


class NullValue(int):
    """The null of an expression, which Go knows as a number with a name."""


NULL_VALUE: Final = NullValue(0)


class GoText(str):
    """The JSON text of a value that Go has in a type of its own: a time, a duration, bytes."""

    def __new__(cls, text: str, go_type: str, shown: str, syntax: str) -> Self:
        """Make one from its text, its type, and how `%v` and `%#v` print it."""
        made = super().__new__(cls, text)
        made.go_type, made.shown, made.syntax = go_type, shown, syntax
        return made

    go_type: str
    shown: str
    syntax: str


def dial_problem(host: str, port: int | str, error: OSError) -> str:
    """Say why there is no connection to a host, as Go's `net` does."""
    place = f"dial tcp [{host}]:{port}" if ":" in host else f"dial tcp {host}:{port}"
    number = error.errno or 0
    return f"{place}: connect: {os.strerror(number).lower()}" if number > 0 else f"{place}: {error}"


_NOT_DIALED = re.compile(
    r"failed to connect to all addresses; last error: \w+: unix:(?P<path>.+): connect failed: .+ error: (?P<why>.+)"
)
"""What gRPC's C library says of a socket to which there is no connection."""


def rpc_error(code: str, details: str) -> str:
    """Print the error of a gRPC call, by the name of its status as gRPC writes it, as its Go client does."""
    if found := _NOT_DIALED.fullmatch(details):
        problem = f"transport: Error while dialing: dial unix {found['path']}: connect: {found['why'].lower()}"
        details = f'connection error: desc = "{problem}"'
    name = "Canceled" if code == "CANCELLED" else "".join(word.capitalize() for word in code.split("_"))
    return f"rpc error: code = {name} desc = {details}"


def go_type(value: Any) -> str:
    """Name the type of a JSON value (`%T`)."""
    if isinstance(value, GoText):
        return value.go_type
    names = {
        str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}",
        dict: "map[string]interface {}", NoneType: "<nil>", NullValue: "structpb.NullValue",
    }  # fmt: skip
    return names[type(value)]


def go_value(value: Any) -> str:
    """Print a JSON value as `%v` does."""
    if isinstance(value, dict):
        return f"map[{' '.join(f'{key}:{go_value(value[key])}' for key in sorted(value))}]"
    if isinstance(value, list):
        return f"[{' '.join(map(go_value, value))}]"
    if isinstance(value, NullValue):
        return "NULL_VALUE"
    if isinstance(value, GoText):
        return value.shown
    return "<nil>" if value is None else value if isinstance(value, str) else _scalar(value)


def go_syntax(value: Any) -> str:
    """Print a JSON value as `%#v` does, in Go's own syntax."""
    if isinstance(value, dict):
        inside = ", ".join(f"{json.dumps(key)}:{go_syntax(value[key])}" for key in sorted(value))
        return f"map[string]interface {{}}{{{inside}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(go_syntax, value))}}}"
    if value is None:
        return "interface {}(nil)"
    if isinstance(value, GoText):
        return value.syntax
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else _scalar(value)


def _scalar(value: float) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # JSON's numbers without a fraction are integers as long as they fit.
    if value == value // 1 and -_LARGEST_INT - 1 <= value <= _LARGEST_INT:
        return str(int(value))
    return format_double(float(value))


def format_double(value: float) -> str:
    """A double as Go's shortest form (`%g`): `1`, `1.5`, `123456`, `1e+06`, `+Inf`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    digits, power = _digits_and_power(value)
    if -4 <= power < _FIRST_EXPONENT:
        return plain_double(value)
    tail = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{_sign(value)}{digits[0]}{tail}e{'-' if power < 0 else '+'}{abs(power):02d}"


def plain_double(value: float) -> str:
    """A finite double in its shortest form without an exponent."""
    digits, power = _digits_and_power(value)
    if power < 0:
        return f"{_sign(value)}0.{'0' * (-power - 1)}{digits}"
    if len(digits) <= power + 1:
        return _sign(value) + digits + "0" * (power + 1 - len(digits))
    return f"{_sign(value)}{digits[: power + 1]}.{digits[power + 1 :]}"


def _sign(value: float) -> str:
    return "-" if math.copysign(1.0, value) < 0 else ""


def _digits_and_power(value: float) -> tuple[str, int]:
    """Significant digits, and the power of ten of the first one."""
    if value == 0:
        return "0", 0
    mantissa, _, exponent = f"{value!r}".partition("e")
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    power = len(whole) - 1 + int(exponent or "0")
    if not whole.strip("0"):
        power = int(exponent or "0") - (len(fraction) - len(fraction.lstrip("0")) + 1)
    return (whole + fraction).strip("0"), power


def go_duration(ns: int) -> str:
    """Print a span of nanoseconds as `time.Duration` does: `1m30s`, `1.5s`, `20µs`."""
    if abs(ns) < 10**9:
        for unit, size in (("ms", 10**6), ("µs", 10**3), ("ns", 1)):
            if abs(ns) >= size:
                return f"{plain_double(ns / size)}{unit}"
        return "0s"
    seconds, fraction = divmod(abs(ns), 10**9)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    decimals = f".{fraction:09d}".rstrip("0") if fraction else ""
    larger = f"{hours}h{minutes}m" if hours else f"{minutes}m" if minutes else ""
    return f"{'-' if ns < 0 else ''}{larger}{seconds}{decimals}s"


LARGE: Final = float(1 << 63)
"""From here on a whole number is none of 64 bits, and is kept as it is: JSON is encoded of no larger ones."""


def without_fractions(value: Any) -> Any:
    """The value with whole numbers as integers (`1e3` is 1000), which is how 1.36 writes them; itself where none is."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < LARGE else value
    if isinstance(value, dict):
        made = {name: without_fractions(inner) for name, inner in value.items()}
        return made if any(made[name] is not inner for name, inner in value.items()) else value
    if isinstance(value, list):
        items = [without_fractions(inner) for inner in value]
        return items if any(one is not inner for one, inner in zip(items, value, strict=True)) else value
    return value
