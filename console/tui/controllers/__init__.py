"""Controllers: the parts of the app that act. The app owns one of each."""
