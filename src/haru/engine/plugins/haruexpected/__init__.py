"""HaruExpected: score nodes by what they can still take of an expected mix. Extension points: Score.

Our own plugin. Arguments: none; the mix stands in the profile.
"""
