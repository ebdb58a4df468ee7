"""What watches a run: races, missing waits, fences."""
