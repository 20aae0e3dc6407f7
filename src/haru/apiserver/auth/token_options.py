"""The options of ServiceAccount tokens, with the names and bounds of kube-apiserver's flags."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from haru.errors import InputError
from haru.plugin_channel import SOCKET_BYTES

DEFAULT_ISSUER = "https://kubernetes.default.svc.cluster.local"
LEAST_MAXIMUM = 3600
MOST_SECONDS = 1 << 32


class TokenOptionError(InputError):
    """A setting that cannot be; the text names the flag and the remedy."""


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Who signs tokens, who checks them, and for how long they are good.

    `endpoint` is the socket of a signer outside, as a path or `@NAME` in Linux' abstract namespace; then neither
    `verification_pems` nor a signing key of the server's own may be there. `audiences` are the issuers if none are
    given. `max_seconds` is 0 for no bound.
    """

    endpoint: str = ""
    verification_pems: tuple[bytes, ...] = ()
    issuers: tuple[str, ...] = (DEFAULT_ISSUER,)
    audiences: tuple[str, ...] = ()
    jwks_uri: str = ""
    max_seconds: int = 0
    extend: bool = True
    """Whether tokens of pods that ask for 3,607 s are good for longer than they say."""
    lookup: bool = True
    """Whether accounts and what tokens are bound to have to be there."""

    def check(self, signing_pem: bytes) -> None:
        """Raises `TokenOptionError` for settings that exclude each other or are out of bounds."""
        if self.endpoint:
            for flag, given in (("signing-key-file", signing_pem), ("key-file", self.verification_pems)):
                if given:
                    why = "Forbidden with --service-account-signing-endpoint: keys are the signer's then"
                    raise TokenOptionError(f"--service-account-{flag}: {why}")
            check_endpoint(self.endpoint)
        if not all(self.issuers):
            raise TokenOptionError("--service-account-issuer: Required value: name the issuer, best as an https URL")
        if self.max_seconds and not LEAST_MAXIMUM <= self.max_seconds <= MOST_SECONDS:
            bounds = f"write a duration from 1h to 2^32 seconds ({MOST_SECONDS}s), or 0 for no bound"
            raise TokenOptionError(
                f'--service-account-max-token-expiration: Invalid value: "{self.max_seconds}s": {bounds}'
            )
        if self.jwks_uri and urlsplit(self.jwks_uri).scheme != "https":
            raise TokenOptionError(
                f'--service-account-jwks-uri: Invalid value: "{self.jwks_uri}": write a URL with https'
            )

    @property
    def api_audiences(self) -> tuple[str, ...]:
        """Whom tokens are for that say nothing of it: this server."""
        return self.audiences or self.issuers


def check_endpoint(endpoint: str, flag: str = "--service-account-signing-endpoint") -> None:
    """Raises `TokenOptionError` for what is no socket's path or abstract name."""
    if endpoint in ("", "@") or "://" in endpoint:
        raise TokenOptionError(f'{flag}: Invalid value: "{endpoint}": write the path of a Unix socket, or @NAME')
    if len(endpoint.encode()) > SOCKET_BYTES:
        raise TokenOptionError(f'{flag}: Invalid value: "{endpoint}": a socket has at most {SOCKET_BYTES} bytes')
