"""Certificate signing requests: what Kubernetes' own signers accept, and how a request was answered. Pure.

`cryptography` is imported when it is needed.
Source: Kubernetes 1.36, pkg/apis/certificates and pkg/controller/certificates/signer, as behaviour.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from haru.kube.meta import Obj

if TYPE_CHECKING:
    from cryptography import x509

CLIENT: Final = "kubernetes.io/kube-apiserver-client"
KUBELET_CLIENT: Final = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING: Final = "kubernetes.io/kubelet-serving"
LEGACY_UNKNOWN: Final = "kubernetes.io/legacy-unknown"
SIGNERS: Final = (CLIENT, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN)
"""The signers whose requests the cluster's own controller signs."""

KEY_USAGES: Final[Mapping[str, str]] = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
"""Usages of a key, and what the extension KeyUsage calls them."""
EXTENDED_USAGES: Final[Mapping[str, str]] = {
    "any": "2.5.29.37.0",
    "server auth": "1.3.6.1.5.5.7.3.1",
    "client auth": "1.3.6.1.5.5.7.3.2",
    "code signing": "1.3.6.1.5.5.7.3.3",
    "email protection": "1.3.6.1.5.5.7.3.4",
    "s/mime": "1.3.6.1.5.5.7.3.4",
    "ipsec end system": "1.3.6.1.5.5.7.3.5",
    "ipsec tunnel": "1.3.6.1.5.5.7.3.6",
    "ipsec user": "1.3.6.1.5.5.7.3.7",
    "timestamping": "1.3.6.1.5.5.7.3.8",
    "ocsp signing": "1.3.6.1.5.5.7.3.9",
    "microsoft sgc": "1.3.6.1.4.1.311.10.3.3",
    "netscape sgc": "2.16.840.1.113730.4.1",
}
"""Usages that the extension ExtendedKeyUsage names, with their object identifiers."""
_NODE_USER: Final = "system:node:"
_NODE_GROUP: Final = "system:nodes"
_BEGIN: Final = re.compile(rb"-----BEGIN ([^-\n]*)-----")


def decoded(request: Obj) -> x509.CertificateSigningRequest:
    """The request in a CertificateSigningRequest; ValueError says what is wrong with it."""
    return parsed(str((request.get("spec") or {}).get("request") or ""))


def parsed(encoded: str) -> x509.CertificateSigningRequest:
    """The first PEM block of a text in base64, which has to be a request; ValueError otherwise."""
    from cryptography import x509

    try:
        pem = base64.b64decode(encoded)
    except binascii.Error as error:
        raise ValueError(str(error)) from error
    begin = _BEGIN.search(pem)
    if begin is None or begin[1] != b"CERTIFICATE REQUEST":
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    return x509.load_pem_x509_csr(pem)


def answers(request: Obj) -> set[str]:
    """The types of a request's conditions."""
    return {str(one.get("type")) for one in _conditions(request)}


def is_approved(request: Obj) -> bool:
    """Whether somebody approved a request and nobody denied it."""
    found = answers(request)
    return "Approved" in found and "Denied" not in found


def with_condition_times(new: Obj, old: Obj, now: str) -> Obj:
    """A request whose conditions all say when they were set."""
    known = {(one.get("type"), one.get("status")): one for one in reversed(_conditions(old))}
    stamped = [
        {
            **one,
            "lastUpdateTime": one.get("lastUpdateTime") or now,
            "lastTransitionTime": one.get("lastTransitionTime")
            or known.get((one.get("type"), one.get("status")), {}).get("lastTransitionTime")
            or now,
        }
        for one in _conditions(new)
    ]
    return {**new, "status": {**(new.get("status") or {}), "conditions": stamped}} if stamped else new


def with_kept_answers(new: Obj, old: Obj) -> Obj:
    """A request whose approval or denial stands as it was, where it is written in another place."""
    conditions = list(_conditions(new))
    for type_ in ("Approved", "Denied"):
        before = [one for one in _conditions(old) if one.get("type") == type_]
        places = [index for index, one in enumerate(conditions) if one.get("type") == type_]
        if len(before) == len(places):
            for place, one in zip(places, before, strict=True):
                conditions[place] = one
    return {**new, "status": {**(new.get("status") or {}), "conditions": conditions}} if conditions else new


def _conditions(request: Obj) -> list[Obj]:
    return (request.get("status") or {}).get("conditions") or []


def common_name(request: x509.CertificateSigningRequest) -> str:
    """The last common name of a request's subject."""
    from cryptography.x509.oid import NameOID

    names = [str(one.value) for one in request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    return names[-1] if names else ""


def alternative_names(request: x509.CertificateSigningRequest) -> Mapping[str, list[Any]]:
    """The subject's alternative names that certificates are given, by their sort."""
    from cryptography import x509

    try:
        found = request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return {"DNS": [], "Email": [], "IP": [], "URI": []}
    return {
        "DNS": found.get_values_for_type(x509.DNSName),
        "Email": found.get_values_for_type(x509.RFC822Name),
        "IP": found.get_values_for_type(x509.IPAddress),
        "URI": found.get_values_for_type(x509.UniformResourceIdentifier),
    }


def refusal(request: x509.CertificateSigningRequest, usages: Collection[str], signer: str) -> str:
    """Why one of Kubernetes' signers signs no such request; empty if it does."""
    return next(_refusals(request, usages, signer), "")


def is_kubelet_client(request: x509.CertificateSigningRequest, usages: Collection[str]) -> bool:
    """Whether a kubelet asks for its client certificate."""
    return not refusal(request, usages, KUBELET_CLIENT)


def _refusals(request: x509.CertificateSigningRequest, usages: Collection[str], signer: str) -> Iterator[str]:
    if signer == CLIENT:
        for usage in usages:
            if usage not in ("digital signature", "key encipherment", "client auth"):
                yield f"invalid usage for client certificate: {usage}"
        if "client auth" not in usages:
            yield "missing required usage for client certificate: client auth"
    elif signer in (KUBELET_CLIENT, KUBELET_SERVING):
        yield from _kubelet_refusals(request, usages, serving=signer == KUBELET_SERVING)


def _kubelet_refusals(
    request: x509.CertificateSigningRequest, usages: Collection[str], *, serving: bool
) -> Iterator[str]:
    from cryptography.x509.oid import NameOID

    organizations = [str(one.value) for one in request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    if organizations != [_NODE_GROUP]:
        yield f"subject organization is not {_NODE_GROUP}"
    names = alternative_names(request)
    if serving and not names["DNS"] and not names["IP"]:
        yield "DNS or IP subjectAltName is required"
    for sort in ("Email", "URI") if serving else ("DNS", "Email", "IP", "URI"):
        if names[sort]:
            yield f"{sort} subjectAltNames are not allowed"
    purpose = "server auth" if serving else "client auth"
    wanted = {"digital signature", "key encipherment", purpose}
    if set(usages) not in (wanted, wanted - {"key encipherment"}):
        yield f"usages did not match [{' '.join(sorted(wanted))}]"
    if not common_name(request).startswith(_NODE_USER):
        yield f"subject common name does not begin with {_NODE_USER}"
