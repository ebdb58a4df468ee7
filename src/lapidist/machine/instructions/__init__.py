"""What each PTX instruction does, over many lanes at once."""
