"""`lapidist fit`: measure a chip, and write the factors on the model's times for it."""
