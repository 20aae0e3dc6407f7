"""The answers around the pages: a message, and the form to sign in."""

from __future__ import annotations

from collections.abc import Sequence

from haru.dashboard.gate import HEADERS
from haru.dashboard.template_engine import render
from haru.secure_serving.http import Answer

Headers = Sequence[tuple[bytes, bytes]]
_HTML = "text/html; charset=utf-8"
_SECURE = [(name.encode(), value.encode()) for name, value in {**HEADERS, "cache-control": "no-store"}.items()]


def secured(answer: Answer) -> Answer:
    """Add the headers that all answers have."""
    answer.headers = [*_SECURE, *answer.headers]
    return answer


def message(status: int, title: str, text: str, headers: Headers = (), sign_out: str = "") -> Answer:
    """Make a page of a message; with `sign_out` it has the form that ends the session."""
    body = render("message.html", {"title": title, "text": text, "sign_out": sign_out})
    return secured(Answer(status, body.encode(), _HTML, list(headers)))


def sign_in(status: int, number: str, where: str, told: str, headers: Headers = ()) -> Answer:
    """Make the form to sign in; `number` has to come back with it, `where` is what is shown then."""
    body = render("sign_in.html", {"title": "Sign in", "number": number, "where": where, "told": told})
    return secured(Answer(status, body.encode(), _HTML, list(headers)))
