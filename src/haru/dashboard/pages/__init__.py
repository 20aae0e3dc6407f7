"""From what a page shows to HTML. Everything that comes from the cluster is escaped by `html.tag`."""
