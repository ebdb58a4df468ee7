"""`lapidist fit` on times that are known: what it draws, keeps, finds and writes."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lapidist.commands.cli import app
from lapidist.device import chip
from lapidist_lab.fit.regression import fit
from lapidist_lab.fit.samples import (
    ALIGNED,
    LEAST,
    LONGEST,
    MOST,
    Measurements,
    Sample,
    by_product,
    problem_of_case,
    production_ways,
    random_cases,
    read,
)

H200 = chip("h200")


def samples(count: float = 0.3, slower: float = 1.3, noise: float = 0.01) -> list[Sample]:
    """Candidates whose times are the model's, but longer in ping-pong, and with noise."""
    draw, measured = random.Random(5), []
    for case in random_cases(["bfloat16"], count, 3, H200):
        for place, way in enumerate(production_ways(case, H200)):
            seconds = way.planned(case, H200).predicted_seconds
            slow = slower if way.config is not None and way.config.ping_pong else 1.0
            seconds *= slow * math.exp(draw.gauss(0.0, noise))
            assert way.kernel is not None
            assert way.config is not None
            measured.append(Sample(case, way.kernel.name, way.config, way.sharing, seconds, place == 0))
    return measured


@pytest.fixture(scope="module")
def measured() -> list[Sample]:
    return samples()


def text_of(samples: list[Sample], chip_name: str = "H200") -> str:
    return "".join(line + "\n" for line in (f'{{"chip": "{chip_name}"}}', *(s.line() for s in samples)))


def test_random_products_are_within_their_limits() -> None:
    cases = random_cases(["bfloat16", "float64"], 1.0, 7, H200)
    assert cases == random_cases(["bfloat16", "float64"], 1.0, 7, H200)
    assert {case.layout for case in cases} == {"rr", "rc", "cr"}
    for case in cases:
        assert case.flops <= LONGEST * H200.limit_tflops(case.math) * 1e12
        assert all(LEAST <= extent <= MOST + 1 for extent in (case.n, case.k))
        odd = [extent % ALIGNED for extent in case.extents]
        assert not any(odd) or all(extent % 2 for extent in case.extents)


def test_a_line_says_all_of_a_sample(measured: list[Sample], tmp_path: Path) -> None:
    file = tmp_path / "samples.jsonl"
    file.write_text(text_of(measured))
    assert read(file) == Measurements(H200, measured)
    for case, group in by_product(measured).items():
        assert sum(sample.chosen for sample in group) == 1
        candidates = [sample.candidate(problem_of_case(case), H200) for sample in group]
        assert all(candidate.refusal is None for candidate in candidates)


def test_what_the_model_misses_is_found_on_products_that_were_left_out(measured: list[Sample]) -> None:
    answer = fit([Measurements(H200, measured)], "bfloat16")
    assert answer is not None
    before, after = answer.judgements["H200"]
    assert after.error < before.error
    assert after.regret < before.regret
    assert answer.weights["wgmma"]["ping-pong"] > 0.02


def test_weights_that_gain_little_are_not_kept() -> None:
    """These times are the model's but for noise."""
    answer = fit([Measurements(H200, samples(slower=1.0, noise=0.03))], "bfloat16")
    assert answer is not None
    assert not answer.helps
    assert answer.weights == {}


def test_the_command_reads_samples_of_several_chips(measured: list[Sample], tmp_path: Path) -> None:
    files, out = [tmp_path / "h200.jsonl", tmp_path / "h100.jsonl"], tmp_path / "fitted.json"
    for name, file in zip(("H200", "H100"), files, strict=True):
        file.write_text(text_of(measured, name))
    words = ["fit", "--samples", str(files[0]), "--samples", str(files[1]), "--out", str(out)]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert "bfloat16 on H200: " in answer.output
    content = json.loads(out.read_text())
    assert content["chips"] == ["H200", "H100"]
    assert set(content["weights"]) == {"bfloat16"}


def test_chips_of_two_architectures_are_refused(measured: list[Sample], tmp_path: Path) -> None:
    files, out = [tmp_path / "h200.jsonl", tmp_path / "a100.jsonl"], tmp_path / "fitted.json"
    for name, file in zip(("H200", "A100"), files, strict=True):
        file.write_text(text_of([], name))
    words = ["fit", "--samples", str(files[0]), "--samples", str(files[1]), "--out", str(out)]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code != 0
    assert "must be of chips of one architecture; got sm_80, sm_90a" in str(answer.exception)
    assert not out.exists()
