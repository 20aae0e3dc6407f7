from .claims import Reference as Reference
from .issuer import AccountTokens as AccountTokens
from .sources import SignerError as SignerError
from .validation import Checked as Checked
from .validation import InvalidToken as InvalidToken
