"""Puts `haru up` together: the store, the API server, controllers, scheduler and simulated nodes in one process.

The parts meet only at the API server: each gets a client with an identity of its own that calls the ASGI application
in process, with the same method, path, headers and bytes as over the network.
"""
