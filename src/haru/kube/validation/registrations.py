"""Webhook configurations: everything but their match conditions' expressions.

What was stored before stricter rules is not refused again where upstream lets it pass on update.
Source: admissionregistration.k8s.io/v1 validation, as behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from haru.kube import names
from haru.kube.errors import FieldError, duplicate, invalid, not_supported, required
from haru.kube.meta import Obj
from haru.kube.validation.common import items, known_value, part
from haru.kube.validation.registration_rules import condition_errors, rule_errors
from haru.kube.validation.selectors import validate_label_selector

REVIEW_VERSIONS = ("v1", "v1beta1")
_LISTED = ", ".join(REVIEW_VERSIONS)
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_SIDE_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")
_MATCH_POLICIES = ("Equivalent", "Exact")
_FAILURE_POLICIES = ("Fail", "Ignore")
_FORM = "; desired format: https://host[/path]"


@dataclass(frozen=True, slots=True)
class _Strictness:
    """Which of the newer rules hold: on update only those that the stored object met."""

    side_effects: bool = True
    review_versions: bool = True
    unique_names: bool = True
    selectors: bool = True


def validate_webhooks(configuration: Obj) -> list[FieldError]:
    """A Validating- or MutatingWebhookConfiguration."""
    return list(_webhooks(configuration, _Strictness()))


def validate_webhooks_update(new: Obj, old: Obj) -> list[FieldError]:
    """Validate as on creation, without rules that the stored configuration breaks, too."""
    before = items(old, "webhooks")
    strictness = _Strictness(
        all(hook.get("sideEffects") in _NO_SIDE_EFFECTS for hook in before),
        not any(hook.get("admissionReviewVersions") and not _is_known(hook) for hook in before),
        len({hook.get("name") for hook in before}) == len(before),
        not any(_selector_errors(hook, "") for hook in before),
    )
    return list(_webhooks(new, strictness))


def _is_known(hook: Obj) -> bool:
    return any(version in REVIEW_VERSIONS for version in hook.get("admissionReviewVersions") or ())


def _webhooks(configuration: Obj, strictness: _Strictness) -> Iterator[FieldError]:
    seen: set[str] = set()
    mutating = configuration.get("kind") == "MutatingWebhookConfiguration"
    for index, hook in enumerate(items(configuration, "webhooks")):
        path, name = f"webhooks[{index}]", hook.get("name") or ""
        yield from _webhook(path, hook, strictness)
        if mutating:
            yield from known_value(f"{path}.reinvocationPolicy", hook.get("reinvocationPolicy"), ("IfNeeded", "Never"))
        yield from review_versions(
            f"{path}.admissionReviewVersions",
            hook.get("admissionReviewVersions") or [],
            missing=f"must specify one of {_LISTED}",
            needs_known=strictness.review_versions,
        )
        if strictness.unique_names and name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)


def _webhook(path: str, hook: Obj, strictness: _Strictness) -> Iterator[FieldError]:
    yield from _qualified_name(f"{path}.name", hook.get("name") or "")
    for index, rule in enumerate(items(hook, "rules")):
        yield from rule_errors(f"{path}.rules[{index}]", rule)
    yield from known_value(f"{path}.failurePolicy", hook.get("failurePolicy"), _FAILURE_POLICIES)
    yield from known_value(f"{path}.matchPolicy", hook.get("matchPolicy"), _MATCH_POLICIES)
    allowed = _NO_SIDE_EFFECTS if strictness.side_effects else _SIDE_EFFECTS
    effects = hook.get("sideEffects")
    if effects is None:
        yield required(f"{path}.sideEffects", f"must specify one of {', '.join(allowed)}")
    elif effects not in allowed:
        yield not_supported(f"{path}.sideEffects", effects, allowed)
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        yield invalid(f"{path}.timeoutSeconds", seconds, "the timeout value must be between 1 and 30 seconds")
    if strictness.selectors:
        yield from _selector_errors(hook, path)
    yield from client_config_errors(f"{path}.clientConfig", part(hook, "clientConfig"))
    yield from condition_errors(f"{path}.matchConditions", items(hook, "matchConditions"))


def _qualified_name(path: str, name: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
    elif problems := names.is_dns1123_subdomain(name):
        yield invalid(path, name, ",".join(problems))
    elif name.count(".") < 2:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")


def _selector_errors(hook: Obj, path: str) -> list[FieldError]:
    found: list[FieldError] = []
    for name in ("namespaceSelector", "objectSelector"):
        if hook.get(name) is not None:
            found += validate_label_selector(f"{path}.{name}", hook[name])
    return found


def review_versions(
    path: str, versions: Sequence[str], *, missing: str = "", needs_known: bool
) -> Iterator[FieldError]:
    """Validate the versions of reviews that a webhook takes; `missing` is what is said where there is none."""
    if not versions:
        yield required(path, missing)
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield invalid(f"{path}[{index}]", version, "duplicate version")
            continue
        for problem in names.is_dns1035_label(version):
            yield invalid(f"{path}[{index}]", version, problem)
    if needs_known and not any(version in REVIEW_VERSIONS for version in versions):
        yield invalid(path, versions, f"must include at least one of {_LISTED}")


_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})").search


def client_config_errors(path: str, config: Obj) -> Iterator[FieldError]:
    """Where a webhook is: a URL or a service."""
    url, service = config.get("url"), config.get("service")
    if (url is None) == (service is None):
        yield required(path, "exactly one of url or service is required")
    elif url is not None:
        yield from _url(f"{path}.url", url)
    else:
        yield from _service(f"{path}.service", service or {})


def _url(path: str, url: str) -> Iterator[FieldError]:
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        _ = parts.port
        if _BAD_ESCAPE(url.partition("?")[0]):
            raise ValueError(f'parse "{url}": invalid URL escape')
    except ValueError as error:
        yield required(path, f"url must be a valid URL: {error}{_FORM}")
        return
    if parts.scheme != "https":
        yield invalid(path, parts.scheme, f"'https' is the only allowed URL scheme{_FORM}")
    if not host:
        yield invalid(path, host, f"host must be specified{_FORM}")
    if "@" in parts.netloc:
        yield invalid(path, parts.netloc.rpartition("@")[0], "user information is not permitted in the URL")
    if parts.fragment:
        yield invalid(path, parts.fragment, "fragments are not permitted in the URL")
    if parts.query:
        yield invalid(path, parts.query, "query parameters are not permitted in the URL")


def _service(path: str, service: Obj) -> Iterator[FieldError]:
    for name, told in (("name", "namespace"), ("namespace", "name")):  # as 1.36 says it, of the other one
        if not service.get(name):
            yield required(f"{path}.{told}")
    port = service.get("port", 443)
    if not 1 <= port <= 65535:
        yield invalid(f"{path}.port", port, "port is not valid: must be between 1 and 65535, inclusive")
    below: str = service.get("path") or ""
    if below in ("", "/"):
        return
    if not below.startswith("/"):
        yield invalid(f"{path}.path", below, "must start with a '/'")
    for number, step in enumerate(below[1:].removesuffix("/").split("/")):
        if not step:
            yield invalid(f"{path}.path", below, f"segment[{number}] may not be empty")
            continue
        for problem in names.is_dns1123_subdomain(step):
            yield invalid(f"{path}.path", below, f"segment[{number}]: {problem}")
