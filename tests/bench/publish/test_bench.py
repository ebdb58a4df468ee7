"""The bench without a GPU: cases, Records, the order of turns, the report writer, the page. test_gpu_bench.py
measures.
"""

from __future__ import annotations

import csv
import math
import re
from dataclasses import fields, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from lapidist.bench.protocol.cases import LISTS, Case, case_of, named, parse_mnk, read_cases
from lapidist.bench.protocol.contenders import bytes_per_flop, choose
from lapidist.bench.protocol.measure import BURST, SUSTAINED, turn_order
from lapidist.bench.protocol.record import (
    Conditions,
    Record,
    read_run,
    read_runs,
    run_name,
    write_csv,
    write_run,
)
from lapidist.bench.publish import report, svg
from lapidist.bench.publish.html import page
from lapidist.bench.publish.outputs import Outputs
from lapidist.bench.publish.tables import show, time_words
from lapidist.bench.publish.views import in_order, latest, main_case, roofline, sweep
from lapidist.bench.studies.climb import poisoned_matrix, random_matrix
from lapidist.config import Config
from lapidist.dtypes import MATHS
from lapidist.errors import ArgumentError
from lapidist.kernels.registry import RUNGS

FLOAT_RUNGS = [kernel for kernel in RUNGS if "float32" in kernel.types.maths]
REQUIRED = ["kernel", "kind", "device", "dtype", "layout", "m", "n", "k", "seconds", "tflops"]
REQUIRED += ["ratio", "limit_share", "worst", "ok"]
CONDITIONS = Conditions(
    date="2026-01-02T03:04:05+00:00",
    command="lapidist climb",
    device="NVIDIA H200",
    chip={"dram_gbps": 4670.0, "limit_tflops": {"float32": 66.0}},
    mode="sustained",
    vendor="cuBLAS by torch.mm",
)


def row(
    kernel: str,
    tflops: float | None,
    kind: str = "rung",
    shape: tuple[int, int, int] = (4096,) * 3,
    **more: object,
) -> Record:
    m, n, k = shape
    seconds = 2 * m * n * k / tflops / 1e12 if tflops else None
    ratio = tflops / 50 if tflops else None
    share = tflops / 66 if tflops else None
    record = Record(
        kernel,
        kind,
        "NVIDIA H200",
        "float32",
        "rrr",
        m,
        n,
        k,
        seconds,
        tflops,
        ratio,
        share,
        0.01,
        True,
        "sustained",
    )
    return replace(record, bytes_per_flop=0.03125, **more)


def ladder(speed: float = 40.0) -> list[Record]:
    """All rungs of float, each a little faster, rung 4 slower than rung 3; one failure; cuBLAS."""
    rows = [
        row(kernel.name, speed * (place + 1) / len(FLOAT_RUNGS)) for place, kernel in enumerate(FLOAT_RUNGS)
    ]
    rows[3] = row(FLOAT_RUNGS[3].name, 0.5)
    rows[6] = replace(row(FLOAT_RUNGS[6].name, None), ok=False, error="RefusalError: why | not\nmore")
    return [
        row("cublas", 50.0, "peer"),
        *rows,
        row("unroll_4", 31.0, "detour"),
        row("unroll_8", 32.0, "detour"),
    ]


# ---- cases ----


def test_the_sweep_runs_from_128_to_16384_at_k_1024() -> None:
    sizes = [m for m, n, k in LISTS["sweep"] if m == n and k == 1024]
    assert len(sizes) == len(LISTS["sweep"]) == 15
    assert (sizes[0], sizes[-1]) == (128, 16384)


def test_cases_come_from_lists_options_and_files(tmp_path: Path) -> None:
    file = tmp_path / "cases.json"
    file.write_text('[[1, 2, 3], {"m": 4, "n": 5, "k": 6, "dtype": "float64"}]')
    assert read_cases(file, "float32") == [Case(1, 2, 3), Case(4, 5, 6, "float64")]
    assert parse_mnk("7,8,9", "float16") == parse_mnk("7x8x9", "float16") == Case(7, 8, 9, "float16")
    assert len(named(("ladder", "squares"), "float32")) == len(LISTS["ladder"]) + len(LISTS["squares"])


