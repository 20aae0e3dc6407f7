"""Encryption at rest: values are sealed on their way to the disk (or to etcd) and opened on their way back.

What is written begins with a prefix that names the provider and the key, `k8s:enc:aesgcm:v1:key1:`, and goes on as
kube-apiserver writes it, so that each reads what the other wrote. The first provider of a resource writes, all of them
read; a value that another than the first one opened is stale, and is written anew with the next update.
Source: k8s.io/apiserver `storage/value/encrypt` (AES-GCM, AES-CBC with PKCS#7, identity), as format.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from haru.event_loop import cancelled
from haru.storage.ciphers import Cipher, OutsideCipher, Plain, SealError

ENCRYPTED = b"k8s:enc:"
"""What every sealed value begins with; no object and no compressed one does."""
GRACE_SECONDS = 10.0
"""How long a configuration that is new may take to be well, and one that is old to end what it has begun."""
LOOK_SECONDS = 0.1
KEYS_SECONDS = 60.0
"""How long a store that starts waits for those who have the keys of what is in it."""


class Sealing:
    """Which resources are sealed, and with what.

    `providers` are by resource as EncryptionConfiguration names them: `secrets`, `jobs.batch`, `*.apps` (all of a
    group), `*.` (all of the core group), `*.*` (all). The closest name wins. `source` is what messages send people to.
    """

    def __init__(self, providers: Mapping[str, Sequence[Cipher]], source: str) -> None:
        self._providers = {name: tuple(ciphers) for name, ciphers in providers.items()}
        self._source = source
        self.outside = _outside(self._providers)
        """Ciphers whose keys somebody else has."""
        self.server = ""
        """The identity of the API server, for counters."""
        self.digest = ""
        """That of the configuration."""
        self._leaving: set[asyncio.Task[None]] = set()
        self.changed: Callable[[Callable[[str], bool]], None] | None = None
        """Called with a test for resources when those are to be written with another key from now on."""

    async def start(self) -> None:
        """Begin to ask those who have keys."""
        for cipher in self.outside:
            cipher.changed = lambda cipher=cipher: self._key_changed(cipher)
        await asyncio.gather(*(cipher.start() for cipher in self.outside))

    async def stop(self) -> None:
        """Ask no more."""
        ended = cancelled(*self._leaving)
        await asyncio.gather(ended, *(cipher.stop() for cipher in self.outside), return_exceptions=True)

    async def become(self, other: Sealing) -> None:
        """Take over what another configuration says, if those who have keys in it are well. SealError if not."""
        for cipher in other.outside:
            cipher.changed = lambda cipher=cipher: self._key_changed(cipher)
        grace = max(GRACE_SECONDS, 2 * sum(cipher.seconds for cipher in other.outside))
        try:
            await asyncio.gather(*(cipher.start() for cipher in other.outside))
            await _be_well(other, grace)
        except BaseException:
            await other.stop()
            raise
        old = self._copy()
        self._providers, self._source, self.outside = other._providers, other._source, other.outside
        self.digest = other.digest
        if self.changed is not None:
            self.changed(lambda resource: bool(old.ciphers(resource) or self.ciphers(resource)))
        # Who is asked just now by the old configuration may end.
        task = asyncio.create_task(_leave(old, grace), name="haru: an old encryption configuration")
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    def _copy(self) -> Sealing:
        return Sealing(self._providers, self._source)

    @property
    def server_digest(self) -> str:
        """How counters name the server."""
        return f"sha256:{hashlib.sha256(self.server.encode()).hexdigest()}" if self.server else ""

    def lines(self) -> list[str]:
        """The counters of those who have keys, as Kubernetes names them, and which configuration is in use."""
        info = "apiserver_encryption_config_controller_last_config_info"
        labels = f'apiserver_id_hash="{self.server_digest}",hash="{self.digest}"'
        text = "The digest of the encryption configuration in use."
        told = [f"# HELP {info} {text}", f"# TYPE {info} gauge", f"{info}{{{labels}}} 1"] if self.digest else []
        if not self.outside:
            return told
        from haru.storage.kms.metrics import exposition

        return told + exposition([cipher.metrics for cipher in self.outside], self.server_digest)

    async def problems(self) -> Sequence[str]:
        """What is wrong with each of those who have keys; empty texts where nothing is."""
        return await asyncio.gather(*(cipher.check() for cipher in self.outside))

    def _key_changed(self, cipher: Cipher) -> None:
        if self.changed is not None:
            self.changed(lambda resource: cipher in self.ciphers(resource)[:1])

    def check(self, resource: str) -> None:
        """Raise SealError where no value of a resource may be sealed now."""
        if self.outside and isinstance(cipher := next(iter(self.ciphers(resource)), None), OutsideCipher):
            cipher.ready()

    async def prepare(self, items: Iterable[tuple[str, bytes]], patience: float = 0.0) -> None:
        """Get what is needed to open values of resources; KeysAway if it can not be had within so many seconds."""
        if not self.outside:
            return
        wanted: dict[OutsideCipher, list[bytes]] = {}
        for resource, kept in items:
            for cipher in self.ciphers(resource):
                if isinstance(cipher, OutsideCipher) and kept.startswith(cipher.prefix):
                    wanted.setdefault(cipher, []).append(kept[len(cipher.prefix) :])
        for cipher, sealed in wanted.items():
            await cipher.prepare(sealed, patience)

    def ciphers(self, resource: str) -> Sequence[Cipher]:
        """Those of a resource (`secrets`, `jobs.batch`), first the one that writes; none: it is kept as it is."""
        _, _, group = resource.partition(".")
        for name in (resource, f"*.{group}", "*.*"):
            found = self._providers.get(name)
            if found is not None:
                return found
        return ()

    def seal(self, resource: str, path: str, value: bytes) -> bytes:
        """The form to keep. `path` is the one in etcd, `/registry/secrets/NAMESPACE/NAME`."""
        ciphers = self.ciphers(resource) if self._providers else ()
        if not ciphers:
            return value
        return ciphers[0].prefix + ciphers[0].seal(value, path.encode())

    def is_plain(self, kept: bytes) -> bool:
        """Whether what is kept is the value, whatever it is of: `open` would say the same."""
        return not self._providers and not kept.startswith(ENCRYPTED)

    def open(self, resource: str, path: str, kept: bytes) -> tuple[bytes, bool]:
        """The value, and whether it is stale: not what `seal` would write now. Raises SealError."""
        is_sealed = kept.startswith(ENCRYPTED)
        if self.is_plain(kept):
            return kept, False
        ciphers = self.ciphers(resource) or (Plain(),)
        for position, cipher in enumerate(ciphers):
            if is_sealed != bool(cipher.prefix) or not kept.startswith(cipher.prefix):
                continue
            try:
                sealed = kept[len(cipher.prefix) :]
                value = cipher.open(sealed, path.encode())
                return value, position > 0 or (isinstance(cipher, OutsideCipher) and cipher.is_stale(sealed))
            except ValueError as error:
                provider, key = _named(kept)
                remedy = "give that key the secret with which it was written"
                if isinstance(cipher, OutsideCipher):
                    remedy = "have its service decrypt with the key with which it was written"
                raise SealError(
                    f'{path} can not be decrypted with the {provider} key "{key}" of {self._source}: {error}; {remedy}'
                ) from None
        raise SealError(self._unreadable(resource, path, kept))

    def _unreadable(self, resource: str, path: str, kept: bytes) -> str:
        if not kept.startswith(ENCRYPTED):
            return (
                f"{path} is not encrypted, and {self._source} has no provider identity for {resource}: add "
                "`- identity: {}` after the providers that are there, until everything has been written anew"
            )
        provider, key = _named(kept)
        if not self._source:
            return (
                f'{path} is encrypted with {provider} and the key "{key}": start the server with the '
                "--encryption-provider-config that has it"
            )
        return (
            f'{path} is encrypted with {provider} and the key "{key}", which {self._source} does not have for '
            f"{resource}: add that key there, after the first one if it is to be read with only"
        )


async def _be_well(sealing: Sealing, seconds: float) -> None:
    """Return when those who have keys are well; SealError if they are not in time."""
    end = time.monotonic() + seconds
    while unwell := [problem for problem in await sealing.problems() if problem]:
        if time.monotonic() > end:
            raise SealError("; ".join(unwell))
        await asyncio.sleep(LOOK_SECONDS)


async def _leave(sealing: Sealing, seconds: float) -> None:
    try:
        await asyncio.sleep(seconds)
    finally:
        await asyncio.shield(asyncio.gather(*(cipher.stop() for cipher in sealing.outside)))


def _outside(providers: Mapping[str, Sequence[Cipher]]) -> Sequence[OutsideCipher]:
    found = (each for ciphers in providers.values() for each in ciphers if isinstance(each, OutsideCipher))
    return tuple(dict.fromkeys(found))


def no_sealing() -> Sealing:
    """For a server without a configuration: nothing is sealed, and what is sealed is told of."""
    return Sealing({}, "")


def _named(kept: bytes) -> tuple[str, str]:
    """Provider and key that a sealed value names."""
    parts = kept[len(ENCRYPTED) :][:512].split(b":", 3)
    texts = [part.decode("utf-8", "replace") for part in parts]
    return texts[0], texts[2] if len(texts) > 3 else "?"
