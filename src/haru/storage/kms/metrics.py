"""What a KMS provider is counted by, under the names that Kubernetes gives it. For all threads."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence

from cachetools import FIFOCache

from haru.exposition import HistogramOf, head
from haru.storage.kms.envelope import digest_of

FROM_STORAGE, TO_STORAGE = "from_storage", "to_storage"
LABELS = 100
"""Of how many keys is told at most; the one that was used longest ago goes first."""
_BOUNDS = tuple(0.0001 * 2**step for step in range(20))
_PREFIX = "apiserver_envelope_encryption_"
_LATENCY = "kms_operations_latency_seconds"
_HELP = {
    _LATENCY: ("histogram", "Time of calls to a KMS plugin, by how they ended."),
    "key_id_hash_total": ("counter", "How often a key was used."),
    "key_id_hash_last_timestamp_seconds": ("gauge", "When a key was used last."),
    "key_id_hash_status_last_timestamp_seconds": ("gauge", "When Status told a key last."),
    "invalid_key_id_from_status_total": ("counter", "Key ids of Status that can not be used."),
    "dek_source_cache_size": ("gauge", "Data keys and seeds that are kept decrypted."),
}
MISSES = "apiserver_storage_envelope_transformation_cache_misses_total"


class KmsMetrics:
    """The counters of one provider."""

    def __init__(self, provider: str) -> None:
        self._name = provider
        self._provider = provider.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        self._lock = threading.Lock()
        labels = ("grpc_status_code", "method_name", "provider_name")
        self._calls = HistogramOf(f"{_PREFIX}{_LATENCY}", "", labels, _BOUNDS)
        self._used: FIFOCache[tuple[str, str], tuple[int, float]] = FIFOCache(LABELS)
        self._told: FIFOCache[str, float] = FIFOCache(LABELS)
        self._invalid: Counter[str] = Counter()
        self.misses = 0
        """Values whose seed the service had to be asked for."""
        self.cached = 0

    def called(self, method: str, code: str, seconds: float) -> None:
        """A call has ended."""
        with self._lock:
            self._calls.observe(seconds, code, method, self._name)

    def used(self, way: str, key_id: str) -> None:
        """A value was read or written with a key."""
        with self._lock:
            key = (way, digest_of(key_id))
            # Setting moves a key to the end; reading, as a scrape does with all of them, does not.
            self._used[key] = (self._used.get(key, (0, 0.0))[0] + 1, time.time())

    def told(self, key_id: str) -> None:
        """Status named a key."""
        with self._lock:
            self._told[digest_of(key_id)] = time.time()

    def invalid(self, why: str) -> None:
        """Status named a key with an id that can not be used."""
        with self._lock:
            self._invalid[why] += 1

    def samples(self, server: str) -> dict[str, list[str]]:
        """The lines by the end of the metric's name; `server` is the digest of the server's identity."""
        own, of = f'provider_name="{self._provider}"', f'apiserver_id_hash="{server}"'
        with self._lock:
            used = [
                (f'{{{of},key_id_hash="{key}",{own},transformation_type="{way}"}}', values)
                for (way, key), values in sorted(self._used.items())
            ]
            return {
                _LATENCY: [line.removeprefix(f"{_PREFIX}{_LATENCY}") for line in self._calls.samples()],
                "key_id_hash_total": [f"{labels} {values[0]}" for labels, values in used],
                "key_id_hash_last_timestamp_seconds": [f"{labels} {values[1]:.3f}" for labels, values in used],
                "key_id_hash_status_last_timestamp_seconds": [
                    f'{{{of},key_id_hash="{key}",{own}}} {at:.3f}' for key, at in sorted(self._told.items())
                ],
                "invalid_key_id_from_status_total": [
                    f'{{error="{why}",{own}}} {count}' for why, count in sorted(self._invalid.items())
                ],
                "dek_source_cache_size": [f"{{{own}}} {self.cached}"],
            }


def exposition(providers: Sequence[KmsMetrics], server: str) -> list[str]:
    """The lines of all providers; `server` is the digest of the server's identity."""
    if not providers:
        return []
    lines: list[str] = []
    samples = [each.samples(server) for each in providers]
    for name, (kind, text) in _HELP.items():
        lines += head(f"{_PREFIX}{name}", kind, text)
        lines += [f"{_PREFIX}{name}{line}" for each in samples for line in each[name]]
    text = "Values whose data key or seed had to be decrypted by a KMS plugin."
    misses = sum(each.misses for each in providers)
    return [*lines, *head(MISSES, "counter", text), f"{MISSES} {misses}"]
