from .agent import Agent as Agent
from .agent import NodeError as NodeError
from .options import DEFAULT_ENDPOINT as DEFAULT_ENDPOINT
from .options import CgroupOptions as CgroupOptions
from .options import DnsOptions as DnsOptions
from .options import NodeOptions as NodeOptions
from .options import RegistrationOptions as RegistrationOptions
