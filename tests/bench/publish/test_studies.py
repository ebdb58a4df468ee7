"""Pages of what users meet beside stock ways: models, epilogues, new shapes."""

from __future__ import annotations

from dataclasses import replace

from lapidist_lab.bench.protocol.record import Record
from lapidist_lab.bench.publish.pages import index, text_of
from lapidist_lab.bench.publish.section import Data
from published import charts_of, page_of, parts_of

SHAPE = (1024, 4096, 4096)


def stock_row(kernel: str, kind: str, mode: str, ratio: float | None, **more: float | str) -> Record:
    head = (kernel, kind, "NVIDIA H200", "bfloat16", "rcr", *SHAPE, 1e-3, None, ratio, None, 0.5, True, mode)
    return Record(*head, **more)  # type: ignore[arg-type]


def test_models_stand_beside_stock_with_losses() -> None:
    rows = [
        stock_row("llama, decode", "production", "model", 1.10),
        stock_row("llama, prefill", "production", "model", 0.90),
        stock_row("stock, prefill", "peer", "model", 1.0),
    ]
    page = page_of("models", rows)
    assert "0.99x the speed of stock in the geometric mean of 2 cases, 0.90x to 1.10x" in page
    assert "| llama, prefill | 1024 | 1 ms | 0.90x |" in page
    assert "| stock," not in page
    assert [chart.name for chart in charts_of("models", rows)] == ["models"]


def test_a_result_beyond_its_bound_is_told_and_not_counted() -> None:
    rows = [stock_row(f"llama, {case}", "production", "model", 1.10) for case in ("decode", "prefill")]
    wrong = replace(rows[0], kernel="llama, gradients", ratio=9.0, worst=1.34, ok=False)
    page = page_of("models", [*rows, wrong])
    assert "1.10x the speed of stock in the geometric mean of 2 cases" in page
    assert "Not counted: 1 of 3 cases" in page
    assert "| llama, gradients | 1024 | 1 ms | 9.00x | 1.340 |" in page
    assert "gradients" not in charts_of("models", [*rows, wrong])[0].drawn


def test_an_epilogue_is_held_against_the_product_alone() -> None:
    rows = [
        stock_row("lapidist, plain", "production", "epilogue", 1.0, over_plain=1.0),
        stock_row("lapidist, bias_gelu", "production", "epilogue", 1.31, over_plain=1.017),
        stock_row("lapidist, bias", "production", "epilogue", 1.2, over_plain=1.05),
        stock_row("torch, bias_gelu", "peer", "epilogue", None),
    ]
    page = page_of("epilogues", rows)
    said = "An epilogue takes 1.03x the time of the product alone in the geometric mean, 1.02x to 1.05x."
    peers = "The fastest of torch's ways takes 1.25x the time of ours in the mean, 1.20x at least."
    assert f"{said} {peers}" in page
    assert "| bias_gelu | bf16 | 1.02 | 1.02 | 1.31x | 1.31x | 1024x4096x4096 |" in page
    assert "| bias_gelu | bf16 | 1024x4096x4096 | 1 ms | 1.017 | 1.31x |" in page


def test_new_shapes_stand_under_what_a_call_costs() -> None:
    cold = stock_row("matmul of new shapes", "host", "shapes cold", 0.5, p90=2e-3, p99=0.5, calls=500)
    loop = stock_row("request loop", "host", "served", 1.02, p90=2e-3, p99=3e-3, calls=1950)
    text = page_of("launch", [loop, cold])
    assert "| bf16 | nothing compiled | 500 | 1 ms | 2 ms | 500 ms | 0.50x |" in text
    assert text.index("nothing compiled") < text.index("a request loop")
    loaded = stock_row("matmul of new shapes", "host", "shapes loaded", 0.25, calls=500)
    text = page_of("launch", [loop, cold, loaded])
    assert (
        "With binaries loaded a new shape takes 1 ms to 1 ms in the median, and torch 0.25x to 0.25x" in text
    )


def test_the_default_is_held_against_wait() -> None:
    note = "0.99x at least; torch's time over that of wait 1.20x"
    graph = stock_row(
        "the default's kernels", "host", "default captured", 1.19, calls=24, over_wait=0.998, note=note
    )
    text = page_of("launch", [graph])
    assert f"| bf16 | a graph after three calls | 24 | 0.998x | 1.19x | {note} |" in text
    assert 'has 0.998x to 0.998x the speed of compile="wait"' in text


def test_what_was_not_measured_has_no_page() -> None:
    assert not [name for name in ("models", "epilogues", "launch", "mma", "layouts") if parts_of(name, [])]


def test_the_index_says_each_answer_in_short() -> None:
    rows = [stock_row(f"llama, {case}", "production", "model", 1.10) for case in ("decode", "prefill")]
    text = text_of("Performance", index(["models"], Data(rows)))
    said = "1.10x the speed of stock in the geometric mean of 2 cases"
    assert f"| [How fast are whole models?](models.md) | {said}" in text


def test_mma_stands_beside_cutlass_with_losses() -> None:
    rows = [
        stock_row("mma", "production", "mma burst", 1.1, peer="cutlass_47"),
        stock_row("mma", "production", "mma sustained", 0.9, peer="cutlass_47"),
        stock_row("cutlass_47", "peer", "mma burst", 0.6),
    ]
    page = page_of("mma", rows)
    assert (
        "0.90x to 1.10x the speed of CUTLASS's kernel for mma.sync, in bursts and sustained, on an H200"
        in page
    )
    assert "| 1024x4096x4096 | bf16 | B by columns | 1 ms | - | 0.90x | sustained | H200 |" in page
    assert "0.60x" not in page
