"""Differences between answers that are meant (docs/differences.md), each with its cause."""

from __future__ import annotations

import re
from typing import Any

from request_answers import Answer
from request_parts import PATCHES, PROTOBUF, Request

_MISSING = "must be specified for an update"
_LINES = [
    ("selfLink in an update", r".*\.selfLink: "),
    ("an Indexed Job with a success policy", r"code: 0 .* \| 422 Job"),
    ("a number beyond 32 bits in a configuration", r"code: 20\d .* \| 400 .*cannot unmarshal number \d+ .* type int32"),
    ("the value in the message about a member that cannot change", r".*OBJECT: field is immutable.* \| .*immutable"),
    ("an APIService of what is built in", r"\.details\.causes.*is built in: the API server serves it itself"),
    ("a JSON patch that copies from nowhere", r"code: 20\d .* \| 422 .*copy operation does not apply"),
    ("a binding to a role that is not there", r"code: 500 unsupported role reference kind: .* \| 422"),
    ("an annotation that stands for fields", r".*\.object\.metadata\.annotations: - \| .*autoscaling\.alpha"),
    (
        "words about what a conversion gave",
        r"\.message: .*(JSON input|cannot unmarshal).* \| .*index 0: it is no object",
    ),
    ("a continue token of another resource", r"code: 200 .* \| 400 invalid continue token: continue key is not"),
    ("a warning with control characters", r"warnings: .* \| .*\"y z\""),
    ("words about the type of a patch", r'\.message: "415: Unsupported Media Type" '),
    ("a page after which nothing more matches", r"\.metadata\.continue: \"CONTINUE\" \| -$"),
    (
        "a default of an int-or-string that is neither",
        r"(code: 201 |\.details\.causes.* \| ).*default.*must be of type integer,string",
    ),
    (
        "a whole number and a multipleOf below one",
        r".*(factor MultipleOf declared for .*: 0|Invalid value: 1e.20: .*should be a multiple of [02])",
    ),
    (
        "a policy beside what else is wrong",
        r"code: 403 policy '.* denied request.* \| 422 .*Version: Inv",
    ),
    ("fields for selectors in all versions", r"\.details\.causes.*spec\.selectableFields.*may only be set when"),
    ("an object or list compared with something else", r"\.details\.causes.*'no such overload'.*rule: dyn\(self\) == "),
    ("wrong paths and methods of custom resources", r': "404 page not found'),
    (
        "a count of another type",
        r"\.(details|message|reason|details\.causes#): .*(accessor error|no whole number|InternalError)",
    ),
    (
        "words about a webhook's JSON patch",
        r"\.details\.causes.*received undecodable patch.* \| .*received undecodable",
    ),
    ("words about a policy's JSON patch", r"\.details\.causes\[.* JSON Patch: .* \| .* JSON Patch: "),
    ("the path of a uid", r"\.details\.causes.*\.metadata\.uID"),
    ("which of several bindings allows", r"\.status\.reason: \"RBAC: allowed by .* \| \"RBAC: allowed by"),
    ("a binding to nothing", r"code: 500 target\.(name|kind): .* \| 422"),
    (
        "an apply of a Scale of a custom resource",
        r"code: 500 failed to create manager .*Kind=Scale\) to proper version",
    ),
    ("a pod without the default account", r"code: 403 pods .*serviceaccount \"default\" not found \| 201"),
    ("what ends a connection", r"code: 0  \| 422 "),
    (
        "an item without its key",
        r"code: 500 failed to create manager for existing fields: .* an element that omits all",
    ),
    ("an item without its key", r"code: 409 Apply failed .*conflict with \"before-first-apply"),
    ("an item without its key", r"\.details\.causes.*before-first-apply.* \| .*conflict with"),
    ("an item without its key", r".*\.metadata\.managedFields: - \| \["),
    (
        "an item without its key",
        r"\.message: \"failed to create manager for existing fields: .* an element that omits all",
    ),
    ("a value that cannot be read in a configuration", r"code: 500 failed to convert new object .* \| 400 "),
    ("the address of a Service without a name", r"\.details\.causes.*failed to allocate IP: IPAddress"),
    (
        "an error's text in the answer of a webhook",
        r".*an error on the server \(.{1,4}unknown.* \| .*an error on the server",
    ),
    (
        "what is missing, before who else refuses it",
        rf"code: \d+ .* \| 422 .*({_MISSING})",
    ),
    ("words about a body", r"\.message: \"WORDS\" \| \"the API version in the data"),
    ("devices of classes without an extended resource", r"code: 201 .*exceeded quota.*requests\.deviceclass\.resource"),
    ("several validating webhooks refuse", r"code: \d+ .*\bh\d\.hooks\.ex.* \| \d+ .*\bh\d\.hooks\.ex"),
    ("a Service without Endpoints", r"code: 404 .*\| 503 (no endpoints available for service|$)"),
    ("a pod whose runtime class has an empty name", r"code: 500 resource name may not be empty \| 422 "),
    ("an empty answer about a pod's log", r"code: 204 .* \| 200"),
    ("a number beyond 32 bits in a strategic merge patch", r".*-2147483648.* \| .*patch.*WORDS"),
    (
        "a deleted limit that kube-apiserver remembers",
        r"code: 422 .*must be greater than or equal to aggregate container requests.* \| 201",
    ),
    ("an empty list of metadata", r"\.(items|rows): null \| \[\]$"),
    ("the annotation of an internal field", r".*deprecated\.daemonset\.template\.generation"),
    ("a gang with the minCount 0", r".*gang\.minCount.*Required value.* \| .*Required value: must be greater"),
    ("words about an Accept header", r'\.message: "406: Not Acceptable.* \| "only the following media types'),
    (
        "which of several unknown fields of a configuration are told",
        r"\.message: \"failed to create typed patch.*(not declared in schema|omits all key fields).* \| .*errors:\\n",
    ),
    ("an unreadable version", r"code: 500 resourceVersion: Invalid value: .* \| 4(00|22) "),
    ("an unreadable version", r"code: 500 strconv.ParseUint: .* \| 4(00|22) "),
    (
        "a resourceVersion in an object that is created",
        r"code: 500 resourceVersion should not be set on objects to be created \| 4",
    ),
    ("loopback addresses of endpoints", r"code: 422 .*may not be in the loopback range .* \| (20|409)"),
    ("loopback addresses of endpoints", r"\.details\.causes.*may not be in the loopback range"),
    ("the kind in the message about an access review", r"\.details\.kind: - \| .*AccessReview"),
    (
        "what else a deletion's body may not be",
        r"\.message: \"no kind .* is registered for version .*\| \"the body of a deletion",
    ),
    (
        "words of a syntax error in an expression",
        r"\.details\.causes.*ERROR: <input>(:\d+:\d+: Syntax error: ).* \| .*ERROR: <input>\1",
    ),
    (
        "a number that is not whole in an enum of whole numbers",
        r"\.details\.causes#: .* \| \d+ .*Unsupported value: \d+\.\d+: supported values: ",
    ),
    (
        "a list of which one object cannot be converted",
        r"\.message: .*conversion webhook for .* failed: .* \| .*conversion webhook for .* returned invalid object",
    ),
    ("how long a name may be", r".*(must be no more than \d+ )characters.* \| .*\1bytes"),
    ("how long a name may be", r".*(must be no more than \d+ )bytes.* \| .*\1characters"),
]
LASTING = {
    "a page after which nothing more matches",
    "an item without its key",
    "the owner of a count that was written by a Scale",
    "the status in a write to a PodGroup",
    "an empty list in place of none",
    "the time of deletion in an update",
    "fields that a subresource of a pod does not set",
    "metadata in an apply of a status",
    "an annotation that stands for fields",
    "a ResourceSlice in an older version",
    "a conversion that is not needed",
    "owners of fields in another version",
    "the order of members of opaque parameters",
}
"""After these objects differ for good: a seed ends."""
_KNOWN = [(cause, re.compile(pattern, re.DOTALL)) for cause, pattern in _LINES]


