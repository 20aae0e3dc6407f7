"""HTTP/2 for the ASGI applications of Haru's servers (RFC 9113).

    alpn           choose HTTP/1.1 or HTTP/2, as client and server agree in the TLS handshake
    connection     one connection: which frame goes to which stream, settings, the end
    stream         one request and its response: the channels of ASGI, flow control
    limits         what a client may cost: useless frames, running handlers, time
    frame_writer   frames to the client, gathered into few writes
    frames         bytes to frames and back
    literals       fields of header blocks that share no state, as responses are written, and the client's requests
    headers        header blocks (HPACK, RFC 7541) to ASGI's scope; a response's status and headers to a block

`frames`, `literals` and `headers` are pure. `hpack` decompresses; the rest is a server's half of the protocol: no push,
no priorities, no upgrades. The client's half is `haru.client.http2_connection`.
"""

MAX_STREAMS = 100
"""Concurrent streams of a connection, kube-apiserver's default."""
