"""Jobs that gconsole started on this node; each has a folder in the cache with its order, state and output.

The files are the only state, so a later agent or console finds the job in them. A job starts and stops only on an
explicit request of `gconsole run`.
"""
