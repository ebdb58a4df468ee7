"""Colours of what is drawn, light and dark, and the rules that use them: CSS for pages and for SVG files."""

from __future__ import annotations

LIGHT = (
    "--paper: #fdfdfc; --ink: #1d2330; --muted: #667085; --grid: #e4e7ec;"
    " --rung: #3b6fb6; --production: #2a9d8f; --detour: #b08968; --peer: #76b900; --warn: #b42318;"
    " --series-0: #5a8f00; --series-1: #2f5fa8; --series-2: #c2410c; --series-3: #7c3aed;"
    " --series-4: #0e7490; --series-5: #be185d; --series-6: #92600a; --series-7: #4b5563;"
    " --series-8: #d11a2a; --series-9: #00806a; --series-10: #8a2be2; --series-11: #5d6b00;"
)
DARK = (
    "--paper: #14171d; --ink: #e6e9ef; --muted: #98a2b3; --grid: #2b303b;"
    " --rung: #6fa3ea; --production: #4fd1c5; --detour: #d4a373; --peer: #9be015; --warn: #f97066;"
    " --series-0: #9be015; --series-1: #7fb0f5; --series-2: #fb923c; --series-3: #b794f6;"
    " --series-4: #4fc3dc; --series-5: #f472b6; --series-6: #e3b341; --series-7: #b6bfcc;"
    " --series-8: #ff6b6b; --series-9: #2dd4a7; --series-10: #d0a2ff; --series-11: #c5d86d;"
)
DRAWN = """svg text { fill: var(--ink); } svg text.muted { fill: var(--muted); }
.grid { stroke: var(--grid); } .axis { stroke: var(--muted); }
.bar.rung { fill: var(--rung); } .bar.peer { fill: var(--peer); } .bar.production { fill: var(--production); }
.bar.detour { fill: var(--detour); } .mark { stroke: var(--muted); stroke-dasharray: 4 4; }
.mark-0 { stroke: var(--peer); }
.halo { paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
.series { fill: none; stroke-width: 2; } .leader { fill: none; stroke: var(--muted); stroke-width: .7; }
.roof { fill: none; stroke: var(--muted); stroke-width: 2; }
"""
