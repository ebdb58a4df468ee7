"""What the report program writes from Records: pages, README, headers of kernels."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from ladder_records import CONDITIONS, ladder, row, types_rows
from lapidist.errors import ArgumentError
from lapidist_lab.bench.protocol.record import write_run
from lapidist_lab.bench.publish import report
from lapidist_lab.bench.publish.record_views import in_order, main_case, roofline, sweep

# ---- views ----


def test_views_pick_the_ladder_the_sweep_and_the_roofline() -> None:
    sizes = (128, 1024, 8192)
    swept = [
        row(name, 10.0 + size / 1000, shape=(size, size, 1024))
        for size in sizes
        for name in ("coalesced", "cublas")
    ]
    records = [*ladder(), *swept, row("coalesced", 3.0, shape=(777, 777, 1024), k=1023)]
    assert main_case(records) == (4096, 4096, 4096)
    assert [(each.kernel, len(each.points)) for each in sweep(records)] == [("cublas", 3), ("coalesced", 3)]
    assert all(point.intensity == 32 for point in roofline(ladder()))
    assert [record.kernel for record in in_order(ladder())][:2] == ["uncoalesced", "coalesced"]


# ---- the report writer ----


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small tree with Records, a README and two kernels."""
    (tmp_path / "results").mkdir()
    write_run(tmp_path / "results" / "h200-one.jsonl", CONDITIONS, ladder())
    (tmp_path / "README.md").write_text("before\n<!-- ladder:begin -->\nold\n<!-- ladder:end -->\nafter\n")
    for place in ("ladder/02_coalesced.cu", "ladder/07_vector_loads.cu", "detours/inner_unroll.cu"):
        path = tmp_path / "src" / "lapidist" / "cuda" / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("// Lesson:   x\n// Measured: -\n// more\nkernel\n")
    return tmp_path


def test_the_report_writes_page_readme_and_headers(checkout: Path) -> None:
    assert report.publish(checkout, check=False)
    readme = (checkout / "README.md").read_text()
    assert readme.startswith("before\n<!-- ladder:begin -->\n<picture><source media=")
    assert readme.endswith("<!-- ladder:end -->\nafter\n")
    for theme in ("light", "dark"):
        picture = f"docs/performance/ladder-fp32-{theme}.svg"
        assert picture in readme
        assert "02 coalesced" in (checkout / picture).read_text()
    cuda = checkout / "src" / "lapidist" / "cuda"
    expected = "// Measured: 4096^3: 4.00 TFLOP/s, 8.0 % of cuBLAS (H200, results/h200-one.jsonl)"
    assert (
        cuda / "ladder" / "02_coalesced.cu"
    ).read_text() == f"// Lesson:   x\n{expected}\n// more\nkernel\n"
    assert "// Measured: -\n" in (cuda / "ladder" / "07_vector_loads.cu").read_text()
    both = (cuda / "detours" / "inner_unroll.cu").read_text()
    assert "unroll_4 31.0, unroll_8 32.0 TFLOP/s, 62.0, 64.0 % of cuBLAS" in both


def test_losses_and_refusals_stand_beside_wins(checkout: Path) -> None:
    report.publish(checkout, check=False)
    text = (checkout / "docs" / "performance" / "fp32.md").read_text()
    assert re.search(r"Slower than the rung before: 04 shared_tile \(0\.08x\)", text)
    assert "| 07 vector_loads | - | - |" in text
    refused = (checkout / "results" / "runs.md").read_text()
    assert "- 07 vector_loads, 4096^3, fp32: RefusalError: why | not\n" in refused


