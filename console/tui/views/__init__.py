"""The views, one file each. A new one is its file and its row in `table.VIEWS`."""
