"""Keys that a signer outside has: a copy of the public ones, kept fresh, and tokens that it signs.

The copy is replaced as a whole, or not at all: an answer with one fault is refused and the old keys stay. All fetches
share one flight, and those that an unknown key asks for begin at least a second apart, so that tokens made up by
strangers cannot keep the signer busy. What it signs is looked at before it is given away: the header, whether the key
may sign, and the signature itself.
Source: KEP-740 (ExternalServiceAccountTokenSigner), as behaviour.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from haru.apiserver.auth.token_options import TokenOptionError, TokenOptions
from haru.apiserver.auth.tokens.metrics import TokenMetrics
from haru.apiserver.auth.tokens.signer_client import SignerClient
from haru.apiserver.auth.tokens.sources import SignerError
from haru.errors import HaruError
from haru.event_loop import cancelled
from haru.externaljwt import ALGORITHMS, KEY_ID_BYTES, LEAST_EXPIRATION_SECONDS, Key, Keys
from haru.jose import JoseError, PublicKey, algorithm_of, decode, is_signed_by, read_header
from haru.plugin_channel import NOT_GRPC

RETRY_SECONDS = 10.0
PAUSE_SECONDS = 1.0
"""Between the starts of two fetches for keys that nobody knows."""
WAIT_SECONDS = 10.0
"""How long a token with such a key waits for the fetch."""
WAITERS = 256
"""How many such tokens wait at most; one more is refused at once."""
EXTENDED_SECONDS = 365 * 24 * 3600
_LOG = logging.getLogger("haru.apiserver")


@dataclass(frozen=True, slots=True)
class Copy:
    """The keys of one answer. `fetched` and `due` are times of the loop."""

    keys: Sequence[PublicKey] = ()
    data_nanoseconds: int = 0
    due: float = 0.0
    by_id: Mapping[str, Sequence[PublicKey]] = field(default_factory=dict)

    def differs(self, other: Copy) -> bool:
        """Whether the published keys change: other keys, another order, or other exclusions."""
        return self.data_nanoseconds != other.data_nanoseconds or [(k.key_id, k.excluded) for k in self.keys] != [
            (k.key_id, k.excluded) for k in other.keys
        ]


def read_copy(answer: Keys, old: Copy, now: float) -> Copy:
    """The keys of an answer; those that `old` has, too, are taken from there. Raises `SignerError`."""
    if answer.refresh_hint <= 0:
        raise SignerError(NOT_GRPC, f"refresh_hint_seconds: Invalid value: {answer.refresh_hint}: must be more than 0")
    if not answer.keys:
        raise SignerError(NOT_GRPC, "keys: Required value: there must be one")
    if answer.data_nanoseconds is None:
        raise SignerError(NOT_GRPC, "data_timestamp: Invalid value: must be a time")
    known = {(key.key_id, key.der, key.excluded): key for key in old.keys}
    keys = [
        known.get((key.key_id, key.der, key.excluded)) or _public_key(index, key)
        for index, key in enumerate(answer.keys)
    ]
    by_id: dict[str, list[PublicKey]] = {}
    for each in keys:
        by_id.setdefault(each.key_id, []).append(each)
    return Copy(tuple(keys), answer.data_nanoseconds, now + answer.refresh_hint, by_id)


def _public_key(index: int, key: Key) -> PublicKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_public_key

    if not 1 <= len(key.key_id.encode()) <= KEY_ID_BYTES:
        raise SignerError(NOT_GRPC, f"keys[{index}].key_id: Invalid value: must have 1 to {KEY_ID_BYTES} bytes")
    try:
        loaded = load_der_public_key(key.der)
        return PublicKey(key.key_id, algorithm_of(loaded), key.der, loaded, key.excluded)
    except (JoseError, UnsupportedAlgorithm) as error:
        raise SignerError(NOT_GRPC, f"keys[{index}].key: Invalid value: {error}") from None
    except ValueError:
        raise SignerError(NOT_GRPC, f"keys[{index}].key: Invalid value: is no public key in PKIX DER") from None


class KeyCopy:
    """The copy and what keeps it fresh. `changed` is called after a change that matters to those who read documents."""

    def __init__(
        self, fetch: Callable[[], Awaitable[Keys]], metrics: TokenMetrics, changed: Callable[[], None]
    ) -> None:
        self._fetch = fetch
        self._metrics = metrics
        self._changed = changed
        self.copy = Copy()
        self._began = -math.inf
        self._retry = 0.0
        self._waiting = 0
        self._moved = asyncio.Event()
        self._flight: asyncio.Task[SignerError | None] | None = None
        self._asked: asyncio.Task[SignerError | None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Fetch for the first time, and keep fresh from now on. Raises `SignerError`."""
        error = await self._fetched()
        if error is not None:
            raise error
        self._keeper = asyncio.create_task(self._keep(), name="haru apiserver: keys of tokens")

    async def stop(self) -> None:
        """Fetch no more."""
        tasks = [task for task in (self._keeper, self._asked, self._flight) if task is not None]
        await cancelled(*tasks)

    async def find(self, key_id: str) -> Sequence[PublicKey]:
        """The keys with this id; an unknown id fetches the signer's keys once, for all that wait."""
        found = self.copy.by_id.get(key_id, ())
        if found or self._waiting >= WAITERS:
            return found
        if self._asked is None or self._asked.done():
            self._asked = asyncio.create_task(self._in_turn(), name="haru apiserver: an unknown key of a token")
        asked = self._asked
        self._waiting += 1
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await asyncio.shield(asked)
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if not asked.cancelled():
                raise  # it is the request that ends, not the server
        finally:
            self._waiting -= 1
        return self.copy.by_id.get(key_id, ())

    async def _in_turn(self) -> SignerError | None:
        if self._flight is None or self._flight.done():
            await asyncio.sleep(self._began + PAUSE_SECONDS - asyncio.get_running_loop().time())
        return await self._fetched()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            left = max(self.copy.due, self._retry) - loop.time()
            if left > 0:
                self._moved.clear()
                try:
                    async with asyncio.timeout(left):
                        await self._moved.wait()
                except TimeoutError:
                    pass
                continue
            error = await self._fetched()
            if error is not None:
                self._retry = loop.time() + RETRY_SECONDS
                _LOG.warning("keys of ServiceAccount tokens were not fetched, the old ones stay in use: %s", error)

    async def _fetched(self) -> SignerError | None:
        """One fetch for all who want one now; what went wrong with it."""
        if self._flight is None or self._flight.done():
            self._flight = asyncio.create_task(self._fetch_once(), name="haru apiserver: fetch keys of tokens")
        return await asyncio.shield(self._flight)

    async def _fetch_once(self) -> SignerError | None:
        loop = asyncio.get_running_loop()
        self._began = loop.time()
        try:
            new = read_copy(await self._fetch(), self.copy, loop.time())
        except SignerError as error:
            self._metrics.fetches[error.code] += 1
            return error
        self._metrics.fetches["OK"] += 1
        self._metrics.fetched_at = time.time()
        self._metrics.data_at = new.data_nanoseconds / 1e9
        old, self.copy = self.copy, new
        self._retry = 0.0
        self._moved.set()
        if new.differs(old):
            loop.call_soon(self._changed)
        return None


