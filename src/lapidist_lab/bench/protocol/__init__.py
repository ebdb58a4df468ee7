"""How a time is taken: what is measured, who is, in turns beside the vendor's library; and its Records."""
