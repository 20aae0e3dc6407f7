"""The web page: a map of all cards, the queue with reasons and remedies, and the story of each workload.

`views` turns a snapshot of the cluster into values and `pages` turns those into HTML; both are pure. `watching` keeps
the snapshot by list and watch while somebody looks, `access` lets one browser in, `app` answers requests, `serving`
listens on loopback. The page only reads: the client behind it is asked for nothing but lists and watches, and nothing
but GET and HEAD is answered.
"""
