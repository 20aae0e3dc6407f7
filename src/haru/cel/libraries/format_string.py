"""`"%s is %d".format([...])`, in the two forms that exist.

Kubernetes has the older one: strings inside lists are quoted, times are spelled as calls, numbers are printed for an
English reader (`1,234.500000`, `2.718280 × 10⁰⁰`). The specification has since settled on plain text everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from haru.cel.ast import ListLiteral, MapLiteral, Node
from haru.cel.errors import EvaluationError
from haru.cel.libraries.timestamps import format_duration, format_timestamp
from haru.cel.types import DYN, Type
from haru.cel.values import Duration, Timestamp, Uint, Value, from_key, type_name
from haru.kube.go_values import format_double, plain_double

_PRECISION = 6
_MAX_PRECISION = 1_000
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_INFINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
Render = Callable[[Value], str]


_TEXTS = "strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps"
_ALLOWED = {
    "s": f"string clause can only be used on {_TEXTS}",
    "d": "decimal clause can only be used on integers",
    "f": "fixed-point clause can only be used on doubles",
    "e": "scientific clause can only be used on doubles",
    "b": "only integers and bools can be formatted as binary",
    "o": "octal clause can only be used on integers",
    "x": "only integers, byte buffers, and strings can be formatted as hex",
}
_KINDS = {
    "s": frozenset(
        ["list", "map", "int", "uint", "double", "bool", "string", "timestamp", "bytes", "duration", "type", "null"]
    ),
    "d": frozenset(("int", "uint")),
    "f": frozenset(("double", "string")),
    "e": frozenset(("double", "string")),
    "b": frozenset(("int", "uint", "bool")),
    "o": frozenset(("int", "uint")),
    "x": frozenset(("int", "uint", "string", "bytes")),
}
"""The types that a clause takes, as far as they are known without values."""


def _words(verb: str, given: str) -> str:
    return f"error during formatting: {_ALLOWED[verb.lower()]}, was given {given}"


def _mistake(verb: str, value: Value) -> EvaluationError:
    return EvaluationError(_words(verb, type_name(value)))


def check_format(text: str, args: Sequence[Node]) -> tuple[int, tuple[Node, str] | None]:
    """How many arguments a format string asks for, and the first that it does not take, with the reason.

    Raises EvaluationError for a text that is no format string, or asks for more.
    """
    position = used = 0
    while (mark := text.find("%", position)) >= 0:
        if text[mark + 1 : mark + 2] == "%":
            position = mark + 2
            continue
        _, position = _precision(text, mark + 1)
        verb = _verb(text, position, used, len(args))
        unfit = _unfit(verb, args[used])
        if unfit is not None:
            return used + 1, (unfit, _words(verb, str((unfit.type or DYN).name)))
        used += 1
        position += 1
    return used, None


def _verb(text: str, position: int, used: int, given: int) -> str:
    if position >= len(text):
        raise EvaluationError("unexpected end of string")
    if used >= given:
        raise EvaluationError(f"index {used} out of range")
    if text[position].lower() not in _ALLOWED or (text[position].isupper() and text[position] != "X"):
        raise EvaluationError(f'could not parse formatting clause: unrecognized formatting clause "{text[position]}"')
    return text[position]


def _unfit(verb: str, node: Node) -> Node | None:
    """The argument, or what is inside of it, if a clause cannot take it."""
    kind = (node.type or DYN).kind
    if kind != "dyn" and kind not in _KINDS[verb.lower()]:
        return node
    inside = node.children() if verb == "s" and isinstance(node, ListLiteral | MapLiteral) else ()
    return next((found for child in inside if (found := _unfit(verb, child)) is not None), None)


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
        made.append(_clause(_verb(text, position, used, len(args)), args[used], precision, quoted))
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
        raise EvaluationError(
            "could not parse formatting clause: error while parsing precision: "
            f"precision must be a number up to {_MAX_PRECISION}"
        )
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
        return format(_integer(verb, value), "b")
    if verb == "o":
        return format(_integer(verb, value), "o")
    return _hex(value, verb)


def _integer(verb: str, value: Value) -> int:
    if value.__class__ is not int and value.__class__ is not Uint:
        raise _mistake(verb, value)
    return int(value)


def _decimal(value: Value, quoted: bool) -> str:
    if not quoted and value.__class__ is float:
        return _spec_double(value)
    return str(_integer("d", value))


def _hex(value: Value, verb: str) -> str:
    if isinstance(value, str):
        value = value.encode("utf-8", "replace")
    if isinstance(value, bytes):
        return value.hex().upper() if verb == "X" else value.hex()
    return format(_integer(verb, value), verb)


def _double(verb: str, value: Value, quoted: bool) -> float:
    if value.__class__ is float:
        return float(value)
    if not quoted and value.__class__ in (int, Uint):
        return float(value)
    if quoted and isinstance(value, str) and value in _INFINITE:
        return _INFINITE[value]
    raise _mistake(verb, value)


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
    raise _mistake("s", value)


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
