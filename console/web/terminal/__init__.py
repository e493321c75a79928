"""`gconsole serve`: screens in browsers. One page, one websocket and one app per visitor, all in one process.

An app draws with `BrowserDriver` into a bounded queue, from which its websocket is written; messages of the websocket
are its input. `page/` has the terminal that shows the output. No module here imports the fleet or the TUI: the
`open_app` of `ConsoleServer` makes the apps.
"""
