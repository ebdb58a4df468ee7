"""What Lapidist is developed and studied with: the bench, the fuzzer, lessons, studies of machine code."""
