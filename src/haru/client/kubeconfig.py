"""Where the cluster is and who we are there: kubeconfig files and the service account of a pod.

A kubeconfig names clusters, users and contexts; several files (a KUBECONFIG list) are merged, the first file that says
something wins. Paths inside a file are relative to that file.
Source: the kubeconfig format (clientcmd v1).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args
from urllib.parse import urlsplit

from haru.client.credentials import InteractiveMode, Program
from haru.client.impersonation import Impersonation
from haru.files import text_of
from haru.kube import yaml
from haru.proxy_settings import Proxy

_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class KubeconfigError(ValueError):
    """A kubeconfig that cannot be used; the message names the file or entry and what to change."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """All that is needed to reach one API server as one user."""

    server: str
    namespace: str = "default"
    ca_pem: bytes | None = None
    insecure: bool = False
    tls_server_name: str = ""
    proxy: str = ""
    compression: bool = True
    impersonated: Impersonation | None = None
    token: str = ""
    token_file: Path | None = None
    program: Program | None = None
    cert_pem: bytes | None = None
    key_pem: bytes | None = None
    context: str = ""
    data_dir: Path | None = None
    """Where the `haru up` behind it keeps its data, if it is one and says so (the extension `haru.dev`)."""


@dataclass(frozen=True, slots=True)
class _Entry:
    body: Mapping[str, Any]
    folder: Path
    where: str

    def text(self, key: str) -> str:
        value = self.body.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise KubeconfigError(f"{self.where}.{key}: a text is needed, not {value!r}")
        return value

    def flag(self, key: str) -> bool:
        """Whether something is said to be so. What is no boolean, such as the text "false", is refused."""
        value = self.body.get(key)
        if value is not None and not isinstance(value, bool):
            raise KubeconfigError(f"{self.where}.{key}: true or false is needed, not {value!r}")
        return bool(value)

    def texts(self, key: str) -> tuple[str, ...]:
        values = self.body.get(key) or ()
        if not isinstance(values, list | tuple) or not all(isinstance(value, str) for value in values):
            raise KubeconfigError(f"{self.where}.{key}: a list of texts is needed")
        return tuple(values)

    def content(self, key: str) -> bytes | None:
        """What `<key>-data` carries in base64, else the content of the file that `<key>` names."""
        if data := self.text(f"{key}-data"):
            try:
                return base64.b64decode("".join(data.splitlines()), validate=True)
            except binascii.Error as error:
                raise KubeconfigError(f"{self.where}.{key}-data: not valid base64: {error}") from error
        path = self.path(key)
        if path is None:
            return None
        try:
            return path.read_bytes()
        except OSError as error:
            raise KubeconfigError(f"{self.where}.{key}: {path}: {error.strerror}") from error

    def path(self, key: str) -> Path | None:
        text = self.text(key)
        return self.folder / Path(text).expanduser() if text else None


class _Merged:
    """The entries of all files by section and name; an entry of an earlier file hides a later one."""

    def __init__(self) -> None:
        self.current_context = ""
        self.entries: dict[tuple[str, str], _Entry] = {}

    def add(self, text: str, path: Path) -> None:
        document = yaml.load(text)
        self.current_context = self.current_context or str(document.get("current-context") or "")
        for section, key in (("clusters", "cluster"), ("users", "user"), ("contexts", "context")):
            for item in document.get(section) or ():
                if not isinstance(item, dict) or not isinstance(item.get("name"), str):
                    raise KubeconfigError(f"{path}: {section}: every entry needs a name")
                name = item["name"]
                entry = _Entry(item.get(key) or {}, path.parent, f"{path}: {section}[{name}].{key}")
                self.entries.setdefault((section, name), entry)

    def find(self, section: str, name: str, asked_by: str) -> _Entry:
        entry = self.entries.get((section, name))
        if entry is None:
            known = ", ".join(sorted(n for s, n in self.entries if s == section)) or "none"
            raise KubeconfigError(f"{asked_by}: {section} has no entry {name!r} (there are: {known})")
        return entry


def kubeconfig_paths(explicit: str | Path | None = None, environ: Mapping[str, str] | None = None) -> list[Path]:
    """The files that kubectl would read: the explicit one, else KUBECONFIG's list, else `~/.kube/config`."""
    environ = os.environ if environ is None else environ
    if explicit:
        return [Path(explicit).expanduser()]
    if listed := environ.get("KUBECONFIG"):
        return [Path(p).expanduser() for p in listed.split(os.pathsep) if p]
    return [Path("~/.kube/config").expanduser()]


