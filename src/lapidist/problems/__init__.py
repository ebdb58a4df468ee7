"""What a multiplication asks for, without pointers."""
