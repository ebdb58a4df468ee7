"""Every corpus in a line, bursts below sustained turns; and what two chips have on the same products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from lapidist.bench.protocol.contenders import LIBRARY
from lapidist.bench.protocol.record import Run
from lapidist.bench.publish.chip_sections import ALIKE
from lapidist.bench.publish.corpora import MODES, TURNS, Corpora, corpora, seen_cells
from lapidist.bench.publish.markdown import row_of, rule
from lapidist.bench.publish.sharing_report import Group, by_shape, gains
from lapidist.bench.publish.tables import geomean
from lapidist.bench.publish.views import LIES, Found, short_chip
from lapidist.dtypes import short_name


def summary_sections(runs: Sequence[Run]) -> list[str]:
    """Nothing where there is no corpus."""
    found = corpora(runs)
    if not found:
        return []
    heads = ["type", "products", "operands", "chip", "seed", "turns", "count"]
    heads += ["over cuBLAS, geomean", "least", "MHz", "cuBLAS at", "measured"]
    lines = [row_of(heads), rule(heads, ("products", "turns"))]
    for corpus, modes in found.items():
        sort = "ragged" if corpus.multiple == 1 else f"multiples of {corpus.multiple}"
        whose = [short_name(corpus.kind), sort, LIES[corpus.layout], short_chip(corpus.chip), corpus.seed]
        for mode, rows in modes.items():
            groups = grouped(rows)
            values = gains(groups, LIBRARY, "cublas")
            if values:
                gain = [str(len(values)), f"{geomean(values):.3f}", f"{min(values):.3f}"]
                clocks = [clock_of(groups, name) for name in (LIBRARY, "cublas")]
                measured = max(run.conditions.date[:10] for _, run in rows)
                lines.append(row_of([*whose, MODES[mode], *gain, *clocks, measured]))
    said = [f"- {each}" for each in chips_apart(found)]
    return ["\n".join([*lines, "", *said]).rstrip() + "\n"]


def grouped(rows: Found) -> Group:
    return by_shape([record for record, _ in rows])


def clock_of(groups: Group, name: str) -> str:
    return seen_cells([rows[name] for rows in groups.values() if name in rows])[0]


def chips_apart(found: Corpora) -> Iterator[str]:
    """Of the same seed on two chips: the gain of each on the products that both multiplied."""
    for one, other in combinations(found, 2):
        if one._replace(chip="") != other._replace(chip=""):
            continue
        for mode in found[one]:
            here, there = (grouped(found[each].get(mode, ())) for each in (one, other))
            both = [shape for shape in here if shape in there]
            first, second = (
                gains({shape: groups[shape] for shape in both}, LIBRARY, "cublas") for groups in (here, there)
            )
            if first and second:
                means = geomean(first), geomean(second)
                verb = "agree" if abs(means[0] / means[1] - 1.0) <= ALIKE else "differ"
                chips = " and ".join(short_chip(each.chip) for each in (one, other))
                yield (
                    f"{chips} {verb} on {len(both)} {one.sort}, {short_name(one.kind)}, {LIES[one.layout]},"
                    f" {TURNS[mode].lower()}. The geometric means are {means[0]:.3f} and {means[1]:.3f}, the"
                    f" least {min(first):.3f} and {min(second):.3f}."
                )
