"""NodeAffinity: refuse and score nodes by name and labels. Extension points: PreFilter, Filter, Score.

Arguments (NodeAffinityArgs): `addedAffinity`, a node affinity that every pod has besides its own.
"""
