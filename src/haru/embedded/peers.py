"""The flags of peers and front proxies: files, loaded and checked before the start."""

from __future__ import annotations

import ipaddress
import logging
import ssl
from dataclasses import dataclass
from pathlib import Path

from haru.apiserver.aggregation import AggregationOptions, show_certificate
from haru.apiserver.peers import FrontProxyOptions, PeerOptions, fingerprints, peer_tls
from haru.embedded.errors import OptionError
from haru.embedded.flag_files import read_authorities, read_file
from haru.kube.gates import FeatureGates

GATE = "UnknownVersionInteroperabilityProxy"
_LOG = logging.getLogger("haru.apiserver")


@dataclass(frozen=True, slots=True)
class PeerFiles:
    """The flags `--peer-…`, `--proxy-client-…` and `--requestheader-…`; paths are those of PEM files."""

    hostname: str = ""
    """Empty: that of the machine."""
    peer_ca: Path | None = None
    advertise_ip: str = ""
    advertise_port: int = 0
    proxy_cert: Path | None = None
    proxy_key: Path | None = None
    front_proxy_ca: Path | None = None
    names: tuple[str, ...] = ()
    user_headers: tuple[str, ...] = ("X-Remote-User",)
    uid_headers: tuple[str, ...] = ("X-Remote-Uid",)
    group_headers: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)

    def peers(self, gates: FeatureGates) -> PeerOptions:
        """What the server is among its peers. Raises OptionError."""
        if not gates.enabled(GATE):
            self._refuse_without_gate()
        if (self.proxy_cert is None) != (self.proxy_key is None):
            raise OptionError("--proxy-client-cert-file and --proxy-client-key-file belong together: give both or none")
        if self.advertise_ip:
            try:
                ipaddress.ip_address(self.advertise_ip)
            except ValueError:
                text = f'--peer-advertise-ip: Invalid value: "{self.advertise_ip}": write an IP address'
                raise OptionError(text) from None
        named = {"hostname": self.hostname} if self.hostname else {}
        options = PeerOptions(
            advertise_ip=self.advertise_ip,
            advertise_port=self.advertise_port,
            authority=read_file(self.peer_ca, "--peer-ca-file"),
            certificate=read_file(self.proxy_cert, "--proxy-client-cert-file"),
            key=read_file(self.proxy_key, "--proxy-client-key-file"),
            **named,
        )
        if options.complete:
            try:
                peer_tls(options)
            except (ssl.SSLError, ValueError) as error:
                files = "--peer-ca-file, --proxy-client-cert-file, --proxy-client-key-file"
                raise OptionError(f"{files}: these are no certificates and key that belong together: {error}") from None
        elif self.proxy_cert is not None:
            self._check_pair(options)
        elif self.peer_ca is not None:
            missing = "--proxy-client-cert-file and --proxy-client-key-file"
            _LOG.warning("--peer-ca-file without %s: nothing is forwarded to peers", missing)
        return options

    def _check_pair(self, options: PeerOptions) -> None:
        shown = AggregationOptions(options.certificate, options.key)
        try:
            show_certificate(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), shown)
        except ssl.SSLError as error:
            files = "--proxy-client-cert-file, --proxy-client-key-file"
            raise OptionError(f"{files}: these are no certificate and key that belong together: {error}") from None

    def front_proxy(self, client_ca: bytes | None, gates: FeatureGates) -> FrontProxyOptions | None:
        """The front proxies that may name users in headers; None: there is none. Raises OptionError."""
        if self.front_proxy_ca is None:
            return None
        authorities = read_authorities(self.front_proxy_ca, "--requestheader-client-ca-file")
        if fingerprints(authorities) & fingerprints(client_ca):
            _LOG.warning(
                "--requestheader-client-ca-file has an authority of --client-ca-file: holders of its certificates%s "
                "can speak for any user; use an authority of its own",
                " with an allowed name" if self.names else "",
            )
        return FrontProxyOptions(
            authorities,
            self.names,
            _lower(self.user_headers, "username-headers"),
            _lower(self.uid_headers, "uid-headers") if gates.enabled("RemoteRequestHeaderUID") else (),
            _lower(self.group_headers, "group-headers"),
            _lower(self.extra_prefixes, "extra-headers-prefix"),
        )

    def _refuse_without_gate(self) -> None:
        given = {
            "--peer-ca-file": self.peer_ca is not None,
            "--peer-advertise-ip": bool(self.advertise_ip),
            "--peer-advertise-port": bool(self.advertise_port),
        }
        for flag in (flag for flag, is_given in given.items() if is_given):
            raise OptionError(f"{flag}: Forbidden while the feature gate {GATE} is off: turn it on, or drop the flag")


def _lower(names: tuple[str, ...], flag: str) -> tuple[str, ...]:
    for name in names:
        if not name.isascii() or not name.replace("-", "").isalnum():
            text = f'--requestheader-{flag}: Invalid value: "{name}": write names of headers, with commas between them'
            raise OptionError(text)
    return tuple(name.lower() for name in names)
