"""Sessions: what the console saw, kept on disk, recovered after a crash, read again.

`layout` says where everything lies, `frames` how bytes are safe there, `reading` gives the records back; `recorder`
writes them. Nothing here knows a screen or a node; nothing here is asked by the fleet.
"""
