"""Jobs on this node: each has a folder in the cache, 0700, with what was ordered, its state and its output.

The files are all there is: an agent that comes later finds the job in them, and so does the console behind it.
Nothing here acts by itself; a job starts and stops on the explicit request of `gconsole run`.
"""
