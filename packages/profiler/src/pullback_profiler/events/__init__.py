"""Events and lists of them: what a profile's results are made of.

Here are one event, sums and lists of events, how events nest and link, and the forms that a list
has of itself: its table, lines for flame graphs, a plain trace, pickles. Nothing here records, and
nothing here imports another folder of the profiler or the core.
"""
