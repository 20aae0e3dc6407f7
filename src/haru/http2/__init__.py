"""HTTP/2 for the ASGI applications of Haru's servers (RFC 9113).

    frames      bytes to frames and back; what is wrong with either end
    heads       header blocks (HPACK, RFC 7541) to ASGI's scope, and an answer's status and headers to a block
    stream      one request: the channels of ASGI, and the short ways past them
    connection  many of them on one connection: windows, bounds, the end
    choosing    HTTP/1.1 or HTTP/2, as client and server agreed while TLS began (ALPN)

Frames and heads are pure. What is decompressed is left to `hpack`; the rest is a server's half of the protocol: it
pushes nothing, orders nothing by priority, and takes no part in upgrades.
"""

MAX_STREAMS = 100
"""At once on a connection, as kube-apiserver has it unless it is told otherwise."""
