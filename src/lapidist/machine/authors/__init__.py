"""For authors of kernels: take what they have, run it on many schedules, and list what was found."""
