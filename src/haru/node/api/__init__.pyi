from .adapters import AgentView as AgentView
from .adapters import serve as serve
from .options import AuthenticationOptions as AuthenticationOptions
from .options import AuthorizationOptions as AuthorizationOptions
from .options import ServerOptions as ServerOptions