@pytest.mark.parametrize(
    "text", ["[]", "{}", "[[1, 2]]", "[[1, 2, 0]]", '[["a", 2, 3]]', "[[true, 2, 3]]", "not json"]
)
def test_a_bad_file_of_cases_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "cases.json"
    file.write_text(text)
    with pytest.raises(ArgumentError, match="--file"):
        read_cases(file, "float32")


@pytest.mark.parametrize("extent", [0, -1, 2**31])
def test_an_extent_outside_its_range_is_quoted(extent: int) -> None:
    with pytest.raises(ArgumentError, match=rf"--size: n .* got {extent}"):
        case_of(1, extent, 1, "float32", "--size")


def test_flops_and_bytes_of_a_case() -> None:
    case = Case(2, 3, 5, "float64")
    assert case.flops == 60
    assert case.set_bytes == (10 + 15 + 6) * 8


def test_a_tile_decides_the_bytes_for_each_flop() -> None:
    assert bytes_per_flop(Config(128, 128, 8, tm=8, tn=8), "float32") == 1 / 32
    assert bytes_per_flop(Config(32, 32), "float32") == 4


# ---- protocol ----


def test_the_vendor_takes_a_turn_before_every_fourth_contender() -> None:
    assert turn_order(["peer", *["rung"] * 5], 1) == [0, 1, 2, 3, 4, 0, 5]
    assert turn_order(["peer", "peer", "rung"], 2) == [0, 1, 2, 0, 2, 1]
    assert turn_order(["rung", "rung"], 1) == [0, 1]
    assert turn_order(["peer"], 3) == [0, 0, 0]


def test_a_sustained_turn_lasts_half_a_second_and_its_second_half_counts() -> None:
    lead, timed = SUSTAINED.replays(0.01)
    assert (lead + timed) * 0.01 > 0.5
    assert timed >= lead
    assert SUSTAINED.replays(2.0) == (0, 1)
    assert BURST.replays(0.01) == (1, 1)


def test_inputs_follow_the_type() -> None:
    values = random_matrix(64, 64, "int8")
    assert (values.min(), values.max()) == (-128, 127), "integers fill their range"
    assert 0.5 < random_matrix(64, 64, "float8_e4m3fn").astype("f4").std() < 1.5
    assert (poisoned_matrix(2, 2, "int32") == np.iinfo("int32").min).all()
    assert np.isnan(poisoned_matrix(2, 2, "bfloat16").astype("f4")).all()


def test_a_case_knows_its_types() -> None:
    assert (Case(1, 1, 1, "tf32").dtype, Case(1, 1, 1, "tf32").precision) == ("float32", "tf32")
    assert Case(2, 3, 5, "int8").out_dtype == "int32"
    assert Case(2, 3, 5, "int8").set_bytes == 10 + 15 + 6 * 4
    assert case_of(1, 1, 1, "e4m3", "--size") == Case(1, 1, 1, "float8_e4m3fn")


def test_choosing_contenders() -> None:
    assert [each.name for each in choose(None, False, "float32", production=False)] == [
        kernel.name for kernel in FLOAT_RUNGS
    ]
    assert [each.name for each in choose("2, lapidist", False, "float32")] == ["coalesced", "lapidist"]
    assert any(each.kind == "detour" for each in choose(None, True, "float32"))
    with pytest.raises(ArgumentError, match=r"--kernel: must be one of .*'nonsense'.*lapidist"):
        choose("nonsense", False, "float32")
    with pytest.raises(
        ArgumentError, match=r"--kernel: names our kernels; got 'cublas'.*measured beside them.*Leave it away"
    ):
        choose("2,cublas", False, "float32")


