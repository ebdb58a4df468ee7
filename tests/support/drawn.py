"""What stands in a drawing of `lapidist.bench.publish.charts`."""

from __future__ import annotations

from xml.etree import ElementTree


def points_in(text: str) -> int:
    """Of a chart of points, and in its legend: they alone let others shine through."""
    groups = [each for each in ElementTree.fromstring(text).iter() if "fill-opacity" in each.get("style", "")]
    return sum(each.tag.endswith("use") for group in groups for each in group)
