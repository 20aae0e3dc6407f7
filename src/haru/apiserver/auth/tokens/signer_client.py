"""The way to a signer outside: plain gRPC over a Unix socket, calls that wait for it and are bounded in time.

Source: KEP-740.
"""

from __future__ import annotations

from haru import externaljwt as messages
from haru.apiserver.auth.tokens.metrics import TokenMetrics
from haru.apiserver.auth.tokens.sources import SignerError
from haru.plugin_channel import PluginChannel

FETCH_SECONDS = 60.0
METADATA_SECONDS = 10.0
SIGN_SECONDS = 10.0
"""Who asks for a token waits no longer for a signer that is away."""


class SignerClient(PluginChannel):
    """Calls of one signer. All raise `SignerError`."""

    def __init__(self, endpoint: str, metrics: TokenMetrics) -> None:
        super().__init__(endpoint, metrics.called)

    def where(self, method: str) -> str:
        """Name the method of this signer."""
        return f"the signer at {self.socket}: {method}"

    def failure(self, code: str, why: str) -> SignerError:
        """Make a `SignerError`."""
        return SignerError(code, why)

    async def sign(self, payload: str) -> tuple[str, str]:
        """Header and signature of a payload, nothing of which has been checked."""
        return await self.call(messages.SIGN, messages.sign_request(payload), SIGN_SECONDS, messages.read_sign_answer)

    async def fetch_keys(self) -> messages.Keys:
        """The keys, nothing of which has been checked."""
        return await self.call(messages.FETCH_KEYS, b"", FETCH_SECONDS, messages.read_keys_answer)

    async def metadata(self) -> int:
        """The longest life of a token, in seconds."""
        return await self.call(messages.METADATA, b"", METADATA_SECONDS, messages.read_metadata_answer)