def test_b_lies_as_a_kernel_takes_it() -> None:
    def columns(name: str, math: str) -> bool:
        return choose(name, False, math)[0].columns

    assert columns("b_transposed", "float32")
    assert not columns("mma_multistage", "int8"), "this rung takes B by rows only"
    assert columns("mma", "int8"), "8-bit types as the vendor has them, where both are taken"
    assert columns("lapidist", "float8_e4m3fn")
    assert not columns("mma", "float16")
    assert columns("wgmma_tma", "tf32"), "wgmma wants k to touch"


@pytest.mark.parametrize("math", MATHS)
def test_a_climb_takes_the_rungs_that_take_the_type(math: str) -> None:
    names = [each.name for each in choose(None, False, math, production=False)]
    assert ("mma_multistage" in names) == (math != "float32")
    assert ("transposed_a" in names) == (math in ("float16", "float32", "float64"))
    assert ("wmma_shared" in names) == (math not in ("float32", "float8_e4m3fn", "float8_e5m2"))


# ---- Records ----


def test_a_row_has_every_field_that_readers_rely_on() -> None:
    assert [each.name for each in fields(Record)][: len(REQUIRED)] == REQUIRED


def test_records_survive_the_file(tmp_path: Path) -> None:
    records = ladder(speed=48.0)
    path = tmp_path / run_name(CONDITIONS, "climb-4096")
    write_run(path, CONDITIONS, records)
    run = read_run(path)
    assert path.name == "h200-20260102T030405-climb-4096.jsonl"
    assert run.conditions == CONDITIONS
    assert [record.kernel for record in run.records] == [record.kernel for record in records]
    for read, written in zip(run.records, records, strict=True):
        assert read.tflops is None or math.isclose(read.tflops, written.tflops or 0.0, rel_tol=1e-5)


