"""URLs as Go's net/url reads them: `url("https://host:80/path?q=1").getHostname()`."""

from __future__ import annotations

from haru.cel.environment import Library
from haru.cel.errors import EvaluationError
from haru.cel.overloads import accepted_by, function, member
from haru.cel.types import BOOL, STRING, list_of, map_of, struct
from haru.kube.urls import PATH, UrlParts, parse_request_uri, unescape

URL_TYPE = struct("kubernetes.URL")

_ENCODED_PATH = PATH | frozenset("!'()*[]%")


class Url:
    """A parsed URL. Equal where the texts are, once the scheme is in lower case."""

    __slots__ = ("parts", "text")
    cel_type = URL_TYPE

    def __init__(self, text: str, parts: UrlParts) -> None:
        self.text = text
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Url) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


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
    return "".join(chr(byte) if chr(byte) in PATH else f"%{byte:02X}" for byte in unescape(path))


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
