from .http import Request as Request
