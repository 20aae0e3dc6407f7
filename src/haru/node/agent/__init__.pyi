from .agent import Agent as Agent
from .agent import NodeError as NodeError
from .options import DEFAULT_ENDPOINT as DEFAULT_ENDPOINT
from .options import NodeOptions as NodeOptions
