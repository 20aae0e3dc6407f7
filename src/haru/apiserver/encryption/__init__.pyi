from .config import EncryptionError as EncryptionError
from .config import load_encryption as load_encryption
