"""Container Device Interface: what a device adds to a container, as files that drivers write and runtimes read.

`edits` are the values, `reading` finds and merges the files of a machine and resolves ids, `writing` is a driver's
side. Source: the CDI specification, versions 0.3 to 1.0.
"""
