"""Puts `haru up` together: the store, the API server, controllers, scheduler and simulated nodes by one command.

The parts meet only at the API server: each gets a client with an identity of its own. In one process it calls the ASGI
application, with the same method, path, headers and bytes as over the network; between processes it goes over a Unix
socket.
"""
