from .adapters import AgentView as AgentView
from .adapters import serve as serve
from .options import ServerOptions as ServerOptions
