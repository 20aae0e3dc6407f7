"""Define the ServiceAccount token flags of `haru up` and `haru apiserver`, named as kube-apiserver's."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haru.cli.duration_flags import whole_seconds

if TYPE_CHECKING:
    from haru.embedded.account_tokens import AccountTokenFiles


def add_token_arguments(parser: argparse.ArgumentParser) -> None:
    """Who signs, who checks, for whom and for how long."""
    group = parser.add_argument_group("ServiceAccount tokens")
    group.add_argument(
        "--service-account-issuer",
        action="append",
        type=issuer,
        metavar="URL",
        help="issuer of tokens; may be repeated: new tokens have the first one, tokens of the others are accepted too",
    )
    group.add_argument(
        "--service-account-signing-key-file",
        type=Path,
        metavar="FILE",
        help="private key that signs tokens, RSA, P-256, P-384 or P-521; the same for all replicas",
    )
    group.add_argument(
        "--service-account-key-file",
        action="append",
        type=Path,
        metavar="FILE",
        help="additional keys that verify tokens; may be repeated, and a file may hold several keys",
    )
    group.add_argument(
        "--service-account-signing-endpoint",
        metavar="SOCKET",
        help="external signer that has the keys instead of files: path of a Unix socket, or @NAME (KEP-740)",
    )
    group.add_argument(
        "--service-account-jwks-uri", metavar="URL", help="published URI of the public keys, instead of this server's"
    )
    group.add_argument(
        "--service-account-max-token-expiration",
        type=whole_seconds,
        metavar="DURATION",
        help="maximum token lifetime: 1h to 2^32 s (default 0: no limit, or the signer's)",
    )
    group.add_argument(
        "--service-account-extend-token-expiration",
        type=truth,
        metavar="BOOL",
        help="tokens of pod volumes are valid for a year, and late use is reported (default true)",
    )
    group.add_argument(
        "--service-account-lookup",
        type=truth,
        metavar="BOOL",
        help="a token is valid only while its account, and the object that it is bound to, exists (default true)",
    )
    group.add_argument(
        "--api-audiences", metavar="NAME,…", help="audiences of tokens for this server (default: the issuers)"
    )


def token_files_of(flags: argparse.Namespace) -> AccountTokenFiles:
    """What the flags say."""
    from haru.embedded.account_tokens import AccountTokenFiles

    audiences = tuple(filter(None, (part.strip() for part in (flags.api_audiences or "").split(","))))
    given: dict[str, Any] = {
        "endpoint": flags.service_account_signing_endpoint,
        "signing_key": flags.service_account_signing_key_file,
        "key_files": flags.service_account_key_file and tuple(flags.service_account_key_file),
        "issuers": flags.service_account_issuer and tuple(flags.service_account_issuer),
        "audiences": audiences or None,
        "jwks_uri": flags.service_account_jwks_uri,
        "max_seconds": flags.service_account_max_token_expiration,
        "extend": flags.service_account_extend_token_expiration,
        "lookup": flags.service_account_lookup,
    }
    return AccountTokenFiles(**{name: value for name, value in given.items() if value is not None})


def issuer(text: str) -> str:
    """An issuer of tokens, for argparse; what has a colon is a URL (RFC 7519)."""
    from urllib.parse import urlsplit

    try:
        valid = bool(text.strip()) and (":" not in text or bool(urlsplit(text).scheme))
    except ValueError:
        valid = False
    if not valid:
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write the issuer of tokens, best as an https URL')
    return text


def truth(text: str) -> bool:
    """A truth value, for argparse."""
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f'Invalid value: "{text}": write true or false')
    return text.lower() == "true"
