from .claims import Reference as Reference
from .issuer import AccountTokens as AccountTokens
from .sources import SignerError as SignerError
from .validation import InvalidToken as InvalidToken
from .validation import VerifiedToken as VerifiedToken
