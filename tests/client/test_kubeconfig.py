import base64
import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from tls_server import certificate, pem

from haru.client.api import ApiClient
from haru.client.http import tls_context
from haru.client.impersonation import Impersonation
from haru.client.kubeconfig import KubeconfigError, in_cluster, kubeconfig_paths, load_kubeconfig
from haru.client.transport import Request


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def config(
    *, current: str = "dev", cluster: str = "server: https://1.2.3.4:6443", user: str = "token: t", context: str = ""
) -> str:
    return f"""
apiVersion: v1
kind: Config
current-context: {current}
clusters:
- name: dev
  cluster:
    {cluster}
users:
- name: dev
  user:
    {user}
contexts:
- name: dev
  context:
    cluster: dev
    user: dev
    {context}
"""


def test_context_selects_server_user_and_namespace(tmp_path: Path):
    (tmp_path / "token").write_text("secret")
    path = tmp_path / "config"
    path.write_text(
        config(
            cluster=f"server: https://1.2.3.4:6443\n    certificate-authority-data: {encoded('CA')}\n"
            "    tls-server-name: api.example\n    proxy-url: http://proxy:3128",
            user=f"client-certificate-data: {encoded('CERT')}\n    client-key-data: {encoded('KEY')}\n"
            "    tokenFile: token",
            context="namespace: work",
        )
    )
    loaded = load_kubeconfig(path)
    assert (loaded.server, loaded.namespace, loaded.context) == ("https://1.2.3.4:6443", "work", "dev")
    assert (loaded.ca_pem, loaded.cert_pem, loaded.key_pem) == (b"CA", b"CERT", b"KEY")
    assert (loaded.tls_server_name, loaded.proxy) == ("api.example", "http://proxy:3128")
    assert loaded.token_file == tmp_path / "token"
    assert not loaded.insecure


