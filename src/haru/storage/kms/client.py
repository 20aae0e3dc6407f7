"""The way to a KMS plugin: plain gRPC over a Unix socket, calls that wait for it and are bounded in time and size.

Source: KEP-3299.
"""

from __future__ import annotations

from haru import kms as messages
from haru.plugin_channel import PluginChannel
from haru.storage.kms.metrics import KmsMetrics

ANSWER_BYTES = 128 * 1024
"""Several times what an answer may hold."""
_AWAY = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")


class KmsError(Exception):
    """A plugin gave no usable answer. `away`: it may give one later; `str()` says why."""

    def __init__(self, why: str, *, away: bool = False) -> None:
        super().__init__(why)
        self.away = away


class KmsClient(PluginChannel):
    """Calls of one plugin, each bounded by `seconds`. All raise `KmsError`."""

    def __init__(self, socket: str, seconds: float, metrics: KmsMetrics) -> None:
        super().__init__(socket, metrics.called, ANSWER_BYTES)
        self._seconds = seconds

    def where(self, method: str) -> str:
        """Name the method of this plugin."""
        return f"{method} at {self.socket}"

    def failure(self, code: str, why: str) -> KmsError:
        """Make a `KmsError`."""
        return KmsError(why, away=code in _AWAY)

    async def status(self) -> messages.Status:
        """Version, health and key, nothing of which has been checked."""
        return await self.call(messages.STATUS, b"", self._seconds, messages.read_status_answer)

    async def encrypt(self, plaintext: bytes, uid: str) -> messages.Encrypted:
        """The ciphertext, nothing of which has been checked."""
        request = messages.encrypt_request(plaintext, uid)
        return await self.call(messages.ENCRYPT, request, self._seconds, messages.read_encrypt_answer)

    async def decrypt(self, wanted: messages.Encrypted, uid: str) -> bytes:
        """The plaintext, nothing of which has been checked."""
        request = messages.decrypt_request(wanted, uid)
        return await self.call(messages.DECRYPT, request, self._seconds, messages.read_decrypt_answer)
