"""``foveate bench speed``: every speed of this project as a ratio, in one table.

Each measurement is a function that gives rows (:class:`~benchmarks.speed.rows.Row`): what was timed, against what, the
median ratio of alternating turns and how much it varied. Each runs in a process of its own, so that one that fails or
takes too long is a line with a reason; a second call goes on with those that are missing.
"""
