"""`gconsole --linear`: the console as lines of text, for screen readers, logs and terminals without cursor movement."""
