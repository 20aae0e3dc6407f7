"""URLs as Go's net/url reads them: `url("https://host:80/path?q=1").getHostname()`."""

from __future__ import annotations

from typing import NamedTuple

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.overloads import accepted_by, function, member
from haru.cel.types import BOOL, STRING, list_of, map_of, struct

URL_TYPE = struct("kubernetes.URL")

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_DIGITS = frozenset("0123456789")
_HEX = frozenset("0123456789abcdefABCDEF")
_UNRESERVED = _LETTERS | _DIGITS | frozenset("-_.~")
_PATH = _UNRESERVED | frozenset("$&+,/:;=@")
_ENCODED_PATH = _PATH | frozenset("!'()*[]%")
_HOST = _UNRESERVED | frozenset("!$&'()*+,;=:[]<>\"")
_USER = _UNRESERVED | frozenset("!$&'()*+,;=:%@")


class _Parts(NamedTuple):
    scheme: str
    opaque: bool
    user: str | None
    host: str
    path: str
    query: str


class Url:
    """A parsed URL. Equal where the texts are, once the scheme is in lower case."""

    __slots__ = ("parts", "text")
    cel_type = URL_TYPE

    def __init__(self, text: str, parts: _Parts) -> None:
        self.text = text
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


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
            raise ValueError(f'invalid URL escape "{text[position : position + 3]}"')
        made.append(int(digits, 16))
        position += 3
    return bytes(made)


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


def _check_port(port: str) -> None:
    if port and (port[0] != ":" or any(char not in _DIGITS for char in port[1:])):
        raise ValueError(f'invalid port "{port}" after host')


def _parse_host(host: str) -> str:
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise ValueError("missing ']' in host")
        _check_port(host[end + 1 :])
    else:
        colon = host.rfind(":")
        if colon >= 0:
            _check_port(host[colon:])
    decoded = unescape(host).decode("utf-8", "replace") if "%" in host else host
    for char in host:
        if ord(char) < 0x80 and char not in _HOST and char != "%":
            raise ValueError(f'invalid character "{char}" in host name')
    return decoded


def _parse_authority(text: str) -> tuple[str | None, str]:
    user, at, host = text.rpartition("@")
    if at and any(ord(char) >= 0x80 or char not in _USER for char in user):
        raise ValueError("net/url: invalid userinfo")
    if at:
        unescape(user)
    return (user if at else None), _parse_host(host)


def parse_request_uri(text: str) -> _Parts:
    """An absolute URL or an absolute path, as in a request. Raises ValueError worded as Go does."""
    try:
        return _parse(text)
    except ValueError as error:
        raise ValueError(f'parse "{text}": {error}') from None


def _parse(text: str) -> _Parts:
    if any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        raise ValueError("net/url: invalid control character in URL")
    if not text:
        raise ValueError("empty url")
    if text == "*":
        return _Parts("", False, None, "", "*", "")
    scheme, rest = _split_scheme(text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            return _Parts(scheme, True, None, "", "", query)
        raise ValueError("invalid URI for request")
    user: str | None = None
    host = ""
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        user, host = _parse_authority(authority)
        rest = slash + path
    unescape(rest)
    return _Parts(scheme, False, user, host, rest, query)


def _url(text: str) -> Url:
    try:
        parse_request_uri(text)
        parts = parse_request_uri(text.partition("#")[0])
    except ValueError as error:
        raise EvaluationError(f"URL parse error during conversion from string: {error}") from None
    scheme = parts.scheme
    return Url(scheme + text[len(scheme) :] if scheme else text, parts)


def _hostname(url: Url) -> str:
    host = url.parts.host
    if host.startswith("["):
        return host[1 : host.rfind("]")]
    colon = host.rfind(":")
    return host if colon < 0 else host[:colon]


def _port(url: Url) -> str:
    host = url.parts.host
    tail = host[host.rfind("]") + 1 :] if host.startswith("[") else host
    return tail.rpartition(":")[2] if ":" in tail else ""


def _escaped_path(url: Url) -> str:
    path = url.parts.path
    if path == "*" or all(char in _ENCODED_PATH for char in path):
        return path
    return "".join(chr(byte) if chr(byte) in _PATH else f"%{byte:02X}" for byte in unescape(path))


def _query(url: Url) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pair in url.parts.query.split("&"):
        if not pair or ";" in pair:
            continue
        name, _, value = pair.partition("=")
        try:
            key = unescape(name.replace("+", " ")).decode("utf-8", "replace")
            content = unescape(value.replace("+", " ")).decode("utf-8", "replace")
        except ValueError:
            continue
        found.setdefault(key, []).append(content)
    return found


_ONE = (URL_TYPE,)

URLS = Library(
    "kubernetes.urls",
    {
        "url": (function("string_to_url", (STRING,), URL_TYPE, _url),),
        "getScheme": (member("url_get_scheme", _ONE, STRING, lambda url: url.parts.scheme),),
        "getHost": (member("url_get_host", _ONE, STRING, lambda url: url.parts.host),),
        "getHostname": (member("url_get_hostname", _ONE, STRING, _hostname),),
        "getPort": (member("url_get_port", _ONE, STRING, _port),),
        "getEscapedPath": (member("url_get_escaped_path", _ONE, STRING, _escaped_path),),
        "getQuery": (member("url_get_query", _ONE, map_of(STRING, list_of(STRING)), _query),),
        "isURL": (function("is_url_string", (STRING,), BOOL, accepted_by(parse_request_uri)),),
    },
    types=(URL_TYPE,),
)
