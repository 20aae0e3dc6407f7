"""Encryption at rest with keys that a key management service has, which does not give them out.

Values are encrypted with keys derived from a seed; the seed is encrypted by the service and kept beside each value. A
server makes a new seed when it starts, and when the service changes its key. Seeds that were decrypted are kept in
memory, so the service is asked once for each, not once for each value.
"""

from haru.storage.kms.provider import KmsProvider

__all__ = ["KmsProvider"]
