"""Lessons: a rung run in the machine, watched, and shown as a page that moves."""
