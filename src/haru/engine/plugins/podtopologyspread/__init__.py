"""PodTopologySpread: refuse and score nodes by skew. Extension points: PreFilter, Filter, PreScore, Score.

Arguments (PodTopologySpreadArgs): `defaultConstraints`, `defaultingType`.
"""
