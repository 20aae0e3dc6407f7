"""Text to tokens.

Escapes are decoded and numbers are read here, so that every fault inside a token has the token's place.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from haru.cel.errors import Issue

_IDENT_START = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")
_DIGITS = frozenset("0123456789")
_IDENT_PART = _IDENT_START | _DIGITS
_HEX = frozenset("0123456789abcdefABCDEF")
_SPACE = frozenset(" \t\r\n\f")
_PAIRS = frozenset(("==", "!=", "<=", ">=", "&&", "||"))
_SINGLES = frozenset("<>[]{}().,-!?:+*/%")
_QUOTED_FIELD = _IDENT_PART | frozenset(".-/ ")
_SIMPLE_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "`": "`",
    "?": "?",
}
KEYWORDS = frozenset(("true", "false", "null", "in"))

_PLAIN = re.compile(
    r"""
    [ \t\r\n\f]*
    (?:
        (?P<ident> [A-Za-z_] [A-Za-z0-9_]* (?! [A-Za-z0-9_'"] ) )
      | ' (?P<single> [^'\\\r\n]+ ) '
      | " (?P<double> [^"\\\r\n]+ ) "
      | (?P<operator> == | != | <= | >= | && | \|\| | [<>\[\]{}(),\-!?:+*%] | \. (?! [0-9] ) | / (?! / ) )
    )
    """,
    re.VERBOSE,
)
"""What nearly all of any expression consists of, up to its next token; the rest is read character by character."""


class Token(NamedTuple):
    """`kind` is the punctuation or keyword itself, or one of ident, quoted, int, uint, float, string, bytes, eof."""

    kind: str
    text: str
    offset: int
    value: Any = None


class LexError(Exception):
    """A character sequence that begins no token."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.issue = Issue(offset, message)


def _unknown(text: str, start: int, end: int) -> LexError:
    return LexError(start, f"Syntax error: token recognition error at: '{text[start:end]}'")


def tokenize(text: str) -> list[Token]:
    """All tokens, with an `eof` at the end. Raises LexError."""
    tokens: list[Token] = []
    match = _PLAIN.match
    position, length = 0, len(text)
    while position < length:
        plain = match(text, position)
        if plain is not None:
            tokens.append(_plain_token(plain))
            position = plain.end()
            continue
        char = text[position]
        if char in _SPACE:
            position += 1
            continue
        if char == "/" and text.startswith("//", position):
            end = text.find("\n", position)
            position = length if end < 0 else end + 1
            continue
        token, position = _token(text, position)
        tokens.append(token)
    tokens.append(Token("eof", "<EOF>", length))
    return tokens


_IDENT, _OPERATOR = _PLAIN.groupindex["ident"], _PLAIN.groupindex["operator"]


def _plain_token(found: re.Match[str]) -> Token:
    kind = found.lastindex
    assert kind is not None
    text, start = found[kind], found.start(kind)
    if kind == _OPERATOR:
        return Token(text, text, start)
    if kind == _IDENT:
        return Token(text if text in KEYWORDS else "ident", text, start)
    return Token("string", found.string[start - 1 : found.end()], start - 1, text)


def _token(text: str, start: int) -> tuple[Token, int]:
    char = text[start]
    if char in _IDENT_START:
        prefix = _string_prefix(text, start)
        if prefix is not None:
            return _string(text, start, prefix)
        end = _run(text, start, _IDENT_PART)
        word = text[start:end]
        return Token(word if word in KEYWORDS else "ident", word, start), end
    if char in _DIGITS or (char == "." and text[start + 1 : start + 2] in _DIGITS and text[start + 1 : start + 2]):
        return _number(text, start)
    if char in "'\"":
        return _string(text, start, "")
    if char == "`":
        end = _run(text, start + 1, _QUOTED_FIELD)
        if end == start + 1 or text[end : end + 1] != "`":
            raise _unknown(text, start, end)
        return Token("quoted", text[start + 1 : end], start), end + 1
    if text[start : start + 2] in _PAIRS:
        return Token(text[start : start + 2], text[start : start + 2], start), start + 2
    if char in _SINGLES:
        return Token(char, char, start), start + 1
    raise _unknown(text, start, start + 1)


