"""Jobs and their ranks as the screen tells them: totals, states in words, missing ranks with their reason."""