def load_kubeconfig(
    paths: str | Path | Sequence[str | Path] | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> ClusterConfig:
    """The cluster and user of `context` (default: the current one) out of one or several kubeconfig files.

    Of a list, files that do not exist are skipped, as kubectl does; a single file must exist.
    """
    files = [Path(p) for p in paths] if isinstance(paths, list | tuple) else kubeconfig_paths(_single(paths), environ)
    merged = _Merged()
    for path in files:
        try:
            merged.add(text_of(path.read_bytes()), path.absolute())
        except FileNotFoundError:
            if len(files) == 1:
                raise KubeconfigError(f"{path}: no such file; give --kubeconfig or set KUBECONFIG") from None
        except OSError as error:
            raise KubeconfigError(f"{path}: {error.strerror}") from error
        except KubeconfigError:
            raise
        except ValueError as error:
            raise KubeconfigError(f"{path}: {error}") from error
    return _resolve(merged, context, files)


def _single(paths: Any) -> str | Path | None:
    return paths if paths is None or isinstance(paths, str | Path) else str(paths)


def _resolve(merged: _Merged, context: str | None, files: Iterable[Path]) -> ClusterConfig:
    listed = ", ".join(map(str, files))
    name = context or merged.current_context
    if not name:
        raise KubeconfigError(f"{listed}: no current-context; give --context or set current-context")
    chosen = merged.find("contexts", name, listed)
    cluster = merged.find("clusters", chosen.text("cluster"), chosen.where)
    user_name = chosen.text("user")
    user = merged.find("users", user_name, chosen.where) if user_name else _Entry({}, Path(), "")
    for key in ("auth-provider", "username"):
        if user.body.get(key):
            remedy = "use exec, token, tokenFile or a client certificate"
            raise KubeconfigError(f"{user.where}.{key}: this way to log in is not supported; {remedy}")
    proxy = cluster.text("proxy-url")
    try:
        _ = Proxy.of(proxy) if proxy else None
    except ValueError as error:
        raise KubeconfigError(f"{cluster.where}.proxy-url: {error}") from None
    cert, key_pem = user.content("client-certificate"), user.content("client-key")
    if (cert is None) != (key_pem is None):
        raise KubeconfigError(f"{user.where}: client-certificate and client-key must be given together")
    return ClusterConfig(
        server=_server(cluster),
        namespace=chosen.text("namespace") or "default",
        ca_pem=cluster.content("certificate-authority"),
        insecure=cluster.flag("insecure-skip-tls-verify"),
        tls_server_name=cluster.text("tls-server-name"),
        proxy=proxy,
        compression=not cluster.flag("disable-compression"),
        impersonated=_impersonated(user),
        token=user.text("token"),
        token_file=user.path("tokenFile"),
        program=_program(user, cluster),
        cert_pem=cert,
        key_pem=key_pem,
        context=name,
        data_dir=_data_dir(cluster),
    )


def _server(cluster: _Entry) -> str:
    server = cluster.text("server")
    try:
        parts = urlsplit(server)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError as error:
        raise KubeconfigError(f"{cluster.where}.server: {server!r}: {error}") from None
    if not is_url:
        raise KubeconfigError(f"{cluster.where}.server: {server!r} is not an http:// or https:// URL")
    return server


def _impersonated(user: _Entry) -> Impersonation | None:
    extra = user.body.get("as-user-extra") or {}
    if not isinstance(extra, dict) or not all(isinstance(values, list) for values in extra.values()):
        raise KubeconfigError(f"{user.where}.as-user-extra: a list of texts is needed for each key")
    found = Impersonation(
        user.text("as"),
        user.text("as-uid"),
        user.texts("as-groups"),
        {str(key): tuple(map(str, values)) for key, values in extra.items()},
    )
    if found and not found.user:
        raise KubeconfigError(f"{user.where}: as-uid, as-groups and as-user-extra need as: the user to act as")
    return found or None


def _data_dir(cluster: _Entry) -> Path | None:
    for entry in cluster.body.get("extensions") or ():
        about = entry.get("extension") if isinstance(entry, dict) and entry.get("name") == "haru.dev" else None
        if isinstance(about, dict) and isinstance(about.get("dataDir"), str):
            return Path(about["dataDir"])
    return None


def _program(user: _Entry, cluster: _Entry) -> Program | None:
    body = user.body.get("exec")
    if not body:
        return None
    where = f"{user.where}.exec"
    if not isinstance(body, dict) or not isinstance(body.get("command"), str):
        raise KubeconfigError(f"{where}.command: a program is needed")
    version = str(body.get("apiVersion") or _EXEC_VERSIONS[0])
    mode: Any = body.get("interactiveMode") or "IfAvailable"
    if version not in _EXEC_VERSIONS:
        known = " or ".join(_EXEC_VERSIONS)
        raise KubeconfigError(f"{where}.apiVersion: {version!r} is not supported; use {known}")
    if mode not in get_args(InteractiveMode):
        known = ", ".join(get_args(InteractiveMode))
        raise KubeconfigError(f"{where}.interactiveMode: {mode!r} is none of {known}")
    env = body.get("env") or ()
    if not all(isinstance(item, dict) and item.get("name") for item in env):
        raise KubeconfigError(f"{where}.env: every variable needs a name")
    command = body["command"]
    return Program(
        # A bare name is looked up in PATH, anything else is relative to the kubeconfig.
        command=str(user.folder / command) if "/" in command else command,
        args=tuple(str(argument) for argument in body.get("args") or ()),
        env={str(item["name"]): str(item.get("value", "")) for item in env},
        api_version=version,
        install_hint=str(body.get("installHint") or ""),
        cluster=_told_cluster(cluster) if _Entry(body, user.folder, where).flag("provideClusterInfo") else None,
        interactive=mode,
    )


_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_EXEC_EXTENSION = "client.authentication.k8s.io/exec"
"""What a cluster entry says to credential programs alone."""


def _told_cluster(cluster: _Entry) -> dict[str, Any]:
    """The cluster as a credential program is told of it (`spec.cluster` of ExecCredential)."""
    ca = cluster.content("certificate-authority")
    extensions = [entry for entry in cluster.body.get("extensions") or () if isinstance(entry, dict)]
    told = {
        "server": cluster.text("server"),
        "tls-server-name": cluster.text("tls-server-name"),
        "insecure-skip-tls-verify": cluster.flag("insecure-skip-tls-verify"),
        "certificate-authority-data": base64.b64encode(ca).decode() if ca is not None else "",
        "proxy-url": cluster.text("proxy-url"),
        "disable-compression": cluster.flag("disable-compression"),
        "config": next((entry.get("extension") for entry in extensions if entry.get("name") == _EXEC_EXTENSION), None),
    }
    return {key: value for key, value in told.items() if value or key == "server"}


def in_cluster(environ: Mapping[str, str] | None = None, folder: Path = _SERVICE_ACCOUNT) -> ClusterConfig | None:
    """The API server of the cluster this process runs in as a pod; None outside of one."""
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    token_file = folder / "token"
    if not host or not port or not token_file.exists():
        return None
    namespace = folder / "namespace"
    ca = folder / "ca.crt"
    return ClusterConfig(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=namespace.read_text().strip() if namespace.exists() else "default",
        ca_pem=ca.read_bytes() if ca.exists() else None,
        token_file=token_file,
    )
