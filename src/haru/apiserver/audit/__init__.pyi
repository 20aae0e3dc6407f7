from .auditor import Auditor as Auditor
from .log import AuditFile as AuditFile
from .policy import PolicyError as PolicyError
from .policy import load_policy as load_policy