def _run(text: str, start: int, allowed: frozenset[str]) -> int:
    end = start
    while end < len(text) and text[end] in allowed:
        end += 1
    return end


def _number(text: str, start: int) -> tuple[Token, int]:
    if text[start] == "0" and text[start + 1 : start + 2] in ("x", "X"):
        end = _run(text, start + 2, _HEX)
        if end > start + 2:
            return _integer(text, start, end, 16)
    end = _run(text, start, _DIGITS)
    is_float = False
    if text[end : end + 1] == "." and text[end + 1 : end + 2] in _DIGITS and text[end + 1 : end + 2]:
        is_float = True
        end = _run(text, end + 1, _DIGITS)
    if text[end : end + 1] in ("e", "E"):
        digits = end + 1 + (text[end + 1 : end + 2] in ("+", "-"))
        after = _run(text, digits, _DIGITS)
        if after > digits:
            is_float = True
            end = after
    if is_float:
        return Token("float", text[start:end], start, float(text[start:end])), end
    return _integer(text, start, end, 10)


def _integer(text: str, start: int, end: int, base: int) -> tuple[Token, int]:
    digits = text[start:end]
    # A number with thousands of digits is out of range anyway, and Python refuses to read very long ones.
    value = int(digits, base) if len(digits) < 64 else 1 << 100
    if text[end : end + 1] in ("u", "U"):
        return Token("uint", text[start : end + 1], start, value), end + 1
    return Token("int", digits, start, value), end


def _string_prefix(text: str, start: int) -> str | None:
    prefix = ""
    for char in text[start : start + 3]:
        if char in "'\"":
            return prefix
        lowered = char.lower()
        if lowered not in "rb" or lowered in prefix or prefix == "r":  # br'…', but never rb'…'
            return None
        prefix += lowered
    return None


def _string(text: str, start: int, prefix: str) -> tuple[Token, int]:
    opening = start + len(prefix)
    quote = text[opening]
    triple = text.startswith(quote * 3, opening)
    delimiter = quote * 3 if triple else quote
    position = opening + len(delimiter)
    raw, is_bytes = "r" in prefix, "b" in prefix
    parts: list[str] = []
    data = bytearray()
    while True:
        if position >= len(text) or (not triple and text[position] in "\r\n"):
            raise _unknown(text, start, position)
        if text.startswith(delimiter, position):
            end = position + len(delimiter)
            break
        if text[position] == "\\" and not raw:
            value, position, is_byte = _escape(text, start, position, is_bytes)
        else:
            value, position, is_byte = ord(text[position]), position + 1, False
        if is_bytes:
            data += bytes((value,)) if is_byte else chr(value).encode("utf-8", "replace")
        else:
            parts.append(chr(value))
    token = text[start:end]
    if is_bytes:
        return Token("bytes", token, start, bytes(data)), end
    return Token("string", token, start, "".join(parts)), end


def _escape(text: str, start: int, position: int, is_bytes: bool) -> tuple[int, int, bool]:
    """The code of an escape, the position after it, and whether it stands for one byte rather than a character."""
    char = text[position + 1 : position + 2]
    if char in _SIMPLE_ESCAPES:
        return ord(_SIMPLE_ESCAPES[char]), position + 2, False
    if char in ("x", "X"):
        width, base, first = 2, 16, position + 2
    elif char == "u" and not is_bytes:
        width, base, first = 4, 16, position + 2
    elif char == "U" and not is_bytes:
        width, base, first = 8, 16, position + 2
    elif char and char in "0123":
        width, base, first = 3, 8, position + 1
    else:
        raise _unknown(text, start, position + 2)
    digits = text[first : first + width]
    allowed = _HEX if base == 16 else frozenset("01234567")
    if len(digits) != width or any(digit not in allowed for digit in digits):
        raise _unknown(text, start, position + 2)
    code = int(digits, base)
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise LexError(start, "Syntax error: invalid unicode code point")
    return code, first + width, is_bytes and width <= 3