def test_a_damaged_file_names_its_line(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    write_run(path, CONDITIONS, ladder())
    path.write_text(path.read_text() + '{"kernel": "x"}\n')
    with pytest.raises(ArgumentError, match=rf"run.jsonl: line {len(ladder()) + 2} "):
        read_run(path)


def test_csv_has_a_line_a_record(tmp_path: Path) -> None:
    write_csv(tmp_path / "rows.csv", ladder())
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [read["kernel"] for read in rows] == [record.kernel for record in ladder()]
    assert rows[0]["tflops"] == "50.0"


def test_a_run_of_many_measurements_is_written_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, kept = iter((100.0, 100.0, 104.9, 105.1, 105.1)), []
    monkeypatch.setattr("lapidist.bench.publish.outputs.time.monotonic", lambda: next(now))
    outputs = Outputs(True, None, None, None, tmp_path, "many")
    for count in (1, 2, 3):
        outputs.keep(CONDITIONS, [row("simt", 40.0)] * count)
        (run,) = read_runs(tmp_path)
        kept.append(len(run.records))
    assert kept == [1, 1, 3]
    assert len(outputs.finished) == 3


@pytest.mark.parametrize("width", [80, 100])
@pytest.mark.parametrize("mode", ["sustained", "machine"])
def test_tables_fit_a_terminal_and_part_no_number_from_its_unit(
    mode: str, width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = {"registers": 168, "shared_bytes": 197_696, "blocks_per_sm": 1, "warps_per_sm": 12}
    counts = {"warp_instructions": 57_600, "sectors": 16.5, "wavefronts": 2.25, "bytes_per_flop": 0.0273}
    seen = {"ffma_share": 0.923, "unit_share": 0.841, "worst": 0.01, "seconds": 0.0002479}
    rows = [
        replace(row(name, 55.4), mode=mode, **facts, **counts, **seen) for name in ("tma_producer", "simt")
    ]
    show(Console(width=width), rows)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    for name in ("tma_producer", "simt"):
        (line,) = [line for line in lines if name in line]
        assert "247.9 us" in line
    assert any("left out" in line for line in lines) == (width == 80)


def test_a_later_run_replaces_what_it_measured_again(tmp_path: Path) -> None:
    later = replace(CONDITIONS, date="2026-02-01T00:00:00+00:00")
    write_run(tmp_path / "a.jsonl", later, [row("coalesced", 6.0)])
    write_run(tmp_path / "b.jsonl", CONDITIONS, [row("coalesced", 5.0), row("cublas", 50.0, "peer")])
    found = {record.kernel: record.tflops for record, _ in latest(read_runs(tmp_path))}
    assert found == {"coalesced": 6.0, "cublas": 50.0}


def test_times_are_written_in_the_unit_that_fits() -> None:
    assert [time_words(x) for x in (2.0, 0.0275, 7.1e-6, 4e-9, None)] == [
        "2 s",
        "27.5 ms",
        "7.1 us",
        "4 ns",
        "-",
    ]


def test_the_command_of_a_run_names_no_place_on_a_computer() -> None:
    from lapidist.bench.protocol.conditions import command_line

    assert (
        command_line(["climb", "--size", "64", "--record", "/home/someone/out"])
        == "lapidist climb --size 64 --record out"
    )


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
    refused = (checkout / "docs" / "performance" / "runs.md").read_text()
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


def types_rows() -> list[Record]:
    """Half and double on four squares: mma.sync at 60 % of cuBLAS in half, ahead of it in double; no peer in
    e5m2.
    """
    rows = []
    for kind, vendor, ours in (("float16", 600.0, 360.0), ("float64", 60.0, 63.0)):
        entered = (
            ("cublas", "peer", vendor),
            ("mma_multistage", "rung", ours),
            ("mma_swizzled", "rung", ours / 2),
        )
        for size in LISTS["types"]:
            timed = [(row(name, tflops, role, size), tflops / vendor) for name, role, tflops in entered]
            rows += [
                replace(each, dtype=kind, ratio=ratio, unit="mma", unit_share=0.5) for each, ratio in timed
            ]
    alone = [
        replace(row("mma_multistage", 300.0, "rung", size), dtype="float8_e5m2", ratio=None)
        for size in LISTS["types"]
    ]
    return [*rows, *alone]


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
    assert (
        "4096^3 360 TFLOP/s, 60.0 % of cuBLAS, 50.0 % of the limit of mma.sync, 2.00x the rung before" in text
    )
    assert "At 4096^3 in other types, TFLOP/s and % of cuBLAS: fp64 63 (105.0), e5m2 300 (-)." in text
    assert re.search(r"^- mma, .*: not yet\.$", text, re.M)


def test_a_page_of_several_types_has_plots_for_each() -> None:
    text = page(CONDITIONS, types_rows())
    for title in (
        "The ladder at 4096^3, fp16",
        "Speed against size, m = n = k, fp64",
        "The ladder at 4096^3, e5m2",
    ):
        assert f"<h4>{title}</h4>" in text


def test_names_beside_points_move_to_the_margin_where_they_would_meet() -> None:
    """Two columns of points before the ridge (16 flops a byte), the names of one beside those of the
    other.
    """

    def places(*points: tuple[str, float, float]) -> dict[str, float]:
        drawn = svg.roofline(points, {"unit": 64.0}, 4.0, "Roofline")
        return {
            name: float(re.search(rf'<text x="([\d.]+)"[^>]*>{name}<', drawn)[1]) for name, _, _ in points
        }  # type: ignore[index]

    margin = svg.WIDTH - 170
    met = places(("first", 8.0, 20.0), ("second", 10.0, 21.0))
    assert min(met.values()) > margin
    apart = places(("first", 8.0, 2.0), ("second", 10.0, 21.0))
    assert max(apart.values()) < margin


def test_a_roofline_has_a_roof_for_each_unit() -> None:
    limits = {"fma": {"float16": 66.0}, "mma": {"float16": 615.0}, "wgmma": {"float16": 819.0}}
    text = page(replace(CONDITIONS, chip={"dram_gbps": 4670.0, "unit_tflops": limits}), types_rows())
    for words in (
        "limit of CUDA cores, 66 TFLOP/s",
        "limit of mma.sync, 615 TFLOP/s",
        "limit of wgmma, 819 TFLOP/s",
    ):
        assert words in text


# ---- HTML and SVG ----


def test_the_page_needs_nothing_but_itself() -> None:
    swept = [
        row(name, 10.0, shape=(size, size, 1024))
        for size in (128, 512, 2048)
        for name in ("coalesced", "cublas")
    ]
    text = page(CONDITIONS, [*ladder(), *swept])
    assert text.count("<svg") == text.count("</svg>") == 3
    assert not re.search(r"""src\s*=|href="[^#]|url\(|@import|https?://""", text)
    assert "prefers-color-scheme: dark" in text
    assert "why | not" in text


def test_what_records_say_cannot_become_markup() -> None:
    text = page(CONDITIONS, [replace(row("<b>", 1.0), error="<script>alert(1)</script>", note="&")])
    assert text.count("<script") == 1
    assert "alert(1)</script" not in text
    assert "<b>" not in text


def test_a_share_stands_beside_numbers_of_its_own_run_only() -> None:
    """cuBLAS was slower when it was measured again: the old run's share is not held against that."""
    old = replace(row("coalesced", 667.0), ratio=1.007)
    new = [replace(row("hoisted_indices", 630.0), ratio=0.998), row("cublas", 631.4, "peer")]
    sources = {old.key: "early", **{each.key: "late" for each in new}}
    text = page(CONDITIONS, [old, *new], sources)
    late, early = re.findall(r'<details class="case" open>.*?</details>', text, re.S)
    assert "early" in early
    assert "667.0" in early
    assert "631.4" not in early
    assert "631.4" in late
    assert "Bars are % of cuBLAS in the same run" in text
    assert "cuBLAS in that run 662.4, early" in text


def test_columns_without_anything_are_left_out() -> None:
    text = page(CONDITIONS, [replace(row("coalesced", 5.0), registers=40, shared_bytes=None)])
    assert "<button>registers</button>" in text
    assert "shared B" not in text


def test_the_contents_lead_to_sections_that_are_there() -> None:
    text = page(CONDITIONS, ladder())
    anchors = re.findall(r'href="#([\w-]+)"', text)
    assert len(anchors) >= 3
    assert all(f'<details id="{anchor}"' in text for anchor in anchors)


def test_times_are_sorted_by_seconds() -> None:
    text = page(CONDITIONS, [replace(row("coalesced", 5.0), seconds=0.25)])
    assert '<td data-value="0.25">250 ms</td>' in text


def test_labels_of_limits_stay_apart_and_inside() -> None:
    points = [("a", [(128.0, 1.0), (256.0, 2.0)])]
    drawn = svg.lines(points, {"one": 100.0, "other": 101.0}, "n", "y", "t", 640)
    heights = sorted(float(y) for y in re.findall(r'y="([\d.]+)"[^>]*>limit of', drawn))
    assert heights[1] - heights[0] >= svg.LABEL_GAP
    bars = svg.bars([svg.Bar("k", 1.0, "1", "rung")], [("a mark with a long name", 1.0)], "t", 300, 10)
    middle = float(re.search(r'<text x="([\d.]+)"[^>]*>a mark', bars)[1])  # type: ignore[index]
    assert middle + svg.LETTER * 11.5 <= 300.1


def test_a_page_of_nothing_timed_shows_counts() -> None:
    counted = [
        replace(row("coalesced", None), ffma_share=0.25, error="not run", mode="static", device="none")
    ]
    text = page(replace(CONDITIONS, device="none", mode="static"), counted)
    assert "Nothing was timed" in text
    assert "25.0 %" in text


def test_labels_keep_their_distance_and_their_order() -> None:
    placed = svg.spread([10.0, 11.0, 12.0, 100.0], 5.0, 0.0, 100.0)
    assert placed == sorted(placed)
    assert min(b - a for a, b in pairwise(placed)) >= 5.0
    assert max(svg.spread([98.0, 99.0, 100.0], 5.0, 0.0, 100.0)) <= 100.0


def test_ticks_are_round_and_cover_the_values() -> None:
    assert svg.ticks_to(66.0) == [0, 10, 20, 30, 40, 50, 60, 70]
    assert svg.round_numbers(0.33, 69.0) == [0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
