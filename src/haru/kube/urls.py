"""URLs as requests name them: absolute, or an absolute path.

Source: Go's net/url `ParseRequestURI`, as behaviour.
"""

from __future__ import annotations

from typing import NamedTuple

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")
_UNRESERVED = _LETTERS | _DIGITS | frozenset("-_.~")
PATH = _UNRESERVED | frozenset("$&+,/:;=@")
"""What stands in a path as it is."""
_HOST = _UNRESERVED | frozenset("!$&'()*+,;=:[]<>\"")
_USER = _UNRESERVED | frozenset("!$&'()*+,;=:%@")


class UrlParts(NamedTuple):
    """What a URL consists of."""

    scheme: str
    opaque: bool
    user: str | None
    host: str
    path: str
    query: str


def unescape(text: str) -> bytes:
    """Percent-encoding undone. Raises ValueError."""
    made = bytearray()
    position = 0
    while position < len(text):
        if text[position] != "%":
            made += text[position].encode("utf-8", "replace")
            position += 1
            continue
        digits = text[position + 1 : position + 3]
        if len(digits) != 2 or digits[0] not in _HEX or digits[1] not in _HEX:
            raise _escape_error(text[position : position + 3])
        made.append(int(digits, 16))
        position += 3
    return bytes(made)


def _escape_error(text: str) -> ValueError:
    return ValueError(f'invalid URL escape "{text}"')


def parse_request_uri(text: str) -> UrlParts:
    """An absolute URL or an absolute path, as in a request. Raises ValueError worded as Go does."""
    try:
        return _parse(text)
    except ValueError as error:
        raise ValueError(f'parse "{text}": {error}') from None


def _parse(text: str) -> UrlParts:
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise ValueError("net/url: invalid control character in URL")
    if not text:
        raise ValueError("empty url")
    if text == "*":
        return UrlParts("", False, None, "", "*", "")
    scheme, rest = _split_scheme(text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return UrlParts(scheme, True, None, "", "", query)
        raise ValueError("invalid URI for request")
    user: str | None = None
    host = ""
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        user, host = _parse_authority(scheme, authority)
        rest = slash + path
    unescape(rest)
    return UrlParts(scheme, False, user, host, rest, query)


def _split_scheme(text: str) -> tuple[str, str]:
    for position, char in enumerate(text):
        if char in _LETTERS or (position > 0 and (char in _DIGITS or char in "+-.")):
            continue
        if char == ":" and position == 0:
            raise ValueError("missing protocol scheme")
        if char == ":":
            return text[:position].lower(), text[position + 1 :]
        return "", text
    return "", text


def _parse_authority(scheme: str, text: str) -> tuple[str | None, str]:
    user, at, host = text.rpartition("@")
    found = _parse_host(scheme, host)
    if at and any(ord(char) >= 0x80 or char not in _USER for char in user):
        raise ValueError("net/url: invalid userinfo")
    if at:
        unescape(user)
    return (user if at else None), found


def _parse_host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise ValueError("invalid IP-literal")
    if bracket == 0:
        return _parse_literal(host)
    colon = host.find(":") if scheme in ("http", "https") else host.rfind(":")
    if colon >= 0:
        _check_port(host[colon:])
    return _unescaped_host(host)


def _parse_literal(host: str) -> str:
    """An IPv6 address in brackets, perhaps with a zone, and a port."""
    import ipaddress  # few URLs have one, and expressions are compiled without it

    end = host.rfind("]")
    if end < 0:
        raise ValueError("missing ']' in host")
    _check_port(host[end + 1 :])
    address, percent, zone = host[1:end].partition("%25")
    literal = _unescaped_host(address)
    if percent:
        literal += f"%{_unescaped_host(zone, is_zone=True)}"
    try:
        found = ipaddress.ip_address(literal)
    except ValueError:
        raise ValueError(f'invalid host: ParseAddr("{literal}"): unable to parse IP') from None
    if found.version == 4:
        raise ValueError("invalid IP-literal")
    return f"[{literal}]{host[end + 1 :]}"


def _check_port(port: str) -> None:
    if port and (port[0] != ":" or any(char not in _DIGITS for char in port[1:])):
        raise ValueError(f'invalid port "{port}" after host')


def _unescaped_host(host: str, *, is_zone: bool = False) -> str:
    """A host may escape what is not ASCII, the zone of an address also what could stand there as it is."""
    found = unescape(host)
    for position, char in enumerate(host):
        if char == "%":
            escaped = host[position : position + 3]
            byte = int(escaped[1:], 16)
            is_plain = chr(byte) in _HOST or byte in b" %" if is_zone else byte >= 0x80 or byte == 0x25
            if not is_plain:
                raise _escape_error(escaped)
        elif ord(char) < 0x80 and char not in _HOST:
            raise ValueError(f'invalid character "{char}" in host name')
    return found.decode("utf-8", "replace")
