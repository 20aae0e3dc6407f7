"""ResourceQuota: what an object counts as, which quotas it is counted by, and whether there is room. Pure.

usage      one evaluator for each resource: the names it counts under, and how much an object is
pods, claims, volumes, services
           the evaluators that know more than to count one
scopes     which objects a quota with scopes looks at
checking   a write against the quotas of its namespace: the new `status.used`, or why not
counting   all objects of a namespace against one quota: its `status`
Source: k8s.io/apiserver `quota/v1` and kube-apiserver's evaluators, as behaviour.
"""
