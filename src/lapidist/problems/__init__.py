"""What is asked of a multiplication, without a pointer."""
