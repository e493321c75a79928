"""`gconsole serve`: the TUI in a browser. One page, one websocket, and one `gconsole` process per browser session.

The process draws with Textual's web driver; `page/` has the terminal that shows its output. No module here imports the
fleet.
"""
