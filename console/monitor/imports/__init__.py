"""Import of files of other tools: dumps and logs in, records out. Independent of the store and the screen."""
