"""By what extension API servers know the API server of `haru up`."""

from __future__ import annotations

import json
from pathlib import Path

from cryptography import x509

from haru.embedded.cluster import EmbeddedCluster
from haru.embedded.identity import ADMIN, ensure_identity
from haru.embedded.options import ControllerOptions, UpOptions, UsageOptions, parse_profiles
from haru.kube.kinds import known_kind

MAP = "extension-apiserver-authentication"


async def test_haru_up_uses_separate_persistent_front_proxy_ca(tmp_path: Path) -> None:
    """The authority is kept, and is not that of users: who has a user's certificate is no front proxy."""
    options = UpOptions(
        profiles=parse_profiles("cpu:0"),
        listen=("127.0.0.1", 0),
        controllers=ControllerOptions(()),
        dashboard=None,
        usage=UsageOptions(history=False),
    )
    bundles = []
    for _ in range(2):
        cluster = EmbeddedCluster(options, tmp_path)
        await cluster.start()
        try:
            found = await cluster.client(ADMIN).get(known_kind("v1", "ConfigMap"), MAP, "kube-system")
        finally:
            await cluster.stop()
        bundles.append(found["data"])
    assert bundles[0] == bundles[1]
    identity = ensure_identity(tmp_path / "pki", "127.0.0.1")
    assert bundles[0]["client-ca-file"].encode() == identity.ca_pem
    authority = x509.load_pem_x509_certificate(bundles[0]["requestheader-client-ca-file"].encode())
    shown = x509.load_pem_x509_certificate(identity.front_proxy_client.certificate)
    shown.verify_directly_issued_by(authority)
    name = shown.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value
    assert json.loads(bundles[0]["requestheader-allowed-names"]) == [name]
    assert authority != x509.load_pem_x509_certificate(identity.ca_pem)
    assert (tmp_path / "pki" / "front-proxy-ca.key").stat().st_mode & 0o777 == 0o600