def test_the_same_records_give_the_same_files(checkout: Path) -> None:
    report.publish(checkout, check=False)
    first = {path: path.read_text() for path in checkout.rglob("*.*") if path.is_file()}
    report.publish(checkout, check=False)
    assert {path: path.read_text() for path in checkout.rglob("*.*") if path.is_file()} == first


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("docs/performance/fp32.md", "4.00", "6.33"),
        ("docs/performance/ladder-fp32-dark.svg", "4.00", "6.33"),
        ("README.md", "ladder-fp32-dark", "other"),
        ("src/lapidist/cuda/ladder/02_coalesced.cu", "8.0 %", "9.0 %"),
    ],
)
def test_check_catches_a_number_edited_by_hand(
    checkout: Path, capsys: pytest.CaptureFixture[str], file: str, old: str, new: str
) -> None:
    report.publish(checkout, check=False)
    assert report.publish(checkout, check=True) == []
    path = checkout / file
    edited = path.read_text().replace(old, new, 1)
    assert edited != path.read_text()
    path.write_text(edited)
    assert report.publish(checkout, check=True)
    assert str(path) in capsys.readouterr().err
    assert path.read_text() == edited, "--check must change nothing"


def test_no_records_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"--root: .* Make them with climb --record"):
        report.publish(tmp_path, check=False)


# ---- types side by side ----


def test_each_type_has_one_table_of_all_squares(checkout: Path) -> None:
    write_run(checkout / "results" / "h200-two.jsonl", CONDITIONS, types_rows())
    report.publish(checkout, check=False)
    half, double, narrow = (
        (checkout / "docs" / "performance" / f"{name}.md").read_text() for name in ("fp16", "fp64", "fp8")
    )
    assert (
        "| kernel | 1024^3 | 2048^3 | 4096^3 | 8192^3 | at best, % of limit | % of its unit | MHz | W |"
        in half
    )
    assert "| 24 mma_multistage | 360.0 (60.0) | 360.0 (60.0) | 360.0 (60.0) | 360.0 (60.0) |" in half
    assert "None is faster than cuBLAS on any size." in half
    assert (
        "Faster than cuBLAS: 24 mma_multistage at 1024^3, 2048^3, 4096^3, 8192^3. Slower at every size: 23"
        in double
    )
    assert "cuBLAS has no such product." in narrow


def test_the_readme_has_sustained_and_burst_side_by_side(checkout: Path) -> None:
    """Of the planner's choice, with cuBLAS as it was in the same run; a type without both has no row."""
    size = (8192, 8192, 8192)
    rows = [
        replace(row("lapidist", tflops, "production", size), dtype=kind, ratio=ratio, mode=mode)
        for kind, mode, tflops, ratio in (
            ("bfloat16", "sustained", 735.0, 1.05),
            ("bfloat16", "burst", 832.0, 1.04),
            ("float16", "sustained", 691.0, 1.05),
        )
    ]
    vendor = replace(row("cublas", 600.0, "peer", size), dtype="bfloat16", ratio=1.0)
    write_run(checkout / "results" / "h200-two.jsonl", CONDITIONS, [*rows, vendor])
    (checkout / "README.md").write_text("<!-- types:begin -->\n<!-- types:end -->\n")
    report.publish(checkout, check=False)
    text = (checkout / "README.md").read_text()
    assert "| bf16 | 735.0 | 700.0 | 105.0 | 832.0 | 800.0 | 104.0 |" in text
    assert "fp16 |" not in text


def test_the_worklog_quotes_tensor_cores_in_half_and_their_limits(checkout: Path) -> None:
    limit = replace(row("limit_mma", 615.0, "limit"), dtype="float16", unit="mma")
    write_run(checkout / "results" / "h200-two.jsonl", CONDITIONS, [*types_rows(), limit])
    log = checkout / "docs" / "ladder.md"
    log.parent.mkdir(exist_ok=True)
    blocks = ("limits:begin", "limits:end", "rung:mma_multistage", "rung:end", "kernel:mma", "kernel:end")
    log.write_text("".join(f"<!-- {block} -->\n" for block in blocks))
    report.publish(checkout, check=False)
    text = log.read_text()
    assert "| mma.sync | fp16 | 615.0 |" in text
    assert "| fp16 | 4096^3 | 360 | 60.0 | 50.0 | 2.00 |" in text
    assert "| fp64 | 4096^3 | 63 | 105.0 | 50.0 | 2.00 |" in text
    assert re.search(r"^- `mma`, .*\n- Measured: not yet\.$", text, re.M)
