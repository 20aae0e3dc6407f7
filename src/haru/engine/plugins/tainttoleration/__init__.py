"""TaintToleration: refuse, score or drain nodes by their taints. Extension points: Filter, Score. Arguments: none.

`plugin` also has what kube-controller-manager's taint-eviction-controller decides by (KEP-3902).
"""
