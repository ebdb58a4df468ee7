"""The page of symmetric products: Muon's steps stand below them."""

from __future__ import annotations

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.publish.symmetric_tables import steps_of_muon
from lapidist_lab.bench.studies.muon_steps import MODE, NAME, WAYS


def test_steps_of_muon_stand_beside_torchs() -> None:
    rest = "NVIDIA H200", "bfloat16", "rcr", 2048, 2048, 2048
    times = [
        (f"{NAME}, graph, 96 x 2048 x 2048", 30e-3, 1.5),
        (f"{WAYS['graph']}, 96 x 2048 x 2048", 45e-3, 1.0),
    ]
    records = [
        Record(name, "production", *rest, seconds, 800.0, ratio, None, 0.5, True, MODE)
        for name, seconds, ratio in times
    ]
    lines = [line for line in steps_of_muon(Data(records)).splitlines() if line.startswith("| graph")]
    assert lines == ["| graph, 96 x 2048 x 2048 | H200 | 30 ms | 800 | 1.50x | 0.50 |"]
    assert steps_of_muon(Data([])) == ""
