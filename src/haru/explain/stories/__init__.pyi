from .device_story import explain_device as explain_device
from .node_story import explain_node as explain_node
from .values import DeviceState as DeviceState
from .values import Wanting as Wanting