def known_cause(request: Request, answers: tuple[Answer, Answer], line: str) -> str:
    """Why a difference is known; empty if it is not. What a webhook was sent differs where answers do."""
    if line.startswith(("review#", "warnings:")) and re.search(_MISSING, str(answers[1].value)):
        return "what is missing, before who else refuses it"
    is_conflict = answers[0].status == answers[1].status == 409
    if line.startswith("review#") and answers[0].status == answers[1].status >= 400:
        return "who is asked about what is refused anyway"
    if is_conflict and line.startswith("warnings: ") and line.endswith("| []"):
        return "who is asked about what is refused anyway"
    if answers[1].status in (404, 406, 415) and line == """warnings: ['299 - "old"'] | []""":
        return "that a version is old, where the request is refused"
    is_of_hook = re.match(r"(review#|code: \d+ .*\bh\d\.hooks\.ex.* \| 201|warnings: .* \| \[\]$)", line, re.DOTALL)
    if is_of_hook and request.resource.endswith(("reviews", "scene/review", "client/review", "Review")):
        return "webhooks about reviews"
    if line.startswith("review#") and '"username": "system:apiserver"' in line:
        return "what kube-apiserver writes about definitions by way of its own API"
    if line.startswith("review#") and ('"resource": "resourcequotas"' in line or '"runtimeClassName": ""' in line):
        return "a quota is charged with the write; an empty name of a class is validated"
    if re.match(r"review\[\d\]\.request\.object\.metadata\.generation: -?\d+ \| -$", line):
        return "what webhooks see of the generation that a client gave a new object"
    if line.startswith("review[") and re.search(
        r"status\.phase: - \| \"Pending\"$|object\.metadata\.managedFields: .* \| -$", line
    ):
        return "what webhooks see of new claims and bindings"
    line = re.sub(r"^review\[\d+\]\.request\.(object|oldObject)", "", line)
    accept = request.headers.get("Accept", "")
    if line.startswith("content type:") and PROTOBUF in accept and "json" in accept:
        return "protobuf for those who take nothing else"
    is_table = isinstance(answers[1].value, dict) and answers[1].value.get("kind") == "Table"
    if is_table and "as=Table" in accept and "/" in request.resource:
        return "a form that a subresource has not"
    if line.startswith("code: 406") and "as=Table" in accept and "/" in request.resource:
        return "a form that a subresource has not"
    if request.headers.get("Content-Type") == PATCHES["strategic"] and re.match(
        r"code: 500 .* \| 4(00|22) ", line, re.DOTALL
    ):
        return "a strategic merge patch with a wrong directive"
    if request.resource in ("pods/ephemeralcontainers", "pods/resize") and re.match(
        r"\.metadata\.(man|resourceV)", line
    ):
        return "fields that a subresource of a pod does not set"
    if "resourcequotas" in request.resource and (".resourceVersion" in line or line.startswith("#")):
        return "a quota that nobody has counted is written with what it counts"
    owners = [_owners(one.value) for one in answers]
    if owners[1] and not owners[0] and line.startswith(".metadata.resourceVersion"):
        return "an item without its key"
    return _of_the_request(request, answers, line) or next(
        (cause for cause, pattern in _KNOWN if pattern.match(line)), ""
    )


