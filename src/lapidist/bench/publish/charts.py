"""Charts of the pages: SVG files in two versions, light and dark, which a page shows by <picture>."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from lapidist.bench.protocol.record import Record
from lapidist.bench.publish import svg
from lapidist.bench.publish.markdown import speed
from lapidist.bench.publish.palette import DARK, DRAWN, LIGHT
from lapidist.bench.publish.tables import percent
from lapidist.bench.publish.views import label

THEMES = {"light": LIGHT, "dark": DARK}
HEAD = 34  # of a chart among others, for its title
WIDTH = 640  # a phone shows it at six tenths: letters of 15 stay readable
LETTERS = 'text { font: 15px system-ui, "DejaVu Sans", sans-serif; } .small { font-size: 13.5px; }'


@dataclass(frozen=True, slots=True)
class Chart:
    """`name`: of its files, without the theme; `words`: what it shows, for who cannot see it."""

    name: str
    drawn: str
    words: str

    def shown(self, folder: str = "") -> str:
        """On a page from where `folder` leads to the files."""
        dark = f'<source media="(prefers-color-scheme: dark)" srcset="{folder}{self.name}-dark.svg">'
        plain = f'<img src="{folder}{self.name}-light.svg" alt="{escape(self.words)}">'
        return f"<picture>{dark}{plain}</picture>\n"

    def files(self, folder: Path) -> dict[Path, str]:
        return {folder / f"{self.name}-{theme}.svg": themed(self.drawn, theme) for theme in THEMES}


def themed(drawn: str, theme: str) -> str:
    """As a file of its own: with colours, a paper, and a size."""
    head, _, rest = drawn.partition("\n")
    _, _, width, height = head.partition('viewBox="')[2].partition('"')[0].split()
    opening = head.replace(
        "<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" ', 1
    )
    style = f"<style>svg {{ {THEMES[theme]} }}\n{DRAWN}{LETTERS}</style>"
    paper = f'<rect width="{width}" height="{height}" fill="var(--paper)"/>'
    return f"{opening}\n{style}\n{paper}\n{rest}\n"


def stacked(charts: Sequence[tuple[str, str]]) -> str:
    """Titled drawings below each other as one file, which follows the reader's light or dark."""
    parts, top = [], 0.0
    for title, drawn in charts:
        _, _, width, height = drawn.partition('viewBox="')[2].partition('"')[0].split()
        parts.append(svg.text(10, top + 22, title))
        placed = f'<svg y="{top + HEAD:.0f}" width="{width}" height="{height}" '
        parts.append(drawn.replace("<svg ", placed, 1))
        top += HEAD + float(height)
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top:.0f}" width="{WIDTH}">'
    dark = f"@media (prefers-color-scheme: dark) {{ svg {{ {DARK} }} }}"
    style = f"<style>svg {{ {LIGHT} }}\n{dark}\n{DRAWN}{LETTERS}</style>"
    paper = f'<rect width="{WIDTH}" height="{top:.0f}" fill="var(--paper)"/>'
    return "\n".join([opening, style, paper, *parts, "</svg>\n"])


# ---- what is drawn ----


def beside_cublas(name: str, records: Sequence[Record], words: str) -> Chart:
    """Bars of each kernel's share of cuBLAS in its own run; the line is cuBLAS."""
    shown = [record for record in records if record.ratio is not None and record.kernel != "cublas"]
    rows = [
        svg.Bar(label(r.kernel), 100 * (r.ratio or 0.0), f"{speed(r)} TFLOP/s, {percent(r.ratio)} %", r.kind)
        for r in shown
    ]
    return Chart(name, svg.bars(rows, [("cuBLAS", 100.0)], words, WIDTH, right=190), words)


def bars(name: str, rows: Sequence[svg.Bar], marks: Sequence[tuple[str, float]], words: str) -> Chart:
    return Chart(name, svg.bars(rows, marks, words, WIDTH, right=190), words)


def against_size(name: str, series: Sequence[svg.Named], words: str) -> Chart:
    return Chart(name, svg.lines(series, {}, "m = n = k", "TFLOP/s", words, WIDTH), words)
