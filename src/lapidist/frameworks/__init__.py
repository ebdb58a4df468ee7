"""How each framework's arrays, streams and outputs are read."""
