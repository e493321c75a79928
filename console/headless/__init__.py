"""Commands without a screen: batch, doctor, clean, ps."""
