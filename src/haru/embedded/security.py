"""Hold the security options of `haru up` and `haru apiserver`: encryption at rest, audit, admission."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from haru.apiserver.audit_options import Delivery
from haru.embedded.errors import OptionError

if TYPE_CHECKING:
    from haru.apiserver.admission_options import AdmissionOptions
    from haru.storage import Sealing


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """Hold the files that the flags name; sizes in MB, ages in days, 0 for no limit."""

    encryption_config: Path | None = None
    encryption_reload: bool = False
    """Reload the configuration whenever its file changes."""
    audit_policy: Path | None = None
    audit_log: str | None = None
    """A path, or `-` for the standard output."""
    audit_megabytes: int = 100
    audit_backups: int = 0
    audit_days: int = 0
    audit_log_delivery: Delivery = field(default_factory=Delivery)
    audit_webhook: Path | None = None
    """A kubeconfig."""
    audit_webhook_delivery: Delivery = field(default_factory=Delivery)
    admission_config: Path | None = None

    def sealing(self) -> Sealing | None:
        """Load the encryption at rest; None: nothing is encrypted. Raises OptionError."""

        if self.encryption_config is None:
            if self.encryption_reload:
                flag = "--encryption-provider-config"
                raise OptionError(f"{flag}-automatic-reload: Forbidden: must be set with {flag}")
            return None
        from haru.apiserver.encryption import EncryptionError, load_encryption

        try:
            return load_encryption(self.encryption_config)
        except EncryptionError as error:
            raise OptionError(str(error)) from None

    @property
    def encryption_file(self) -> Path | None:
        """Return the encryption configuration to reload on changes; None: the server reads it once."""
        return self.encryption_config if self.encryption_reload else None

    def admission(self) -> AdmissionOptions:
        """Load the configuration of admission plugins. Raises OptionError."""
        from haru.apiserver.admission_options import AdmissionConfigError, AdmissionOptions, load_admission

        if self.admission_config is None:
            return AdmissionOptions()
        try:
            return load_admission(self.admission_config)
        except AdmissionConfigError as error:
            raise OptionError(str(error)) from None
