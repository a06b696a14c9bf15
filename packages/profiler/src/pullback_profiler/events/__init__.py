"""Events and lists of events: the results of a profile.

Events, sums and lists of events, their nesting and links, and the output of a list: its table,
lines for flame graphs, a plain trace, pickles. Nothing here records, and
nothing here imports another folder of the profiler or the core.
"""
