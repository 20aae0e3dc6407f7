"""What `haru apiserver` is told: which flags it takes, and what it says of those that can not be used."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from haru.apiserver.auth import new_key
from haru.apiserver.config import UserInfo
from haru.cli.main import main
from haru.embedded.options import OptionError
from haru.embedded.replica import EtcdOptions, Replica, ReplicaOptions, ServingOptions, tokens_of

SERVERS = ("--etcd-servers", "http://127.0.0.1:9")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What it says of arguments that it refuses."""
    try:
        status = main(["apiserver", *arguments])
    except SystemExit as end:
        status = int(str(end.code))
    assert status == 2
    text = capsys.readouterr().err
    assert text.startswith("haru apiserver: ") and text.count("\n") == 1, text
    return text


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that can be used, and some that can not."""
    tmp_path = tmp_path_factory.mktemp("files")
    (tmp_path / "tokens").write_text('t1,admin,1,"system:masters"\n')
    (tmp_path / "bad-tokens").write_text("t1,admin\n")
    (tmp_path / "key").write_bytes(new_key())
    other = ed25519.Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (tmp_path / "odd-key").write_bytes(other)
    (tmp_path / "text").write_text("this is no key")
    (tmp_path / "latin").write_bytes(b"a: \xe9\n")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", "the following arguments are required: --etcd-servers"),
        ("--etcd-servers http://127.0.0.1:9", "nobody could come in: name --client-ca-file, or --token-auth-file"),
        ("SERVERS --token-auth-file tokens", "no ServiceAccount would have a token: name --service-account-signing"),
        ("--etcd-servers localhost:9 TOKENS", '--etcd-servers: Invalid value: "localhost:9": write https://HOST:PORT'),
        ("--etcd-servers http://a:1,https://b:1 TOKENS", "either all servers use https or none does"),
        ("SERVERS KEY --token-auth-file absent", "--token-auth-file: absent: No such file"),
        ("SERVERS KEY --token-auth-file bad-tokens", 'bad-tokens: line 1: write token,user,uid,"group1,group2"'),
        ("SERVERS KEY --client-ca-file absent", "--client-ca-file: absent: No such file"),
        ("SERVERS TOKENS --etcd-certfile key", "--etcd-certfile and --etcd-keyfile belong together"),
        ("SERVERS TOKENS --etcd-cafile absent", "--etcd-cafile: absent: No such file"),
        (
            "SERVERS TOKENS --kubelet-certificate-authority latin",
            "--kubelet-certificate-authority: latin: holds no certificate in PEM",
        ),
        (
            "SERVERS TOKENS --encryption-provider-config latin",
            "--encryption-provider-config: latin: this is no UTF-8 text",
        ),
        (
            "SERVERS TOKENS --admission-control-config-file latin",
            "--admission-control-config-file: latin: this is no UTF-8 text",
        ),
        (
            "SERVERS TOKENS --audit-log-path - --audit-policy-file latin",
            "--audit-policy-file: latin: this is no UTF-8 text",
        ),
        ("SERVERS TOKENS --advertise-address lab", '--advertise-address: Invalid value: "lab": write an IP address'),
        ("SERVERS TOKENS --tls-cert-file key", "--tls-cert-file and --tls-private-key-file belong together"),
        ("SERVERS KEY --client-ca-file text", "--client-ca-file: text: holds no certificate in PEM, or a damaged one"),
        (
            "SERVERS TOKENS --tls-cert-file text --tls-private-key-file key",
            "--tls-cert-file: text: holds no certificate in PEM",
        ),
        ("SERVERS TOKENS --service-account-signing-key-file odd-key", "odd-key: its key is neither an RSA key nor one"),
        ("SERVERS TOKENS --service-account-signing-key-file text", "text: not a private key in PEM; make one with"),
        ("SERVERS TOKENS --service-account-key-file absent", "--service-account-key-file: absent: No such file"),
        ("SERVERS TOKENS --service-account-key-file text", "--service-account-key-file: text: no key in PEM in it"),
        (
            "SERVERS TOKENS SIGNER",
            "--service-account-signing-key-file: Forbidden with --service-account-signing-e",
        ),
        (
            "SERVERS --token-auth-file tokens SIGNER --service-account-key-file key",
            "-key-file: Forbidden with --s",
        ),
        (
            "SERVERS TOKENS --service-account-max-token-expiration 59m",
            'Invalid value: "3540s": write a duration',
        ),
        ("SERVERS TOKENS --service-account-max-token-expiration 5000000000s", 'Invalid value: "5000000000s": write'),
        ("SERVERS TOKENS --service-account-max-token-expiration 1.5s", 'Invalid value: "1.5s": write a duration in'),
        ("SERVERS TOKENS --service-account-jwks-uri http://x/y", 'Invalid value: "http://x/y": write a URL with https'),
        ("SERVERS TOKENS --service-account-lookup maybe", 'Invalid value: "maybe": write true or false'),
        ("SERVERS TOKENS --etcd-compaction-interval soon", 'Invalid value: "soon": write a duration'),
        ("SERVERS TOKENS --etcd-compaction-interval -1m", "--etcd-compaction-interval: "),
        ("SERVERS TOKENS --secure-port 99999", 'Invalid value: "99999": write a port'),
        ("SERVERS TOKENS --max-requests-inflight 0", 'Invalid value: "0": write a number'),
        ("SERVERS TOKENS --http2-max-streams-per-connection -1", 'Invalid value: "-1": write a number from 0'),
        ("SERVERS TOKENS --runtime-config v7=true", 'Invalid value: "v7": no such API version'),
        ("SERVERS TOKENS --feature-gates Nonsense=true", "--feature-gates: "),
        ("SERVERS TOKENS --cert-dir tokens/below", "--cert-dir: tokens/below: "),
    ],
)
def test_invalid_apiserver_flags_exit_with_message(
    files: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: str, text: str
) -> None:
    monkeypatch.chdir(files)
    given = arguments.replace("SERVERS", " ".join(SERVERS)).replace("TOKENS", "KEY --token-auth-file tokens")
    given = given.replace("KEY", "--service-account-signing-key-file key")
    given = given.replace("SIGNER", "--service-account-signing-endpoint signer.sock")
    if "--cert-dir" not in given:
        given += " --cert-dir certs"
    assert text in said(capsys, *given.split())


def test_token_file_gives_users_with_groups(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text('a,admin,1,"system:masters, ops"\n\nb, jane, 2\n')
    assert tokens_of(path) == {
        "a": UserInfo("admin", ("system:masters", "ops"), "1"),
        "b": UserInfo("jane", (), "2"),
    }
    assert tokens_of(None) == {}


ETCD = EtcdOptions(("http://127.0.0.1:9",))


def test_self_signed_certificate_is_created_once(tmp_path: Path) -> None:
    options = ReplicaOptions(ETCD, ServingOptions(cert_dir=tmp_path / "certs", advertise="192.0.2.7"))
    Replica(options)
    cert = tmp_path / "certs" / "apiserver.crt"
    first = cert.read_bytes()
    names = x509.load_pem_x509_certificate(first).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert "192.0.2.7" in [str(a) for a in names.value.get_values_for_type(x509.IPAddress)]
    assert stat.S_IMODE((tmp_path / "certs" / "apiserver.key").stat().st_mode) == 0o600
    Replica(options)
    assert cert.read_bytes() == first and (tmp_path / "certs" / "ca.crt").exists()
    with pytest.raises(OptionError, match="belong together"):
        Replica(ReplicaOptions(ETCD, ServingOptions(tls_key=cert)))
