"""Records made readable: tables on a terminal, pages, plots, and each published number of README and docs."""
