"""One KMS plugin as a cipher: its state, which is kept fresh, and the seeds that it has decrypted.

The plugin is asked for its status each minute, and each ten seconds while something is wrong. A new key id means a new
seed. While the plugin is away values are read whose seed is known, and are written for three minutes more; then writes
fail, so that nothing is written with a key that was to be given up.
Source: KMS v2 of Kubernetes 1.36 (KEP-3299), as behaviour; its intervals, limits and messages.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import timedelta

from cachetools import FIFOCache

from haru.clock import utc_now
from haru.errors import raise_first
from haru.event_loop import cancelled
from haru.kms import HEALTHY, VERSIONS, Encrypted, Status
from haru.storage.ciphers import KeysAway, OutsideCipher, SealError
from haru.storage.kms import envelope
from haru.storage.kms.client import KmsClient, KmsError
from haru.storage.kms.envelope import DataKey, EncryptedObject, Seed, digest_of
from haru.storage.kms.metrics import FROM_STORAGE, TO_STORAGE, KmsMetrics

GOOD_SECONDS = 60.0
BAD_SECONDS = 10.0
WRITE_SECONDS = 180.0
"""How long after the last good status values are written."""
GOOD_HEALTH_SECONDS = 20.0
BAD_HEALTH_SECONDS = 3.0
SEED_SECONDS = 24 * 3600.0
"""How long a seed is kept that nothing was read with."""
SWEEP_SECONDS = 600.0
RETRY_SECONDS = 1.0
AT_ONCE = 16
_REFUSED = 1000
_LOG = logging.getLogger("haru.storage")


@dataclass(frozen=True, slots=True)
class State:
    """What is written with. `good_until` is a time of the monotonic clock."""

    seed: Seed
    source: Encrypted
    good_until: float


@dataclass(slots=True)
class _Kept:
    """A seed, or a key, and when it was last used."""

    cipher: Seed | DataKey
    at: float


class _SeedCache:
    """Decrypted seeds and keys by their source, until unused for a day; and why others were refused."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seeds: dict[bytes, _Kept] = {}
        self._refused: FIFOCache[bytes, str] = FIFOCache(_REFUSED)
        self._swept = clock()

    def __len__(self) -> int:
        return len(self._seeds)

    def find(self, source_id: bytes) -> Seed | DataKey | None:
        """The seed or key of a source."""
        kept = self._seeds.get(source_id)
        return kept.cipher if kept is not None else None

    def use(self, source_id: bytes) -> bool:
        """Keep a seed for another day; False if it is not known."""
        kept = self._seeds.get(source_id)
        if kept is not None:
            kept.at = self._clock()
        return kept is not None

    def keep(self, source_id: bytes, cipher: Seed | DataKey, own: Seed | None) -> None:
        """Keep a seed. `own` is the one that values are written with: it stays however old it is."""
        now = self._clock()
        self._refused.pop(source_id, None)
        self._seeds[source_id] = _Kept(cipher, now)
        if now - self._swept > SWEEP_SECONDS:
            self._swept = now
            known = self._seeds.items()
            self._seeds = {k: v for k, v in known if now - v.at <= SEED_SECONDS or v.cipher is own}

    def refuse(self, source_id: bytes, why: str) -> None:
        """The plugin does not decrypt this source."""
        self._refused[source_id] = why

    def refusal(self, source_id: bytes) -> str | None:
        """Why the plugin did not decrypt a source."""
        return self._refused.get(source_id)


