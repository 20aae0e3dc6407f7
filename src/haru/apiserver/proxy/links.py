"""Links in what comes back from a proxied pod: those to its own root lead through the proxy again.

Pages are rewritten piece by piece as they come; what is not understood is passed on as it is.
Source: the proxy transport of k8s.io/apimachinery (`util/proxy`), as behaviour.
"""

from __future__ import annotations

import html
import posixpath
import re
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit

TAG_BYTES = 64 * 1024
"""A tag that is longer is passed on as it is."""
_TAG = re.compile(rb"<([a-zA-Z][^\s/>]*)(?>(?:\"[^\"]*\"|'[^']*'|[^'\">])*)>")
_ATTRIBUTE = re.compile(rb"([^\s\"'<>/=]+)(\s*=\s*)(\"[^\"]*\"|'[^']*'|[^\s\"'=<>`]+)")
_RAW = (b"script", b"style")
_LINKS: dict[str, Sequence[str]] = {
    "a": ("href",),
    "applet": ("codebase",),
    "area": ("href",),
    "audio": ("src",),
    "base": ("href",),
    "blockquote": ("cite",),
    "body": ("background",),
    "button": ("formaction",),
    "command": ("icon",),
    "del": ("cite",),
    "embed": ("src",),
    "form": ("action",),
    "frame": ("longdesc", "src"),
    "head": ("profile",),
    "html": ("manifest",),
    "iframe": ("longdesc", "src"),
    "img": ("longdesc", "src", "usemap"),
    "input": ("src", "usemap", "formaction"),
    "ins": ("cite",),
    "link": ("href",),
    "object": ("classid", "codebase", "data", "usemap"),
    "q": ("cite",),
    "script": ("src",),
    "source": ("src",),
    "video": ("poster", "src"),
}


class Links:
    """Rewrites links to `netloc`, or to a path from the root, into paths below `prefix`."""

    def __init__(self, prefix: str, netloc: str, host: str) -> None:
        self._prefix, self._hosts = prefix, ("", netloc, host)

    def url(self, text: str) -> str:
        """One link; relative ones and those to other hosts stay as they are."""
        try:
            parts = urlsplit(text)
        except ValueError:
            return text
        if parts.netloc not in self._hosts or not parts.path.startswith("/") or parts.path.startswith("//"):
            return text
        path = parts.path
        if not path.startswith(self._prefix):
            path = posixpath.normpath(f"{self._prefix}/{path}")
            path += "/" if parts.path.endswith("/") and not path.endswith("/") else ""
        return SplitResult("", "", path, parts.query, parts.fragment).geturl()


class Page:
    """An HTML page on its way: `feed` gives back what may go on, `end` the rest."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._kept = b""
        self._raw = b""
        """The element whose text is no HTML, while it is open."""

    def feed(self, data: bytes) -> bytes:
        """Take a piece."""
        text, position, out = self._kept + data, 0, []
        while position < len(text):
            end, written = self._step(text, position)
            if end == position:
                break
            out.append(written)
            position = end
        self._kept = text[position:]
        if len(self._kept) > TAG_BYTES:
            out.append(self._kept)
            self._kept = b""
        return b"".join(out)

    def end(self) -> bytes:
        """What is left."""
        rest, self._kept = self._kept, b""
        return rest

    def _step(self, text: bytes, position: int) -> tuple[int, bytes]:
        """The end of the next part and its replacement; the same position if it is incomplete."""
        if self._raw:
            return self._raw_text(text, position)
        begin = text.find(b"<", position)
        if begin != position:
            end = len(text) if begin < 0 else begin
            return end, text[position:end]
        if text.startswith(b"<!--", position):
            close = text.find(b"-->", position + 4)
            return (position, b"") if close < 0 else (close + 3, text[position : close + 3])
        if found := _TAG.match(text, position):
            name = found[1].lower()
            self._raw = name if name in _RAW else b""
            return found.end(), self._tag(name.decode("latin-1"), found[0])
        head = text[position + 1 : position + 4]
        is_open = not head or head[:1].isalpha() or (b"!--".startswith(head) and len(head) < 3)
        return (position, b"") if is_open else (position + 1, b"<")

    def _raw_text(self, text: bytes, position: int) -> tuple[int, bytes]:
        found = re.compile(b"</" + self._raw, re.IGNORECASE).search(text, position)
        end = found.start() if found else max(position, len(text) - len(self._raw) - 2)
        if found:
            self._raw = b""
            return found.start() + 2, text[position : found.start() + 2]
        return end, text[position:end]

    def _tag(self, name: str, tag: bytes) -> bytes:
        wanted = _LINKS.get(name)
        if wanted is None:
            return tag
        head = len(name) + 1
        return tag[:head] + _ATTRIBUTE.sub(lambda found: self._attribute(found, wanted), tag[head:])

    def _attribute(self, found: re.Match[bytes], wanted: Sequence[str]) -> bytes:
        if found[1].decode("latin-1").lower() not in wanted:
            return found[0]
        quoted = found[3]
        value = html.unescape((quoted[1:-1] if quoted[:1] in b"\"'" else quoted).decode("latin-1"))
        new = self._links.url(value)
        if new == value:
            return found[0]
        return found[1] + found[2] + b'"' + html.escape(new).encode("latin-1", "xmlcharrefreplace") + b'"'
