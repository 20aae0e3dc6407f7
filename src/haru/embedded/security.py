"""What an API server is told about its security, the same for `haru up` and `haru apiserver`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haru.apiserver.admission_options import AdmissionOptions
    from haru.apiserver.audit import AuditOptions
    from haru.storage import Sealing


@dataclass(frozen=True, slots=True)
class SecurityOptions:
    """The files that the flags name; sizes in MB, ages in days, 0 for no bound."""

    encryption_config: Path | None = None
    audit_policy: Path | None = None
    audit_log: str | None = None
    """A path, or `-` for the standard output."""
    audit_megabytes: int = 100
    audit_backups: int = 0
    audit_days: int = 0
    admission_config: Path | None = None

    def sealing(self) -> Sealing | None:
        """What is encrypted at rest; None: nothing. Raises OptionError."""
        if self.encryption_config is None:
            return None
        from haru.apiserver.encryption import EncryptionError, load_encryption
        from haru.embedded.options import OptionError

        try:
            return load_encryption(self.encryption_config)
        except EncryptionError as error:
            raise OptionError(str(error)) from None

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
        """What is told to the audit log; None: there is none. Raises OptionError."""
        if self.audit_policy is None and self.audit_log is None:
            return None
        from haru.apiserver.audit import AuditFile, AuditOptions, PolicyError, load_policy
        from haru.embedded.options import OptionError

        if self.audit_policy is None:
            raise OptionError("--audit-log-path: Forbidden without --audit-policy-file, which says what is logged")
        if self.audit_log is None:
            raise OptionError("--audit-policy-file: Forbidden without --audit-log-path, which says where to")
        file = AuditFile(self.audit_log)
        try:
            file.open()
            file.close()
        except OSError as error:
            remedy = "name a file in a directory that can be written"
            raise OptionError(f"--audit-log-path: {self.audit_log}: {error.strerror}; {remedy}") from None
        try:
            policy = load_policy(self.audit_policy)
        except PolicyError as error:
            raise OptionError(str(error)) from None
        return AuditOptions(policy, self.audit_log, self.audit_megabytes, self.audit_backups, self.audit_days)
