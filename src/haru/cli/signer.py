"""Sign ServiceAccount tokens for an API server in a separate process that holds the keys (KEP-740).

`haru signer serve --socket SOCKET --key-dir DIR` serves `v1.ExternalJWTSigner`; give the socket to the API server as
--service-account-signing-endpoint. `haru signer rotate --key-dir DIR` creates a new key without a restart: the signer
publishes it first and signs with it later, and publishes the old key until its last token has expired. `haru signer
keys --key-dir DIR` lists the keys and their states. `haru signer add-key --key-dir DIR --key-id ID --public-key FILE`
publishes a key that verifies tokens signed by others and is excluded from discovery. For keys in a PKCS#11 module, see
--pkcs11-module. Exit status: 0 done, 2 bad usage, or unusable keys or socket.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from haru.cli.duration_flags import whole_seconds
from haru.cli.main import UsageError
from haru.cli.number_flags import number
from haru.cli.token_flags import issuer

if TYPE_CHECKING:
    from haru.signer.run import SignerOptions
    from haru.signer.schedule import Record

_ALGORITHMS = ("ES256", "ES384", "ES512", "RS256")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `haru signer`."""
    parser.add_argument("action", choices=("serve", "rotate", "keys", "add-key"), help="action")
    parser.add_argument(
        "--key-dir", type=Path, metavar="DIR", help="directory with the keys, readable by its owner only"
    )
    parser.add_argument("--key-id", metavar="ID", help="add-key: kid of the tokens that the key verifies")
    parser.add_argument("--public-key", type=Path, metavar="FILE", help="add-key: public key, in PEM")
    parser.add_argument(
        "--algorithm", choices=_ALGORITHMS, default="ES256", help="algorithm of new keys (default ES256)"
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="keys: output format")
    serve = parser.add_argument_group("serve")
    serve.add_argument("--socket", metavar="SOCKET", help="path of the Unix socket to serve on, or @NAME")
    serve.add_argument("--generate", action="store_true", help="create a key if no key can sign")
    serve.add_argument(
        "--refresh-hint",
        type=whole_seconds,
        metavar="DURATION",
        help="interval at which API servers fetch keys (default 1m); a new key signs after twice that time",
    )
    serve.add_argument(
        "--max-token-expiration",
        type=whole_seconds,
        metavar="DURATION",
        help="maximum token lifetime, at least 10m (default 24h); replaced keys stay published for that long",
    )
    serve.add_argument(
        "--rotate-every",
        type=whole_seconds,
        default=0,
        metavar="DURATION",
        help="interval of automatic key rotation (default: never)",
    )
    serve.add_argument(
        "--issuer",
        action="append",
        type=issuer,
        default=[],
        metavar="URL",
        help="sign only tokens of this issuer; may be repeated",
    )
    serve.add_argument(
        "--socket-mode", choices=("0600", "0660"), default="0600", help="mode of the socket (default 0600)"
    )
    serve.add_argument(
        "--allow-uid",
        action="append",
        type=number,
        default=[],
        metavar="UID",
        help="user that may connect to @NAME (default: only the user of this process)",
    )
    hsm = parser.add_argument_group("keys in a PKCS#11 module")
    hsm.add_argument("--pkcs11-module", type=Path, metavar="FILE", help="library of the module")
    hsm.add_argument("--pkcs11-token", metavar="LABEL", help="token in the module")
    hsm.add_argument(
        "--pkcs11-pin-file", type=Path, metavar="FILE", help="file with the PIN, readable by its owner only"
    )
    hsm.add_argument(
        "--pkcs11-key",
        action="append",
        default=[],
        metavar="LABEL",
        help="label of a key pair; the first one named signs",
    )
    parser.add_argument("-v", "--verbose", action="count", default=1, help="more log messages")
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="log format")


def serves(options: argparse.Namespace) -> bool:
    """Whether it runs until it is stopped."""
    return bool(options.action == "serve")