def test_data_may_stand_in_several_lines(tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(config(cluster="server: https://x\n    certificate-authority-data: |\n      Q0Ft\n      b3Jl\n"))
    assert load_kubeconfig(path).ca_pem == b"CAmore"


def test_encrypted_key_is_refused_without_asking_for_its_passphrase(tmp_path: Path):
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    with pytest.raises(ssl.SSLError, match="the private key is encrypted: store it without a passphrase"):
        tls_context(None, (pem(certificate("me"))[0], key))


def test_file_paths_are_relative_to_kubeconfig(tmp_path: Path):
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.crt").write_text("CA")
    path = tmp_path / "config"
    path.write_text(config(cluster="server: https://x\n    certificate-authority: pki/ca.crt"))
    assert load_kubeconfig(path).ca_pem == b"CA"


def test_first_of_several_kubeconfigs_wins_per_entry(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("current-context: dev\nusers:\n- name: dev\n  user: {token: first}\n")
    second.write_text(config(current="other", user="token: second"))
    loaded = load_kubeconfig(environ={"KUBECONFIG": f"{first}:{tmp_path / 'missing'}:{second}"})
    assert (loaded.context, loaded.token, loaded.server) == ("dev", "first", "https://1.2.3.4:6443")


@pytest.mark.parametrize(
    ("text", "context", "message"),
    [
        (config(current="''"), None, "no current-context; give --context"),
        (config(), "prod", r"contexts has no entry 'prod' \(there are: dev\)"),
        (config(cluster="server: 1.2.3.4"), None, "server: '1.2.3.4' is not an http:// or https:// URL"),
        (config(cluster="server: https://"), None, "server: 'https://' is not an http:// or https:// URL"),
        (config(cluster="server: https://h:99999"), None, r"cluster.server: 'https://h:99999': Port out of range"),
        (config(cluster="server: 'https://[::1'"), None, r"cluster.server: .*: Invalid IPv6 URL"),
        (config(user="exec: {args: [a]}"), None, r"users\[dev\].user.exec.command: a program is needed"),
        (
            config(user="exec: {command: x, interactiveMode: Often}"),
            None,
            "'Often' is none of Never, IfAvailable, Always",
        ),
        (
            config(user="exec: {command: x, apiVersion: client.authentication.k8s.io/v1alpha1}"),
            None,
            r"exec.apiVersion: '.*/v1alpha1' is not supported; use client.authentication.k8s.io/v1 or ",
        ),
        (config(user="exec: {command: x, env: [{value: v}]}"), None, "exec.env: every variable needs a name"),
        (
            config(user="token: t\n    as-groups: [a]"),
            None,
            r"users\[dev\].user: as-uid, as-groups .* need as: the user",
        ),
        (config(user="as: a\n    as-groups: b"), None, r"as-groups: a list of texts is needed"),
        (config(user="as: a\n    as-user-extra: {k: v}"), None, r"as-user-extra: a list of texts is needed for each"),
        (
            config(cluster="server: https://x\n    proxy-url: ftp://p"),
            None,
            "proxy-url: 'ftp://p' is not an http://, https:// or socks5:// URL",
        ),
        (config(user="auth-provider: {name: gcp}"), None, "this way to log in is not supported; use exec, token"),
        (
            config(user="client-certificate-data: QQ=="),
            None,
            "client-certificate and client-key must be given together",
        ),
        (config(cluster="server: https://x\n    certificate-authority-data: '?'"), None, "not valid base64"),
        (config(cluster="server: https://x\n    certificate-authority: nope"), None, "nope: No such file"),
        (config(user="token: [a]"), None, r"user.token: a text is needed"),
        (
            config(cluster="{server: 'https://x', insecure-skip-tls-verify: 'false'}"),
            None,
            r"cluster.insecure-skip-tls-verify: true or false is needed, not 'false'",
        ),
        (
            config(cluster="{server: 'https://x', disable-compression: 1}"),
            None,
            r"cluster.disable-compression: true or false is needed, not 1",
        ),
        (
            config(user="exec: {command: x, provideClusterInfo: 'no'}"),
            None,
            r"exec.provideClusterInfo: true or false is needed, not 'no'",
        ),
        ("- a", None, "config: .*is a list, not an object"),
        ("a: [", None, "config"),
    ],
)
def test_kubeconfig_error_names_place_and_fix(tmp_path: Path, text, context, message):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(KubeconfigError, match=message):
        load_kubeconfig(path, context)


def test_user_to_act_as_is_read_from_kubeconfig(tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(config(user="{token: t, as: jane, as-uid: u-1, as-groups: [a, b], as-user-extra: {k/x: [v, w]}}"))
    assert load_kubeconfig(path).impersonated == Impersonation("jane", "u-1", ("a", "b"), {"k/x": ("v", "w")})
    path.write_text(config())
    assert load_kubeconfig(path).impersonated is None


@pytest.mark.parametrize("disabled", [True, False])
def test_compressed_answers_are_asked_for_unless_disabled(tmp_path: Path, disabled):
    path = tmp_path / "config"
    path.write_text(config(cluster=f"{{server: 'https://x', disable-compression: {str(disabled).lower()}}}"))
    client = ApiClient.from_kubeconfig(path)
    sent = client._transport._connections.encoded(Request("GET", "/api"))
    assert (b"accept-encoding: gzip" in sent) is not disabled


def test_missing_single_kubeconfig_is_an_error(tmp_path: Path):
    with pytest.raises(KubeconfigError, match="no such file; give --kubeconfig or set KUBECONFIG"):
        load_kubeconfig(tmp_path / "none")


def test_kubeconfig_paths_follow_kubectl():
    assert kubeconfig_paths("x", {"KUBECONFIG": "y"}) == [Path("x")]
    assert kubeconfig_paths(None, {"KUBECONFIG": "y:z"}) == [Path("y"), Path("z")]
    assert kubeconfig_paths(None, {}) == [Path("~/.kube/config").expanduser()]


def test_in_cluster_config_reads_environment_and_service_account(tmp_path: Path):
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert in_cluster(environ, tmp_path) is None
    for name, text in (("token", "t"), ("namespace", "ns\n"), ("ca.crt", "CA")):
        (tmp_path / name).write_text(text)
    assert in_cluster({}, tmp_path) is None
    found = in_cluster(environ, tmp_path)
    assert found is not None
    assert (found.server, found.namespace, found.ca_pem) == ("https://10.0.0.1:443", "ns", b"CA")
    assert found.token_file == tmp_path / "token"
    v6 = in_cluster({**environ, "KUBERNETES_SERVICE_HOST": "fd00::1"}, tmp_path)
    assert v6 is not None
    assert v6.server == "https://[fd00::1]:443"


def test_embedded_certificates_are_loaded_without_leaving_files(tmp_path: Path, monkeypatch):
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    cert = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, begin, begin + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
        .public_bytes(serialization.Encoding.PEM)
    )
    key_pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert tls_context(cert, (cert, key_pem)).check_hostname
    assert not tls_context(insecure=True).check_hostname
    assert list(tmp_path.iterdir()) == []
    path = tmp_path / "config"
    path.write_text(
        config(cluster=f"server: https://x\n    certificate-authority-data: {base64.b64encode(cert).decode()}")
    )
    client = ApiClient.from_kubeconfig(path)
    assert (client.server, client.namespace) == ("https://x", "default")


def test_exec_section_gives_credential_program(tmp_path: Path):
    path = tmp_path / "config"
    user = "exec: {command: ./login, args: [a, 1], env: [{name: K, value: v}],"
    user += " provideClusterInfo: true, installHint: get it}"
    path.write_text(config(user=user))
    program = load_kubeconfig(path).program
    assert program is not None
    assert (program.command, program.args, program.env) == (str(tmp_path / "login"), ("a", "1"), {"K": "v"})
    assert program.cluster == {"server": "https://1.2.3.4:6443"}
    assert (program.api_version, program.interactive) == ("client.authentication.k8s.io/v1", "IfAvailable")


def test_credential_program_is_told_all_of_the_cluster(tmp_path: Path):
    path = tmp_path / "config"
    (tmp_path / "ca").write_bytes(b"PEM")
    cluster = """server: https://1.2.3.4:6443
    tls-server-name: kubernetes
    certificate-authority: ca
    insecure-skip-tls-verify: true
    proxy-url: http://proxy:3128
    disable-compression: true
    extensions:
    - {name: haru.dev, extension: {dataDir: /x}}
    - {name: client.authentication.k8s.io/exec, extension: {audience: me}}"""
    user = "exec: {command: login, provideClusterInfo: true, interactiveMode: Never, "
    user += "apiVersion: client.authentication.k8s.io/v1beta1}"
    path.write_text(config(cluster=cluster, user=user))
    program = load_kubeconfig(path).program
    assert program is not None
    assert program.cluster == {
        "server": "https://1.2.3.4:6443",
        "tls-server-name": "kubernetes",
        "insecure-skip-tls-verify": True,
        "certificate-authority-data": "UEVN",
        "proxy-url": "http://proxy:3128",
        "disable-compression": True,
        "config": {"audience": "me"},
    }
    assert (program.api_version, program.interactive) == ("client.authentication.k8s.io/v1beta1", "Never")
