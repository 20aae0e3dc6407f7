"""Ways into containers as clients speak them, for API servers with simulated pods and for the node agent.

channels    the streams of a remote command, over a WebSocket or SPDY, at the server's side
spdy        frames of SPDY/3.1; pure
"""
