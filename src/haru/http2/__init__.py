"""HTTP/2 for the ASGI applications of Haru's servers (RFC 9113).

    alpn           choose HTTP/1.1 or HTTP/2, as client and server agree in the TLS handshake
    connection     one connection: which frame goes to which stream, settings, the end
    stream         one request and its response: the channels of ASGI, flow control
    limits         what a client may cost: useless frames, running handlers, time
    frame_writer   frames to the client, gathered into few writes
    frames         bytes to frames and back
    headers        header blocks (HPACK, RFC 7541) to ASGI's scope; a response's status and headers to a block

`frames` and `headers` are pure. `hpack` decompresses; the rest is a server's half of the protocol: no server push, no
priorities, no upgrades.
"""

MAX_STREAMS = 100
"""Concurrent streams of a connection, kube-apiserver's default."""
