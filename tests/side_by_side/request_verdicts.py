"""Differences between answers that are meant (docs/differences.md), each with its cause."""

from __future__ import annotations

import re

from request_answers import Answer
from request_parts import PATCHES, PROTOBUF, Request

_LINES = [
    ("selfLink in an update", r".*\.selfLink: "),
    ("an Indexed Job with a success policy", r"code: 0 .* \| 422 Job"),
    ("a value that cannot be read in a configuration", r"code: 500 failed to convert new object .* \| 400 "),
    ("a JSON patch that copies from nowhere", r"code: 20\d .* \| 422 .*copy operation does not apply"),
    ("the address of a Service without a name", r"\.details\.causes.*failed to allocate IP: IPAddress"),
    ("an empty answer about a pod's log", r"code: 204 .* \| 200"),
    ("a number beyond 32 bits in a strategic merge patch", r".*-2147483648.* \| .*patch.*WORDS"),
    ("an empty list of metadata", r"\.items: null \| \[\]$"),
    ("the annotation of an internal field", r".*deprecated\.daemonset\.template\.generation"),
    ("a gang with the minCount 0", r".*gang\.minCount.*Required value.* \| .*Required value: must be greater"),
    ("words about an Accept header", r'\.message: "406: Not Acceptable.* \| "only the following media types'),
    ("an unreadable version", r"code: 500 resourceVersion: Invalid value: .* \| 4(00|22) "),
    ("an unreadable version", r"code: 500 strconv.ParseUint: .* \| 4(00|22) "),
    (
        "a resourceVersion in an object that is created",
        r"code: 500 resourceVersion should not be set on objects to be created \| 4",
    ),
    ("loopback addresses of endpoints", r"code: 422 .*may not be in the loopback range .* \| 20"),
    ("loopback addresses of endpoints", r"\.details\.causes.*may not be in the loopback range"),
    ("the kind in the message about an access review", r"\.details\.kind: - \| .*AccessReview"),
    (
        "what else a deletion's body may not be",
        r"\.message: \"no kind .* is registered for version .*\| \"the body of a deletion",
    ),
    ("how long a name may be", r".*(must be no more than \d+ )characters.* \| .*\1bytes"),
    ("how long a name may be", r".*(must be no more than \d+ )bytes.* \| .*\1characters"),
]
_KNOWN = [(cause, re.compile(pattern, re.DOTALL)) for cause, pattern in _LINES]


def known_cause(request: Request, answers: tuple[Answer, Answer], line: str) -> str:
    """Why a difference is known; empty if it is not."""
    accept = request.headers.get("Accept", "")
    if line.startswith("content type:") and PROTOBUF in accept and "json" in accept:
        return "protobuf for those who take nothing else"
    if line.startswith("code: 406") and "as=Table" in accept and "/" in request.resource:
        return "a form that a subresource has not"
    if request.headers.get("Content-Type") == PATCHES["strategic"] and re.match(r"code: 500 .* \| 4(00|22) ", line):
        return "a strategic merge patch with a wrong directive"
    if request.resource in ("pods/ephemeralcontainers", "pods/resize") and re.match(
        r"\.metadata\.(man|resourceV)", line
    ):
        return "fields that a subresource of a pod does not set"
    if "resourcequotas" in request.resource and (".resourceVersion" in line or line.startswith("#")):
        return "a quota that nobody has counted is written with what it counts"
    return next((cause for cause, pattern in _KNOWN if pattern.match(line)), "")
