"""What a ServiceAccount's token costs the API server: to make, to check for the first time, to check again.

    python -m benchmarks.token_speed [--document docs/performance-api.md]

In this process, without HTTP: claims, signature, and the look-ups of the account and its pod in the store. The signer
outside is a `haru signer` of its own, over its socket. Bar: a token that was seen before is checked in 100 µs.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.calibrate import calibrate
from benchmarks.results import CALIBRATION_SECONDS
from benchmarks.tables import markdown, plain, write_section
from haru.apiserver.auth import Reference, TokenOptions, load_signing_key
from haru.apiserver.config import AuthenticationOptions, ServerConfig
from haru.apiserver.server import ApiServer
from haru.storage import SqliteStore

Obj = dict[str, Any]
HEADS = ("what", "measured", "bar", "")
BAR_MICROSECONDS = 100.0
ROUNDS = 7
POD: Obj = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "a", "namespace": "default"},
    "spec": {"serviceAccountName": "robot", "containers": [{"name": "main", "image": "i"}]},
}


def key(algorithm: str) -> bytes:
    """A private key in PEM."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    made: Any = (
        rsa.generate_private_key(65537, 2048) if algorithm == "RS256" else ec.generate_private_key(ec.SECP256R1())
    )
    pem: bytes = made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return pem


async def timed(work: Callable[[int], Awaitable[object]], count: int) -> float:
    """Microseconds of one, the median of some rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for number in range(count):
            await work(number)
        found.append((time.perf_counter() - began) / count * 1e6)
    return median(found)


async def measured(name: str, signing: bytes, options: TokenOptions) -> list[tuple[str, float, bool]]:
    """What is measured of one kind of key: its name, microseconds, and whether the bar is for it."""
    store = SqliteStore(":memory:")
    await store.start()
    app = ApiServer(
        ServerConfig(
            store,
            authentication=AuthenticationOptions(service_account_key_pem=signing, account_tokens=options),
        )
    )
    await app.start()
    objects = app.objects
    for obj in (
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "robot", "namespace": "default"}},
        POD,
    ):
        await app.components.loopback.ensure(obj)
    account, pod = (
        await objects.read("", "serviceaccounts", "default", "robot"),
        await objects.read("", "pods", "default", "a"),
    )
    assert account is not None and pod is not None
    tokens, bound = app.components.authenticator.account_tokens, {"pod": Reference("a", pod["metadata"]["uid"])}
    made = [(await tokens.issue(account, tokens.audiences, 600, bound)).token for _ in range(200)]

    async def check(number: int) -> None:
        assert await tokens.check(made[number % len(made)]) is not None

    async def check_anew(number: int) -> None:
        tokens._proven.clear()
        await check(number)

    async def issue(number: int) -> None:
        await tokens.issue(account, tokens.audiences, 600, bound)

    figures = [
        (f"a token of a pod, {name}: checked again", await timed(check, 2000), True),
        (f"a token of a pod, {name}: checked for the first time", await timed(check_anew, 200), False),
        (f"a token of a pod, {name}: made", await timed(issue, 100), False),
    ]
    await app.stop()
    await store.stop()
    return figures


def all_measured() -> list[tuple[str, float, bool]]:
    """All kinds of keys."""
    found = []
    for algorithm in ("ES256", "RS256"):
        pem = key(algorithm)
        load_signing_key(pem)
        found += asyncio.run(measured(algorithm, pem, TokenOptions()))
    with tempfile.TemporaryDirectory() as directory:
        socket = str(Path(directory) / "s")
        serve = [sys.executable, "-m", "haru", "signer", "serve", "--socket", socket, "--generate"]
        serve += ["--key-dir", str(Path(directory) / "keys")]
        with subprocess.Popen(serve, stdout=subprocess.PIPE) as signer:
            try:
                assert signer.stdout is not None and signer.stdout.readline()
                found += asyncio.run(measured("ES256 by haru signer", b"", TokenOptions(socket)))
            finally:
                signer.terminate()
    return found


def main() -> int:
    """Prints the table; 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--document", type=Path, metavar="FILE", help="write the table into this document")
    options = parser.parse_args()
    pace = CALIBRATION_SECONDS / calibrate()
    rows, missed = [], False
    for name, microseconds, barred in all_measured():
        scaled = microseconds * pace
        met = scaled <= BAR_MICROSECONDS
        missed |= barred and not met
        bar = f"at most {BAR_MICROSECONDS:.0f} µs" if barred else ""
        rows.append(
            [name, f"{microseconds:.0f} µs ({scaled:.0f} scaled)", bar, ("met" if met else "missed") if barred else ""]
        )
    print(plain(HEADS, rows, frozenset(range(len(HEADS)))))
    if options.document is not None:
        write_section(options.document, "tokens", markdown(HEADS, rows, frozenset(range(len(HEADS)))))
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
