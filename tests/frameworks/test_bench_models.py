"""The benches of whole models, on small ones: what they compare is the same model twice."""

from __future__ import annotations

import importlib
import itertools
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lapidist.device import chip
from lapidist.errors import ArgumentError

pytestmark = [pytest.mark.frameworks, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_networks_learn_alike(torch: Any) -> None:
    lt = importlib.import_module("lapidist.torch")
    training = importlib.import_module("lapidist_lab.bench.studies.training")
    models = []
    for fused in (False, True, False):
        torch.manual_seed(0)
        models.append(training.network(1, 32, 4, 512, 8, fused))
    assert len(lt.swap(models[0])) == 5
    text = training.sentences(2 * training.LAST, 512, 4, 8, "cpu")
    assert text.shape == (2 * training.LAST, 4, 9)
    taken, worst = training.contest(models, text)
    assert [len(each) for each in taken] == [1, 1, 1]
    assert max(worst) < 0.01


def test_cases_are_chosen_by_how_they_start() -> None:
    llama = importlib.import_module("lapidist_lab.bench.studies.llama")
    assert len(llama.chosen(())) == len(llama.FORMS) * len(llama.CASES)
    assert [case.batch for _, case in llama.chosen(("graph/decode",))] == [1, 16, 64]
    assert len(llama.chosen(("compiled/decode/16", "eager"))) == 1 + len(llama.CASES)


@pytest.mark.parametrize("kind", ["forward", "gradients"])
def test_layers_of_experts_are_compared(torch: Any, monkeypatch: Any, kind: str) -> None:
    lt, mixtures = importlib.import_module("lapidist.torch"), importlib.import_module("mixtures")
    monkeypatch.setattr("lapidist_lab.bench.studies.turns.TURN_SECONDS", 0.001)
    study = importlib.import_module("lapidist_lab.bench.studies.mixture_layers")
    layers = [mixtures.StockMixture(4, 2, 16, 12) for _ in range(2)]
    layers[1].load_state_dict(layers[0].state_dict())
    lt.swap(layers[0])
    case = study.Case(study.mixtral(16, 12, 4, 2), kind, "eager", 6)
    ours, theirs = study.of_case(case, tuple(layers), "here")
    assert ours.ok
    assert theirs.ratio == 1.0
    assert round(ours.tflops * ours.seconds * 1e12) == 2 * 6 * 2 * 3 * 16 * 12 * (
        3 if kind == "gradients" else 1
    )
    with torch.no_grad():
        layers[1].experts.down_proj.neg_()
    assert not study.of_case(case, tuple(layers), "here")[0].ok
    assert {case.layer.name for case in study.chosen(("qwen3/forward/graph",))} == {"qwen3"}


def test_steps_of_muon_are_compared_with_those_of_torch(torch: Any, monkeypatch: Any) -> None:
    """A CUDA graph needs a GPU, and torch's compiler a C compiler."""
    monkeypatch.setattr("lapidist_lab.bench.studies.turns.TURN_SECONDS", 0.001)
    study = importlib.import_module("lapidist_lab.bench.studies.muon_steps")
    monkeypatch.setattr(study, "WAYS", {way: study.WAYS[way] for way in ("eager", "optimiser")})
    matrices = study.Matrices(2, 16, 24)
    records = study.of_matrices(matrices, "here", "cpu")
    assert [(record.kind, record.mode, record.ok) for record in records] == [
        ("production", "muon", True),
        ("peer", "muon", True),
    ] * 2
    assert matrices.flops == 2 * 5 * 2 * (16 * 16 * 24 + 16**3 + 16 * 16 * 24)
    monkeypatch.setattr(study, "ours", lambda way, gradients: lambda: 0.9 * study.torchs(gradients))
    assert not study.of_matrices(matrices, "here", "cpu")[0].ok


def test_ratios_are_of_the_time_before(capsys: Any) -> None:
    turns = importlib.import_module("lapidist_lab.bench.studies.turns")
    ours, theirs = turns.pair(("ours", "theirs"), [[1.0, 2.0], [3.0, 3.0]], (1, 2, 3), 1.5e12, 0.5, "here")
    assert (ours.ratio, theirs.ratio, ours.kind, theirs.kind) == (2.0, 1.0, "production", "peer")
    assert (ours.ok, ours.tflops, ours.mode) == (True, 1.0, "model")
    taken = turns.compare([lambda: 1, lambda: 2], lambda _: None, 2)
    assert [len(each) for each in taken] == [2, 2]


def test_a_served_model_goes_through_its_trace(torch: Any, monkeypatch: Any) -> None:
    study = importlib.import_module("lapidist_lab.bench.studies.served_model")
    monkeypatch.setattr("lapidist_lab.bench.studies.turns.TURN_SECONDS", 0.001)
    steps = study.trace()
    assert steps == study.trace()
    assert {step.batch for step in steps if step.tokens == 1} == set(study.SEQUENCES)
    assert sum(step.tokens > 1 for step in steps) == study.STEPS // study.EVERY
    small = [study.Step(1, 12), study.Step(2, 1), study.Step(4, 1), study.Step(2, 1)]
    shape = study.Shape(2, 64, 48, 4, 2, 40)
    rows: list[int] = []

    def linear(x: Any, weight: Any) -> Any:
        rows.append(x.shape[:-1].numel())
        return torch.nn.functional.linear(x, weight)

    model = study.Model(shape, "cpu")
    times = study.contest(model, small, (linear, torch.nn.functional.linear), lambda call: call, print, 3)
    assert set(rows) == {12, 2, 4, 1}  # of a prefill, the head sees the last token
    first, second = study.records_of([[2.0, 2.0, 4.0], [1.0, 1.0, 1.0]], small, shape, "here")
    assert (first.ratio, second.ratio, first.note) == (0.5, 1.0, "4 tokens/s")
    assert (first.mode, first.m, len(times)) == (study.MODE, 9, 2)


def test_a_model_of_few_bits_has_the_logits_of_bf16(torch: Any, monkeypatch: Any) -> None:
    study = importlib.import_module("lapidist_lab.bench.studies.few_bits_model")
    monkeypatch.setattr("lapidist_lab.bench.studies.turns.TURN_SECONDS", 0.001)
    shape = study.Shape(2, 128, 256, 4, 2, 40)
    model = study.Decoder(shape, "cpu", (1, 3))
    with torch.inference_mode():
        ways = model.ways()
        model.warm(ways, 2)
        times, worst = study.contest(model, ways, 3, lambda call: call, lambda _: None, 2)
        assert [way.name for way in ways] == study.NAMES
        assert max(worst) < 1
        ways[2].head.codes.zero_()
        assert study.contest(model, ways, 3, lambda call: call, lambda _: None, 1)[1][2] > 1
    seconds = [[4.0, 4.0, 5.0], [3.0], [1.0], [2.0]]
    records = study.records_of(seconds, worst, 3, shape, "here")
    assert [record.ratio for record in records] == [0.75, 1.0, 3.0, 1.5]
    assert {record.peer for record in records} == {study.PLAIN}
    assert (records[2].m, records[2].note, records[2].mode) == (3, "3 tokens/s", "few bits")
    assert [len(turns) for turns in times] == [2] * 4


def test_conditions_say_whether_triton_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    study = importlib.import_module("lapidist_lab.bench.studies.few_bits")
    conditions = importlib.import_module("lapidist_lab.bench.protocol.conditions")
    stage, case = SimpleNamespace(framework=SimpleNamespace(capturable=True)), study.CASES[0]
    for version, words in ((None, "without Triton"), ("3.9.0", "few_bits_triton by Triton 3.9.0")):
        monkeypatch.setattr(conditions, "version_of", lambda _, version=version: version)
        assert conditions.words_of_triton("few_bits_triton").startswith(words)
        peers = [contender.name for contender in study.contenders_of(stage, case)]
        assert (study.TRITON in peers) == (version is not None)


def test_marlin_reads_codes_by_lanes(torch: Any) -> None:
    """A word has a lane's codes of mma.sync's B for 16 steps of k and two eights of columns."""
    marlin = importlib.import_module("lapidist_lab.bench.studies.few_bits_marlin")
    k, n = 32, 128
    codes = torch.randint(16, (k, n), dtype=torch.uint8)
    words = marlin.codes_in_order(codes)
    assert words.shape == (k // 16, 2 * n)
    for band, lane, tile in itertools.product(range(k // 16), range(32), range(n // 16)):
        word = int(words[band, tile // 4 * 128 + 4 * lane + tile % 4])
        first, column = 16 * band + lane % 4 * 2, 16 * tile + lane // 4
        # The low halves of words are even steps of k, the high ones the next; then columns eight further.
        places = [(step, eight) for eight in (0, 8) for step in (0, 8)]
        for place, (step, eight) in enumerate(places):
            pair = word >> 4 * place & 15, word >> 16 + 4 * place & 15
            assert pair == tuple(codes[first + step : first + step + 2, column + eight].tolist())
    factors = torch.arange(2.0 * n).reshape(2, n)
    ordered = marlin.factors_in_order(factors)
    assert ordered[0, :9].tolist() == [0, 8, 16, 24, 32, 40, 48, 56, 1]
    assert sorted(ordered.flatten().tolist()) == factors.flatten().tolist()


def test_marlin_needs_its_sources(torch: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    study = importlib.import_module("lapidist_lab.bench.studies.few_bits")
    stage, case = SimpleNamespace(framework=SimpleNamespace(capturable=True)), study.CASES[0]
    assert study.marlin_of(None, chip("h200"))[1].startswith("without Marlin")
    with pytest.raises(ArgumentError, match="--marlin: must be a checkout"):
        study.marlin_of(tmp_path, chip("h200"))
    for library in (None, object()):
        names = [contender.name for contender in study.contenders_of(stage, case, library)]
        assert (study.MARLIN in names) == (library is not None)


@pytest.mark.parametrize("routing", ["gathered", "scattered"])
def test_rows_of_packed_experts_are_those_of_bf16(torch: Any, monkeypatch: Any, routing: str) -> None:
    study = importlib.import_module("lapidist_lab.bench.studies.few_bits_experts")
    monkeypatch.setattr("lapidist_lab.bench.studies.turns.TURN_SECONDS", 0.001)
    case = study.Case(study.Layer("small", 3, 128, 40), routing, 5, 2)
    weights = torch.stack([study.whole_numbers(40, 128, "cpu") * 2.0**study.EXPONENT for _ in range(3)])
    routed = study.Routed(case, weights)
    times, worst = study.contest(routed, lambda call: call, lambda _: None, 1)
    assert max(worst) < 1
    records = study.records_of(times, worst, case, "here", 1)
    assert [record.kernel for record in records] == [f"{way}, {routing}" for way in study.WAYS]
    assert max(record.ratio for record in records[:2]) == 1.0


def test_symmetric_products_meet_quack_where_it_is_installed(torch: Any, monkeypatch: Any) -> None:
    study = importlib.import_module("lapidist_lab.bench.studies.symmetric_products")
    framework = SimpleNamespace(name="torch", capturable=True)
    stage, ours = SimpleNamespace(framework=framework), ["cublas", study.NAME, "lapidist"]
    for version, quack, words in (
        (None, [], "without quack"),
        ("0.6.5", [study.QUACK], "quack 0.6.5; torch."),
    ):
        monkeypatch.setattr(study, "version_of", lambda _, version=version: version)
        cases = {case.math: case for case in study.CASES}
        names = {math: [x.name for x in study.contenders_of(stage, case)] for math, case in cases.items()}
        assert names["bfloat16"] == [*ours, *quack, study.COMPILED]
        assert names["float16"] == [*ours, *quack]
        assert names["tf32"] == names["float32"] == ours
        assert study.words_of_peers(framework).startswith(words)
    framework.name = "cupy"
    assert [one.name for one in study.contenders_of(stage, study.CASES[0])] == ours


def test_whole_and_half_products_have_one_result(torch: Any, monkeypatch: Any) -> None:
    """As quack and torch's compiler are called; torch stands for both."""
    study = importlib.import_module("lapidist_lab.bench.studies.symmetric_products")
    half = SimpleNamespace(gemm_symmetric=lambda a, b, out: torch.mm(a, b, out=out))
    monkeypatch.setitem(sys.modules, "quack", SimpleNamespace(gemm_interface=half))
    monkeypatch.setitem(sys.modules, "quack.gemm_interface", half)
    case, a, c = study.CASES[0], [torch.randn(8, 4)], [torch.empty(8, 8)]
    study.Quack().prepare(case, a, [a[0].T], c)(0)
    assert torch.equal(c[0], a[0] @ a[0].T)
    asked: dict[str, Any] = {}
    monkeypatch.setattr(torch, "compile", lambda f, dynamic, options: asked.update(options) or f)
    whole = study.Inductor(SimpleNamespace(name="torch", torch=torch), "bfloat16").compiled(torch)
    assert torch.equal(whole(a[0], None), c[0])
    assert asked["max_autotune"]
    assert "triton.cudagraphs" not in asked  # the bench captures graphs itself
