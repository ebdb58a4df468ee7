"""What is measured with the protocol, a study a file: ladder, layouts, limits, launches, shared tiles."""
