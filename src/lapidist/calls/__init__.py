"""What a caller asked, checked, and made ready to run."""
