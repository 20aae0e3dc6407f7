"""ServiceAccount tokens: issued, checked, and told of to others; by keys in files, or by a signer outside."""

from haru.apiserver.token_options import TokenOptions
from haru.apiserver.tokens.checking import Checked, InvalidToken
from haru.apiserver.tokens.claims import Reference
from haru.apiserver.tokens.service import AccountTokens
from haru.apiserver.tokens.sources import SignerError

__all__ = ["AccountTokens", "Checked", "InvalidToken", "Reference", "SignerError", "TokenOptions"]
