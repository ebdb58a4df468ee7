"""The choice of kernel, config and schedule for a problem, and its reasons."""