def _owners(value: Any) -> Any:
    """The managedFields of an object."""
    metadata = value.get("metadata") if isinstance(value, dict) else None
    return metadata.get("managedFields") if isinstance(metadata, dict) else None


def _of_the_request(request: Request, answers: tuple[Answer, Answer], line: str) -> str:
    """Causes that are known by what was asked."""
    of, body, owners = (
        request.resource,
        request.body_text,
        line.startswith((".metadata.managedFields[", ".metadata.managedFields#")),
    )
    if line == "content type: text/plain; charset=utf-8 | application/json" and answers[0].status == 404:
        return "wrong paths and methods of custom resources"
    is_custom = bool(re.match(r"/apis/[^/]+\.example\.com/", request.path))
    if "watch=1" in request.query and "Too large resource version" in str(answers[0].value):
        return "a watch cache that has heard of nothing since"
    if is_custom and of.startswith("odd ") and answers[1].status in (404, 405):
        return "wrong paths and methods of custom resources"
    if is_custom and of.endswith("/scale") and "no kind is registered for the type v1.Scale in scheme" in line:
        return "a Scale that cannot be read"
    if '"op": "copy"' in body and "copy operation does not apply" in str(answers[1].value):
        return "a JSON patch that copies from nowhere"
    is_apply = request.headers.get("Content-Type") == PATCHES["apply"]
    if is_apply and re.match(r"\.status\.\w+: .* \| -$", line):
        return "what an apply does not set, as webhooks see it"
    if is_apply and of.endswith("/status") and re.match(r"\.metadata\.g|code: 422 .*deletionGrace|.*f:generateN", line):
        return "metadata in an apply of a status"
    names = ('.details.name: "Unknown"', "review[0].request.name: - |", "review[1].request.name: - |")
    names += ('.details.name: - | "',)
    is_forbidden = "is forbidden: " in str(answers[1].value) and line.startswith(".message: ")
    if request.method == "DELETE" and (line.startswith(names) or (is_forbidden and "Unknown" not in line)):
        return "the name in a policy's refusal of a deletion of a collection"
    if ".default" in line and "rule compile error" in line and line.startswith(".details.causes"):
        return "a rule that does not compile, told again at a default"
    if request.method == "DELETE" and '"dryRun"' in body and of == "jobs" and line.startswith("."):
        return "the answer to a deletion that was tried"
    if '"path": ""' in body and line.startswith((".details: - |", ".message: ")):
        return "a JSON patch that cannot be carried out"
    if of.endswith("rolebindings") and re.match(r"\.(details\.kind|message): .*bindings.* \| .*roles", line):
        return "a binding to a role that is not there"
    if of.endswith("rolebindings") and re.match(r"code: 404 .*bindings.* not found \| 422 ", line):
        return "a binding to a role that is not there"
    if of == "certificatesigningrequests" and "may not contain '/'" in line:
        return "a name that is no part of a path, beside other errors"
    is_given_out = r"code: (20\d|409) .* \| 422 .*(provided port is not in the|provided IP is already allocated)"
    if "dryRun=All" in request.query and re.match(is_given_out, line):
        return "an address or port of a Service in a dry run"
    if re.match(r"code: 4(00|22) .* \| 403 .*cannot create resource", line) and request.method in ("PUT", "PATCH"):
        return "who may not create what an update makes"
    if line.startswith("code: 403") and "| 405" in line and of.startswith("odd "):
        return "a method that a path has not, without rights"
    if request.method == "BREW" and answers[1].status == 405:
        return "a method that is none"
    if (
        of.startswith("resourceclaim")
        and line.startswith("code: 422")
        and re.search(r"field is immutable \| 200 $", line)
    ):
        return "the order of members of opaque parameters"
    if "2147483648" in body and request.headers.get("Content-Type") in (PATCHES["strategic"], PATCHES["apply"]):
        return "a number beyond 32 bits in a configuration"
    if of.endswith("/scale") and (line.startswith(".metadata.resourceVersion") or (owners and "f:replicas" in line)):
        return "the owner of a count that was written by a Scale"
    is_of_status = (owners and ".f:status" in line) or (
        line.startswith(".metadata.resourceV") and ('"status"' in body or '"/status' in body)
    )
    if of == "podgroups" and is_of_status:
        return "the status in a write to a PodGroup"
    if of.startswith("converteds") and line.startswith("code: 500 ") and re.search(r" \| (20\d|409) ", line):
        return "a conversion that is not needed"
    is_renamed = of.startswith("converteds") or (of == "horizontalpodautoscalers" and "f:metrics" in line)
    if is_renamed and (owners or re.match(r"code: 200 .* \| 409 Apply failed.* using ", line)):
        return "owners of fields in another version"
    is_version = line.startswith((".metadata.resourceV", ".metadata.generation"))
    shown = str(answers[0].value)
    if "/v1beta" in request.path and "'requestPolicy'" in shown and (is_version or (owners and "f:devices" in line)):
        return "a ResourceSlice in an older version"
    if of == "deviceclasses" and "'opaque'" in shown and (is_version or (owners and "f:config" in line)):
        return "the order of members of opaque parameters"
    is_owned = owners and "f:deletionTimestamp" in line
    if "deletionTimestamp" in body and (is_owned or line.startswith(".metadata.resourceVersion")):
        return "the time of deletion in an update"
    if owners and "f:autoscaling.alpha.kubernetes.io/" in line:
        return "an annotation that stands for fields"
    if _is_next_version(line) and _puts_nothing(request, answers[0].value):
        return "an empty list in place of none"
    is_late = "modified" in line if line.startswith("code: 409") else ".metadata.resourceVersion: " in line
    is_defined = of.startswith("customresourcedefinitions") and _is_next_version(line.rpartition("review")[2])
    if (of in ("flowschemas", "prioritylevelconfigurations") and is_late) or is_defined:
        return "the status that kube-apiserver gives later"
    if line.startswith("warnings") and re.search(r"\$(retainKeys|patch)", line.partition(" | ")[0]):
        return "directives in what a strategic merge patch adds"
    is_strategic = request.headers.get("Content-Type") == PATCHES["strategic"]
    if is_strategic and line.startswith("warnings") and "unknown field" in line:
        return "the path of an unknown field in a map" if _tells_of_same_fields(line) else ""
    if of == "replicationcontrollers" and request.method in ("PUT", "PATCH") and _ABOUT_TEMPLATE.match(line):
        return "warnings about the template of before"
    return ""


