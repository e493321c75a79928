"""Parts of the app that act: captures, nodes, jobs, recordings, the clipboard, shutdown."""
