"""What every interface starts: the composition root, and the Python interface (`import gconsole`) built on it."""
