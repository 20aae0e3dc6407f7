from .document import configuration_document as configuration_document
from .fields import ConfigurationError as ConfigurationError
from .file import Configuration as Configuration
from .file import LeaderElection as LeaderElection
from .file import load_configuration as load_configuration
from .file import read_configuration as read_configuration
