"""One door for every question without a cluster: a `Snapshot` is asked, and the answers are values.

Commands and programs come in here alike: `haru explain`, `whatif`, `schedule`, `allocate`, `lint` and `capture` ask
what `import haru` asks. What reads files and clusters, settles manifests as a cluster would and shows answers in a
notebook is here; what decides is in `engine`, `explain` and `whatif`.
"""
