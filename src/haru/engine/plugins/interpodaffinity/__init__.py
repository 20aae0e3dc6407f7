"""InterPodAffinity: refuse and score nodes by the pods on them. Extension points: PreFilter, Filter, Score.

Arguments (InterPodAffinityArgs): `hardPodAffinityWeight`, `ignorePreferredTermsOfExistingPods`.
"""
