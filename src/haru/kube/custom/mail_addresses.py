"""Whether a text is one mail address: `a@b.c`, `Bob <a@b.c>`.

Source: Go's net/mail `ParseAddress`, as behaviour. Words are read whole (`++`), so that no text is read in two ways.
"""

from __future__ import annotations

import ipaddress
import re

_SPACE = r"[ \t]*+"
_NOT_ATOM = r"()<>\[\]:;@\\,\"\x00-\x20\x7f"
_DOTTED = rf"[^{_NOT_ATOM}.]++(?:\.[^{_NOT_ATOM}.]++)*(?!\.)"
_QUOTED = r'"(?:[^"\\\x00-\x08\x0a-\x1f\x7f]|\\[^\x00-\x08\x0a-\x1f\x7f])%s"'
_LITERAL = r"\[(?P<address>[^\[\]\\\x00-\x20\x7f]*+)\]"


def _comment(depth: int) -> str:
    inner = rf"|{_comment(depth - 1)}" if depth else ""
    return rf"\((?:[^()\\]|\\(?s:.){inner})*\)"


_COMMENTS = rf"{_SPACE}(?:{_comment(8)}{_SPACE})*"
_MAILBOX = rf"{_SPACE}(?:{_QUOTED % '+'}|{_DOTTED})@{_SPACE}(?:{_LITERAL}|{_DOTTED})"
_WORD = rf"{_SPACE}(?:{_QUOTED % '*'}|[^{_NOT_ATOM}]++)"
_PHRASE = rf"{_WORD}(?:{_COMMENTS}{_WORD})*{_COMMENTS}"
_ADDRESS = rf"{_SPACE}(?:%s{_COMMENTS}|(?:{_PHRASE})?{_SPACE}<%s>{_COMMENTS})"


def _address(prefix: str) -> str:
    return _ADDRESS % tuple(_MAILBOX.replace("address", f"{prefix}{number}") for number in (1, 2))


_ONE = rf"{_address('a')}|{_SPACE}{_PHRASE}:{_address('b')};{_COMMENTS}"


def is_mail_address(text: str) -> bool:
    """Whether a text is one address, perhaps with a name, comments, or as the only one of a group."""
    found = re.fullmatch(_ONE, text)
    return found is not None and all(_is_ip(literal) for literal in found.groupdict().values() if literal is not None)


def _is_ip(text: str) -> bool:
    try:
        return "%" not in text and bool(ipaddress.ip_address(text))
    except ValueError:
        return False
