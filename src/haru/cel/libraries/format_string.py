"""`"%s is %d".format([...])`, in the two forms that exist.

Kubernetes has the older one: strings inside lists are quoted, times are spelled as calls, numbers are printed for an
English reader (`1,234.500000`, `2.718280 × 10⁰⁰`). The specification has since settled on plain text everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from haru.cel.errors import EvaluationError
from haru.cel.libraries.conversions import format_double, plain_double
from haru.cel.libraries.timestamps import format_duration, format_timestamp
from haru.cel.types import Type
from haru.cel.values import Duration, Timestamp, Uint, Value, from_key, type_name

_PRECISION = 6
_MAX_PRECISION = 1_000
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_INFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
Render = Callable[[Value], str]


def _mistake(clause: str, allowed: str, value: Value) -> EvaluationError:
    return EvaluationError(
        f"error during formatting: {clause} clause can only be used on {allowed}, was given {type_name(value)}"
    )


def format_quoted(text: str, args: Sequence[Value]) -> str:
    """The form that Kubernetes has."""
    return _format(text, args, quoted=True)


def format_plain(text: str, args: Sequence[Value]) -> str:
    """The form of the specification."""
    return _format(text, args, quoted=False)


def _format(text: str, args: Sequence[Value], quoted: bool) -> str:
    made: list[str] = []
    position = used = 0
    while True:
        mark = text.find("%", position)
        if mark < 0:
            made.append(text[position:])
            return "".join(made)
        made.append(text[position:mark])
        if text[mark + 1 : mark + 2] == "%":
            made.append("%")
            position = mark + 2
            continue
        precision, position = _precision(text, mark + 1)
        if position >= len(text):
            raise EvaluationError("unexpected end of string")
        if used >= len(args):
            raise EvaluationError(f"index {used} out of range")
        made.append(_clause(text[position], args[used], precision, quoted))
        used += 1
        position += 1


def _precision(text: str, position: int) -> tuple[int, int]:
    if text[position : position + 1] != ".":
        return _PRECISION, position
    end = position + 1
    while end < len(text) and text[end] in "0123456789":
        end += 1
    digits = text[position + 1 : end]
    if not digits or len(digits) > 6 or int(digits) > _MAX_PRECISION:
        raise EvaluationError(f"error while parsing precision: precision must be a number up to {_MAX_PRECISION}")
    return int(digits), end


def _clause(verb: str, value: Value, precision: int, quoted: bool) -> str:
    if verb == "s":
        return _text(value, quoted)
    if verb == "d":
        return _decimal(value, quoted)
    if verb == "f":
        return _fixed(_double(verb, value, quoted), precision, quoted)
    if verb == "e":
        return _scientific(_double(verb, value, quoted), precision, quoted)
    if verb == "b":
        if value.__class__ is bool:
            return "1" if value else "0"
        return format(_integer("binary", "integers and bools", value), "b")
    if verb == "o":
        return format(_integer("octal", "integers", value), "o")
    if verb in ("x", "X"):
        return _hex(value, verb)
    raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{verb}"')


def _integer(clause: str, allowed: str, value: Value) -> int:
    if value.__class__ is not int and value.__class__ is not Uint:
        raise _mistake(clause, allowed, value)
    return int(value)


def _decimal(value: Value, quoted: bool) -> str:
    if not quoted and value.__class__ is float:
        return _spec_double(value)
    return str(_integer("decimal", "integers", value))


def _hex(value: Value, verb: str) -> str:
    if isinstance(value, str):
        value = value.encode("utf-8", "replace")
    if isinstance(value, bytes):
        return value.hex().upper() if verb == "X" else value.hex()
    return format(_integer("hex", "integers, byte buffers, and strings", value), verb)


def _double(verb: str, value: Value, quoted: bool) -> float:
    if value.__class__ is float:
        return float(value)
    if not quoted and value.__class__ in (int, Uint):
        return float(value)
    if quoted and isinstance(value, str) and value in _INFINITE:
        return _INFINITE[value]
    raise _mistake("fixed-point" if verb == "f" else "scientific", "doubles", value)


def _fixed(value: float, precision: int, quoted: bool) -> str:
    if not math.isfinite(value):
        return _english_infinity(value) if quoted else _spec_double(value)
    return f"{value:,.{precision}f}" if quoted else f"{value:.{precision}f}"


def _scientific(value: float, precision: int, quoted: bool) -> str:
    if not math.isfinite(value):
        return _english_infinity(value) if quoted else _spec_double(value)
    plain = f"{value:.{precision}e}"
    if not quoted:
        return plain
    mantissa, _, exponent = plain.partition("e")
    return f"{mantissa}\u202f×\u202f10{exponent.lstrip('+').translate(_SUPERSCRIPT)}"


def _english_infinity(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "∞" if value > 0 else "-∞"


def _spec_double(value: float) -> str:
    if math.isfinite(value):
        return plain_double(value)
    return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")


def _text(value: Value, quoted: bool) -> str:
    if value is None:
        return "null"
    if value.__class__ is bool:
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return format_double(value) if quoted else _spec_double(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Timestamp):
        return format_timestamp(value)
    if isinstance(value, Duration):
        return format_duration(value)
    if isinstance(value, Type):
        return value.name
    return _container(value, _nested if quoted else _plain_item, quoted)


def _plain_item(value: Value) -> str:
    """A value inside a list or map, in the form of the specification."""
    return _text(value, quoted=False)


def _container(value: Value, render: Render, quoted: bool) -> str:
    if isinstance(value, list | tuple):
        return f"[{', '.join(render(item) for item in value)}]"
    if isinstance(value, dict):
        entries = sorted((render(from_key(key)), render(item)) for key, item in value.items())
        colon = ":" if quoted else ": "
        return "{" + ", ".join(f"{key}{colon}{item}" for key, item in entries) + "}"
    allowed = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
    raise _mistake("string", allowed, value)


def _nested(value: Value) -> str:
    """A value inside a list or map, in the older form."""
    if isinstance(value, str):
        return _go_quote(value)
    if isinstance(value, bytes):
        return "b" + _go_quote(value.decode("utf-8", "replace"))
    if isinstance(value, float):
        return f"{value:.{_PRECISION}f}" if math.isfinite(value) else _go_quote(format_double(value))
    if isinstance(value, Timestamp):
        return f"timestamp({_go_quote(format_timestamp(value))})"
    if isinstance(value, Duration):
        return f"duration({_go_quote(format_duration(value))})"
    return _text(value, quoted=True)


def _go_quote(text: str) -> str:
    escapes = {'"': '\\"', "\\": "\\\\", "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r"}
    escapes |= {"\t": "\\t", "\v": "\\v"}
    return '"' + "".join(escapes.get(char) or (char if char.isprintable() else _code(char)) for char in text) + '"'


def _code(char: str) -> str:
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
