"""Names of signers of certificates, and of the trust bundles that belong to them (certificates.k8s.io)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from haru.kube import names
from haru.kube.errors import FieldError, invalid, required, too_long
from haru.kube.validation.common import each_message

_MAX_DOMAIN = 253
_MAX_NAME = 2 * _MAX_DOMAIN + 63 + 2


def signer_name(field: str, value: str) -> list[FieldError]:
    """A signer: a domain of two segments or more, a slash, and a path."""
    if not value:
        return [required(field)]
    domain, _, path = value.partition("/")
    if value.count("/") != 1:
        why = "must be a fully qualified domain and path of the form 'example.com/signer-name'"
        return [invalid(field, value, why)]
    found = [too_long(field, _MAX_DOMAIN)] if len(domain) > _MAX_DOMAIN else []
    labels = domain.split(".")
    found += each_message(field, domain, _first_wrong(labels, names.is_dns1123_label))
    if len(labels) < 2:
        found.append(invalid(field, domain, "should be a domain with at least two segments separated by dots"))
    found += each_message(field, path, _first_wrong(path.split("."), names.is_dns1123_subdomain))
    return [*found, too_long(field, _MAX_NAME)] if len(value) > _MAX_NAME else found


def _first_wrong(labels: Iterable[str], check: Callable[[str], list[str]]) -> list[str]:
    """What is wrong with the first label with which anything is."""
    for label in labels:
        if problems := check(label):
            return [f'validating label "{label}": {problem}' for problem in problems]
    return []


def is_kubernetes_signer(value: str) -> bool:
    """Whether a signer is one of Kubernetes' own."""
    return f".{value.partition('/')[0]}".endswith(".kubernetes.io")


def trust_bundle_name(field: str, name: str) -> list[FieldError]:
    """A trust bundle's name; that of a signer's begins with the signer, its slash written as a colon."""
    signer, colon, rest = name.rpartition(":")
    if colon and not signer:
        return [invalid(field, name, 'ClusterTrustBundle without signer name must not have ":" in its name')]
    return each_message(field, name, names.is_dns1123_subdomain(rest))
