"""A signer of ServiceAccount tokens that stands beside an API server (KEP-740), written to be read.

    schedule.py   which key signs and which are published, as a function of the time
    files.py      keys in a directory, made and changed while the signer runs
    hsm.py        keys in a module that speaks PKCS#11, which never leave it
    claims.py     what is signed at all: a signer is no oracle
    service.py    the three calls of `v1.ExternalJWTSigner`
    listener.py       the socket, and who may come in
    run.py        all of it together

Whoever writes one for another kind of key needs a `Holder` (service.py) and nothing else.
"""
