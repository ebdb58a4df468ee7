"""The page of symmetric products: Muon's steps stand below them."""

from __future__ import annotations

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.section import Data
from lapidist_lab.bench.publish.symmetric_tables import steps_of_muon
from lapidist_lab.bench.studies import symmetric_products
from lapidist_lab.bench.studies.muon_steps import MODE, NAME, WAYS
from lapidist_lab.bench.studies.symmetric_products import COMPILED, QUACK
from published import page_of


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


def test_quack_and_torchs_compiler_stand_beside_cublas() -> None:
    def row(name: str, dtype: str, n: int, seconds: float | None, ratio: float | None = None) -> Record:
        kind = "production" if name.startswith("lapidist") else "peer"
        case = name, kind, "NVIDIA H200", dtype, "rcr", n, n, n
        return Record(*case, seconds, 1.0, ratio, None, 0.5, True, symmetric_products.MODE)

    records = [
        row(symmetric_products.NAME, "bfloat16", 512, 4e-6, 1.5),
        row(symmetric_products.NAME, "bfloat16", 1024, 8e-6, 1.5),
        row(symmetric_products.NAME, "tf32", 512, 5e-6, 1.5),
        row("lapidist", "bfloat16", 512, 6e-6),
        row(QUACK, "bfloat16", 512, 8e-6),
        row(QUACK, "bfloat16", 1024, 4e-6),
        row(COMPILED, "bfloat16", 512, None),
    ]
    page = page_of("symmetric", records)
    taken = "quack takes 1.00x our time in the geometric mean of 2 cases. The least is 0.50x: bf16, 1024^3."
    assert f"{taken} Not among the peers: `torch.compile`." in page
    lines = [line for line in page.splitlines() if line.startswith(("| bf16", "| tf32"))]
    assert lines == [
        "| bf16 | 512^3 | H200 | 4 us | 1.50x | 1.50x | 2.00x |",
        "| bf16 | 1024^3 | H200 | 8 us | 1.50x | - | 0.50x |",
        "| tf32 | 512^3 | H200 | 5 us | 1.50x | - | - |",
    ]
    assert "Not among the peers: quack and `torch.compile`." in page_of("symmetric", records[:4])