class KmsProvider(OutsideCipher):
    """The provider `kms` with apiVersion v2; `socket` is a path, or `@NAME`; calls take `seconds` at most."""

    def __init__(
        self, name: str, socket: str, seconds: float = 3.0, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.prefix = f"k8s:enc:kms:v2:{name}:".encode()
        self.metrics = KmsMetrics(name)
        self.socket, self.seconds = socket, seconds
        self.changed: Callable[[], None] | None = None
        self._client = KmsClient(socket, seconds, self.metrics)
        self._clock = clock
        self._state: State | None = None
        self._version = ""
        self._error = "it has not been asked yet"
        self._check_again = -math.inf
        self._checking = asyncio.Lock()
        self._seeds = _SeedCache(clock)
        self._keeper: asyncio.Task[None] | None = None

    # --- life

    async def start(self) -> None:
        """Connect and ask once; go on to ask from now on. A plugin that is not there yet is no error."""
        if self._keeper is not None:
            return
        self._client.open()
        await self.check()
        self._keeper = asyncio.create_task(self._keep(), name=f"haru: KMS provider {self.name}")

    async def stop(self) -> None:
        """Ask no more."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            await cancelled(keeper)
        await self._client.close()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(BAD_SECONDS if self._error else GOOD_SECONDS)
            await self.check()

    async def check(self) -> str:
        """What is wrong with the plugin, asked at most every few seconds; empty: nothing."""
        async with self._checking:
            if self._clock() < self._check_again:
                return self._error
            before, self._error = self._error, await self._problem()
            self._check_again = self._clock() + (BAD_HEALTH_SECONDS if self._error else GOOD_HEALTH_SECONDS)
            if self._error and self._error != before:
                _LOG.warning("%s", self._error)
            return self._error

    async def _problem(self) -> str:
        try:
            status = await self._client.status()
        except KmsError as error:
            what = "failed to perform status section of the healthz check"
            return f"{what} for KMS Provider {self.name}, error: {error}"
        found = [why for why in (self._status_problem(status), await self._key_problem(status.key_id)) if why]
        text = found[0] if len(found) == 1 else f"[{', '.join(found)}]"
        return f"kmsv2 Provider {self.name} is not healthy, error: {text}" if found else ""

    def _status_problem(self, status: Status) -> str:
        if status.healthz != HEALTHY:
            return f"got unexpected healthz status: {status.healthz[:1024]}"
        if status.version not in VERSIONS:
            return f"expected KMSv2 API version {VERSIONS[0]}, got {status.version[:64]}"
        self._version = self._version or status.version
        if status.version != self._version:
            what = "KMSv2 API version should not change after the initial status response version"
            return f"{what} {self._version}, got {status.version}"
        return ""

    async def _key_problem(self, key_id: str) -> str:
        word, why = envelope.key_id_problem(key_id)
        if word:
            self.metrics.invalid(word)
            return f'got invalid KMSv2 KeyID hash "{digest_of(key_id)}": {why}'
        self.metrics.told(key_id)
        state, good_until = self._state, self._clock() + WRITE_SECONDS
        if state is not None and state.source.key_id == key_id:
            self._state = replace(state, good_until=good_until)
            return ""
        plain = os.urandom(envelope.SEED_BYTES)
        try:
            source = await self._client.encrypt(plain, str(uuid.uuid4()))
        except KmsError as error:
            return f"failed to rotate DEK: failed to encrypt DEK, error: {error}"
        if why := envelope.problem_of(source):
            return f"failed to rotate DEK: {why}"
        if source.key_id != key_id:
            told, used = digest_of(key_id), digest_of(source.key_id)
            return f'failed to rotate DEK: statusKeyIDHash="{told}", encryptKeyIDHash="{used}"'
        seed = Seed(plain)
        self._state = State(seed, source, good_until)
        self._keep_seed(_object(source, b"\0").source_id, seed)
        _LOG.info("the KMS provider %s encrypts with the key %s", self.name, digest_of(key_id))
        if self.changed is not None:
            self.changed()
        return ""

    # --- writing

    def ready(self) -> None:
        """Raise SealError where nothing may be written now."""
        state = self._state
        if state is None:
            raise SealError(f'the KMS provider "{self.name}" has no key to write with: {self._error}')
        left = state.good_until - self._clock()
        if left < 0:
            now = utc_now()
            raise SealError(
                f'encryptedDEKSource with keyID hash "{digest_of(state.source.key_id)}" expired at '
                f"{now + timedelta(seconds=left):%Y-%m-%dT%H:%M:%SZ} (current time is {now:%Y-%m-%dT%H:%M:%SZ}): "
                f"{self._error}"
            )

    def seal(self, value: bytes, path: bytes) -> bytes:
        """Encrypt with a key that is derived for this value. SealError without any seed."""
        state = self._state
        if state is None:
            self.ready()
            raise AssertionError("unreachable")
        self.metrics.used(TO_STORAGE, state.source.key_id)
        return _object(state.source, state.seed.seal(value, path)).to_bytes()

    # --- reading

    def open(self, sealed: bytes, path: bytes) -> bytes:
        """Decrypt what `prepare` was given before. Raises ValueError."""
        made = envelope.read_object(sealed)
        cipher = self._seeds.find(made.source_id)
        if cipher is None:
            refusal = self._seeds.refusal(made.source_id)
            why = (self._error if refusal is None else refusal) or "the plugin was not asked"
            raise ValueError(f"failed to decrypt DEK, error: {why}")
        value = cipher.open(made.data, path)
        self.metrics.used(FROM_STORAGE, made.key_id)
        return value

    def is_stale(self, sealed: bytes) -> bool:
        """Whether another key than that of now, or no seed, was used."""
        state = self._state
        if state is None:
            return False
        made = envelope.read_object(sealed)
        return made.key_id != state.source.key_id or made.kind != envelope.SEED

    async def prepare(self, sealed: Iterable[bytes], patience: float) -> None:
        """Have the seeds of values decrypted that are not known. Raises KeysAway when the plugin does not answer.

        A seed that the plugin refuses to decrypt is left to `open`, which says so of the value.
        """
        wanted: dict[bytes, EncryptedObject] = {}
        for each in sealed:
            try:
                made = envelope.read_object(each)
            except ValueError:
                continue  # `open` says it of the value
            if not self._seeds.use(made.source_id):
                wanted.setdefault(made.source_id, made)
        if not wanted:
            return
        deadline, places = self._clock() + patience, asyncio.Semaphore(AT_ONCE)

        async def fetch(source_id: bytes, made: EncryptedObject) -> None:
            async with places:
                await self._fetch(source_id, made, deadline)

        results = await asyncio.gather(*(fetch(*item) for item in wanted.items()), return_exceptions=True)
        raise_first(results)

    async def _fetch(self, source_id: bytes, made: EncryptedObject, deadline: float) -> None:
        self.metrics.misses += 1
        while True:
            try:
                plain = await self._client.decrypt(made.encrypted, str(uuid.uuid4()))
                self._keep_seed(source_id, envelope.unlocked(made.kind, plain))
                return
            except KmsError as error:
                if not error.away:
                    self._seeds.refuse(source_id, str(error))
                    return
                if self._clock() + RETRY_SECONDS > deadline:
                    raise KeysAway(f'the KMS provider "{self.name}" does not decrypt: {error}') from None
            except ValueError as error:
                self._seeds.refuse(source_id, str(error))
                return
            await asyncio.sleep(RETRY_SECONDS)

    def _keep_seed(self, source_id: bytes, cipher: Seed | DataKey) -> None:
        self._seeds.keep(source_id, cipher, self._state.seed if self._state is not None else None)
        self.metrics.cached = len(self._seeds)


def _object(source: Encrypted, data: bytes) -> EncryptedObject:
    return EncryptedObject(data, source.key_id, source.ciphertext, source.annotations)
