"""Admission that users configure: webhooks and admission policies.

`registry` keeps what the store holds compiled, `chain` is what writes call, `matching` says whom a request concerns,
`webhooks` and `policies` ask them. A write in a cluster without any of these passes none of this.
"""
