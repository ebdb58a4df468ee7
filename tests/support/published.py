"""What stands on a page of `lapidist_lab.bench.publish`, and in a chart."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from lapidist_lab.bench.protocol.record import Record, Run
from lapidist_lab.bench.publish.charts import Chart
from lapidist_lab.bench.publish.corpora import corpus_sections
from lapidist_lab.bench.publish.pages import BY_NAME, text_of
from lapidist_lab.bench.publish.section import Data, Written


def parts_of(name: str, records: Sequence[Record], runs: Sequence[Run] = ()) -> Written:
    return BY_NAME[name].written(Data(records, runs))


def page_of(name: str, records: Sequence[Record], runs: Sequence[Run] = ()) -> str:
    return text_of(BY_NAME[name].title, parts_of(name, records, runs))


def charts_of(name: str, records: Sequence[Record]) -> list[Chart]:
    return [part for part in parts_of(name, records) if isinstance(part, Chart)]


def corpora_of(runs: Sequence[Run]) -> list[str]:
    """The section of each corpus."""
    text = text_of("", ["\n", *corpus_sections(runs)])
    return [f"## {each}" for each in text.split("\n## ")[1:]]


def points_in(text: str) -> int:
    """Of a chart of points, and in its legend: they alone let others shine through."""
    groups = [each for each in ElementTree.fromstring(text).iter() if "fill-opacity" in each.get("style", "")]
    return sum(each.tag.endswith("use") for group in groups for each in group)