def run(options: argparse.Namespace) -> int:
    """Serves, or changes or tells of keys."""
    from haru.cli.logs import configure_logging
    from haru.signer.files import FileKeys
    from haru.signer.run import run_signer

    configure_logging(options.verbose, options.log_format)
    if options.action == "serve":
        return run_signer(_signer_options(options))
    if options.key_dir is None:
        raise UsageError("--key-dir: Required value: name the directory of the keys")
    files, now = FileKeys(options.key_dir), int(time.time())
    if options.action == "keys":
        _tell(files.records(), now, options.output)
        return 0
    if options.action == "rotate":
        files.records()
        made = files.add(options.algorithm, now)
        print(f"{made.key_id} is published now and signs from {_time(made.signs_from)} on")
        return 0
    if options.public_key is None or not options.key_id:
        raise UsageError("add-key: name the file of a --public-key, and its --key-id")
    try:
        pem = options.public_key.read_bytes()
    except OSError as error:
        raise UsageError(f"--public-key: {options.public_key}: {error.strerror}") from None
    print(f"{files.add_public(options.key_id, pem, now).key_id} is published for checking, hidden from discovery")
    return 0


def _signer_options(flags: argparse.Namespace) -> SignerOptions:
    from haru.apiserver.auth import MOST_SECONDS, check_endpoint
    from haru.externaljwt import LEAST_EXPIRATION_SECONDS
    from haru.signer.hsm import Module
    from haru.signer.run import SignerOptions
    from haru.signer.schedule import Pace

    check_endpoint(flags.socket or "", "--socket")
    if (flags.key_dir is None) == (flags.pkcs11_module is None):
        raise UsageError("name --key-dir or --pkcs11-module: one of them has the keys")
    module = None
    if flags.pkcs11_module is not None:
        if not (flags.pkcs11_token and flags.pkcs11_pin_file and flags.pkcs11_key):
            raise UsageError("--pkcs11-module: name --pkcs11-token, --pkcs11-pin-file and --pkcs11-key, too")
        if flags.generate or flags.rotate_every:
            raise UsageError("--generate and --rotate-every: Forbidden with --pkcs11-module: make keys with its tools")
        module = Module(flags.pkcs11_module, flags.pkcs11_token, flags.pkcs11_pin_file, flags.pkcs11_key)
    hint = Pace().refresh_hint if flags.refresh_hint is None else flags.refresh_hint
    longest = Pace().max_expiration if flags.max_token_expiration is None else flags.max_token_expiration
    if hint < 1:
        raise UsageError(f'--refresh-hint: Invalid value: "{hint}s": write at least 1s')
    if not LEAST_EXPIRATION_SECONDS <= longest <= MOST_SECONDS:
        raise UsageError(f'--max-token-expiration: Invalid value: "{longest}s": write at least 10m, at most 2^32 s')
    if 0 < flags.rotate_every <= 2 * hint:
        raise UsageError(f'--rotate-every: Invalid value: "{flags.rotate_every}s": write more than {2 * hint}s')
    return SignerOptions(
        flags.socket,
        flags.key_dir,
        module,
        flags.generate,
        flags.algorithm,
        Pace(hint, longest),
        flags.rotate_every,
        tuple(flags.issuer),
        int(flags.socket_mode, 8),
        (*flags.allow_uid, os.getuid()),
    )


def _tell(records: Sequence[Record], now: float, output: str) -> None:
    from haru.signer.schedule import state

    told = [
        {
            "keyID": record.key_id,
            "algorithm": record.algorithm,
            "state": state(records, record, now),
            "signsFrom": _time(record.signs_from),
            "ends": _time(record.ends) if record.ends is not None else None,
        }
        for record in records
    ]
    if output == "json":
        print(json.dumps({"apiVersion": "haru.dev/v1alpha1", "kind": "SignerKeys", "keys": told}, indent=2))
        return
    rows = [("KEY ID", "ALGORITHM", "STATE", "SIGNS FROM", "ENDS")]
    rows += [(k["keyID"], k["algorithm"], k["state"], k["signsFrom"], k["ends"] or "") for k in told]  # type: ignore[misc]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