_ABOUT_TEMPLATE = re.compile(r"warnings: .*spec\.template\.")
_VERSIONS = re.compile(r'.*metadata\.(generation|resourceVersion): "?(?:RV)?(\d+)"? \| "?(?:RV)?(\d+)"?')


def _tells_of_same_fields(line: str) -> bool:
    """Whether the warnings of both sides tell of unknown fields of the same names, wherever these are."""
    told = [sorted(re.findall(r'([^".\\]+)\\+"', side)) for side in line.split(" | ")]
    return len(told) == 2 and told[0] == told[1]


def _puts_nothing(request: Request, now: Any) -> bool:
    """Whether a write has an empty list or text where the object that was answered has nothing."""
    given = request.body
    if not isinstance(now, dict) or now.get("kind") in ("Table", "PartialObjectMetadata"):
        return bool(re.search(r'\[\]|""|\{\}', request.body_text))
    if isinstance(given, list):
        return any(_is_nothing(one.get("value"), _at(now, str(one.get("path")))) for one in given)
    return _is_nothing(given, now)


def _at(value: Any, pointer: str) -> Any:
    for key in pointer.replace("~1", "/").split("/")[1:]:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _is_nothing(given: Any, now: Any) -> bool:
    if given in ([], "", {}):
        return now is None or now in ([], "")
    if isinstance(given, dict):
        return isinstance(now, dict) and any(_is_nothing(one, now.get(key)) for key, one in given.items())
    if isinstance(given, list) and isinstance(now, list):
        return any(_is_nothing(one, other) for one in given for other in now)
    return False


def _is_next_version(line: str) -> bool:
    """Whether kube-apiserver has counted one change more, or given what changed another owner."""
    is_of_owners = line.startswith(".metadata.managedFields[") and (": - | " in line or line.endswith("| -"))
    if is_of_owners or line.startswith(".metadata.managedFields#"):
        return True
    found = _VERSIONS.fullmatch(line)
    return found is not None and int(found[2]) == int(found[3]) + 1