class ExternalKeys:
    """A signer outside as a source of keys."""

    def __init__(self, client: SignerClient, metrics: TokenMetrics, changed: Callable[[], None]) -> None:
        self._client = client
        self._metrics = metrics
        self._copy = KeyCopy(client.fetch_keys, metrics, changed)

    async def start(self, options: TokenOptions) -> tuple[int, int]:
        """Connect and fetch; the longest life of tokens, and of extended ones. Raises `HaruError`."""
        self._client.open()
        try:
            await self._copy.start()
            least = await self._client.metadata()
        except SignerError as error:
            raise HaruError(f"--service-account-signing-endpoint: {error}") from None
        return reconciled(options.max_seconds, least)

    async def stop(self) -> None:
        """Fetch and sign no more."""
        await self._copy.stop()
        await self._client.close()

    def keys(self) -> Sequence[PublicKey]:
        """All keys of the last good answer."""
        return self._copy.copy.keys

    def known(self, key_id: str) -> Sequence[PublicKey]:
        """The keys of the last good answer with this id."""
        return self._copy.copy.by_id.get(key_id, ())

    async def find(self, key_id: str) -> Sequence[PublicKey]:
        """The keys with this id; an unknown id fetches the signer's keys."""
        return await self._copy.find(key_id)

    async def sign(self, payload: str) -> str:
        """A whole token, which has been checked. Raises `SignerError`."""
        try:
            header, signature = await self._client.sign(payload)
            token = await self._checked(header, payload, signature)
        except SignerError as error:
            self._metrics.signs[error.code] += 1
            raise
        self._metrics.signs["OK"] += 1
        return token

    async def _checked(self, header: str, payload: str, signature: str) -> str:
        try:
            told = read_header(header)
            if told.get("typ") != "JWT":
                raise JoseError("typ in the header is not JWT")
            key_id, algorithm = told.get("kid", ""), told.get("alg", "")
            if not 1 <= len(key_id.encode()) <= KEY_ID_BYTES:
                raise JoseError(f"kid in the header has not 1 to {KEY_ID_BYTES} bytes")
            if algorithm not in ALGORITHMS:
                raise JoseError(f"alg in the header is none of {', '.join(ALGORITHMS)}")
            if not signature:
                raise JoseError("there is no signature")
            keys = await self._copy.find(key_id)
            if not keys:
                raise JoseError("it signs with a key that FetchKeys does not tell of")
            if any(key.excluded for key in keys):
                raise JoseError("it signs with a key that is excluded from discovery, which is for checking only")
            signed, raw = f"{header}.{payload}", decode(signature)
            if not any(is_signed_by(key, algorithm, signed.encode(), raw) for key in keys):
                raise JoseError("the signature is not by the key that the header names")
        except JoseError as error:
            raise SignerError(NOT_GRPC, f"the answer of the signer to Sign is not used: {error}") from None
        return f"{signed}.{signature}"

    def max_age(self) -> int:
        """Until the next fetch."""
        return max(0, int(self._copy.copy.due - asyncio.get_running_loop().time()))


def reconciled(flag: int, told: int) -> tuple[int, int]:
    """The longest life of tokens, and of extended ones, in seconds: from the flag (0: not set) and from the signer.

    Raises `TokenOptionError`.
    """
    if told < LEAST_EXPIRATION_SECONDS:
        raise TokenOptionError(
            f"--service-account-signing-endpoint: the signer's max_token_expiration_seconds: Invalid value: {told}: "
            f"must be at least {LEAST_EXPIRATION_SECONDS}"
        )
    if flag > told:
        raise TokenOptionError(
            f"--service-account-max-token-expiration: Invalid value: {flag}s: cannot be set longer than the signer "
            f"allows, {told}s"
        )
    return flag or told, min(EXTENDED_SECONDS, told)
