"""Signing requests: who may approve and sign for a signer, and what nobody is given.

Sources: admission plugins CertificateApproval, CertificateSigning and CertificateSubjectRestriction, as behaviour.
"""

from __future__ import annotations

import base64
import binascii

from cryptography import x509
from cryptography.x509.oid import NameOID

from haru.apiserver.auth.authorization import MASTERS, Authorizer
from haru.apiserver.auth.node_authorizer import Attributes
from haru.apiserver.request.call import Call
from haru.kube.errors import StatusError, forbidden_error
from haru.kube.meta import Obj

_GROUP = "certificates.k8s.io"
_CLIENTS = "kubernetes.io/kube-apiserver-client"


async def check_subject(call: Call, request: Obj) -> None:
    """On create: nobody becomes an administrator beyond all rules by a certificate."""
    spec = request.get("spec") or {}
    if spec.get("signerName") != _CLIENTS:
        return
    try:
        asked = x509.load_pem_x509_csr(base64.b64decode(spec.get("request") or ""))
    except (ValueError, binascii.Error) as error:
        raise _refusal(call, request, f"failed to parse CSR: {error}") from None
    groups = {str(each.value) for each in asked.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)}
    if MASTERS in groups:
        why = f"use of {_CLIENTS} signer with {MASTERS} group is not allowed"
        raise _refusal(call, request, why)


async def check_approval(authorizer: Authorizer, call: Call, new: Obj, old: Obj) -> None:
    """Require the right to approve for the signer of a request."""
    _require(authorizer, call, old, "approve")


async def check_signature(authorizer: Authorizer, call: Call, new: Obj, old: Obj) -> None:
    """On update of the status: a certificate takes the right to sign for the signer."""
    after, before = new.get("status") or {}, old.get("status") or {}
    if after.get("certificate") != before.get("certificate") or _failed(after) != _failed(before):
        _require(authorizer, call, new, "sign")


def _failed(status: Obj) -> bool:
    return any(condition.get("type") == "Failed" for condition in status.get("conditions") or ())


def _require(authorizer: Authorizer, call: Call, request: Obj, verb: str) -> None:
    """The right on `signers`, by name or for all signers of the domain."""
    user = call.request.user
    signer = str((request.get("spec") or {}).get("signerName") or "")
    domain = signer.partition("/")[0]
    if MASTERS in user.groups:
        return
    for name in (signer, f"{domain}/*"):
        if authorizer.allowed(user, Attributes(verb, _GROUP, "signers", name=name)):
            return
    raise _refusal(call, request, f'user not permitted to {verb} requests with signerName "{signer}"')


def _refusal(call: Call, request: Obj, why: str) -> StatusError:
    kind = call.resource.kind
    return forbidden_error(kind.group, kind.plural, str(request["metadata"].get("name") or ""), why)
