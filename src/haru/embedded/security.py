"""What an API server is told about its security, the same for `haru up` and `haru apiserver`."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from haru.apiserver.audit_options import Delivery

if TYPE_CHECKING:
    from haru.apiserver.admission_options import AdmissionOptions
    from haru.apiserver.audit import AuditOptions
    from haru.storage import Sealing


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """The files that the flags name; sizes in MB, ages in days, 0 for no bound."""

    encryption_config: Path | None = None
    encryption_reload: bool = False
    """Take the configuration over whenever it changes."""
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
        """What is encrypted at rest; None: nothing. Raises OptionError."""
        from haru.embedded.options import OptionError

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
        """The configuration that is followed; None: it is read once."""
        return self.encryption_config if self.encryption_reload else None

    def admission(self) -> AdmissionOptions:
        """What admission plugins are told. Raises OptionError."""
        from haru.apiserver.admission_options import AdmissionConfigError, AdmissionOptions, load_admission
        from haru.embedded.options import OptionError

        if self.admission_config is None:
            return AdmissionOptions()
        try:
            return load_admission(self.admission_config)
        except AdmissionConfigError as error:
            raise OptionError(str(error)) from None

    def audit(self) -> AuditOptions | None:
        """What is told to the audit log and the webhook; None: nothing. Raises OptionError."""
        if self.audit_policy is None and self.audit_log is None and self.audit_webhook is None:
            return None
        from haru.embedded.auditing import audit_options

        return audit_options(self)
