"""DefaultPreemption: evict pods for a pod that fits nowhere. Extension points: PostFilter.

Arguments (DefaultPreemptionArgs): `minCandidateNodesPercentage` and `minCandidateNodesAbsolute` are checked and change
nothing: all candidates are tried.
"""
