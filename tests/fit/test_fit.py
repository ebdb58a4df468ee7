"""`lapidist fit` on times that are known: what it draws, keeps, finds and writes."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lapidist.commands.cli import app
from lapidist.device import chip
from lapidist.kernels.kernel_table import config_alone
from lapidist.planning import fitted_times
from lapidist.planning.cost_table import Candidate
from lapidist.planning.fitted_times import fit_of
from lapidist.planning.planner import grouped
from lapidist_lab.fit.regression import fit
from lapidist_lab.fit.samples import (
    ALIGNED,
    LEAST,
    LONGEST,
    MOST,
    Measurements,
    Sample,
    as_fitted,
    by_product,
    problem_of_case,
    production_ways,
    random_cases,
    read,
    sample_of,
)

H200 = chip("h200")


def in_ping_pong(candidate: Candidate) -> bool:
    return candidate.config.ping_pong


def samples(
    count: float = 0.3,
    slower: float = 1.3,
    noise: float = 0.01,
    math_name: str = "bfloat16",
    are_slower: Callable[[Candidate], bool] = in_ping_pong,
) -> list[Sample]:
    """Candidates whose times are the model's, but longer for some of them, and with noise."""
    draw, measured = random.Random(5), []
    for case in random_cases([math_name], count, 3, H200):
        problem = problem_of_case(case)
        for place, way in enumerate(production_ways(case, H200)):
            sample = sample_of(case, way, 0.0, place == 0)
            candidate = sample.candidate(problem, H200)
            seconds = candidate.seconds * (slower if are_slower(candidate) else 1.0)
            measured.append(sample._replace(seconds=seconds * math.exp(draw.gauss(0.0, noise))))
    return measured


@pytest.fixture(scope="module")
def measured() -> list[Sample]:
    return samples()


@pytest.fixture
def own_factors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """An empty folder of fits."""
    folder = tmp_path / "fitted"
    folder.mkdir()
    monkeypatch.setattr(fitted_times, "FOLDER", folder)
    forget_factors()
    yield folder
    monkeypatch.undo()
    forget_factors()


def forget_factors() -> None:
    for cached in (fit_of, config_alone, grouped):  # rows of configs keep them
        cached.cache_clear()


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
    before = fit_of("sm_90a")
    assert before is not None
    kept = {
        math_name: kernels for math_name, kernels in content["weights"].items() if math_name != "bfloat16"
    }
    assert kept == before.weights  # types without samples keep theirs
    assert content["weights"]["bfloat16"]


def test_a_chip_without_samples_of_a_type_is_left_out(measured: list[Sample], tmp_path: Path) -> None:
    files, out = [tmp_path / "h200.jsonl", tmp_path / "h100.jsonl"], tmp_path / "fitted.json"
    files[0].write_text(text_of(measured))
    files[1].write_text(text_of([], "H100"))
    words = ["fit", "--samples", str(files[0]), "--samples", str(files[1]), "--out", str(out)]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.output
    assert "bfloat16 on H200: " in answer.output
    assert "bfloat16 on H100" not in answer.output


def test_files_of_one_chip_count_together(measured: list[Sample], tmp_path: Path) -> None:
    products = by_product(measured)
    half = sum(map(len, list(products.values())[: len(products) // 2]))
    texts = {"both": measured, "first": measured[:half], "second": measured[half:]}
    for name, part in texts.items():
        (tmp_path / name).write_text(text_of(part))
    contents = []
    for names in (["both"], ["first", "second"]):
        words = [word for name in names for word in ("--samples", str(tmp_path / name))]
        out = tmp_path / f"{len(names)}.json"
        answer = CliRunner().invoke(app, ["fit", *words, "--dtype", "bf16", "--out", str(out)])
        assert answer.exit_code == 0, answer.output
        contents.append(out.read_text())
    assert contents[0] == contents[1]


def test_a_second_fit_gives_the_same_file(own_factors: Path, tmp_path: Path) -> None:
    """The first one's factors are in force then, and change how many blocks share tiles."""
    file = tmp_path / "samples.jsonl"
    shared = samples(0.4, math_name="float32", are_slower=lambda candidate: candidate.shares_tiles)
    file.write_text(text_of(shared))
    contents = []
    for _ in range(2):
        answer = CliRunner().invoke(app, ["fit", "--samples", str(file), "--dtype", "fp32"])
        assert answer.exit_code == 0, answer.output
        contents.append((own_factors / "sm_90a.json").read_text())
        forget_factors()
    assert contents[0] == contents[1]
    differing = 0
    for case in by_product(shared):
        for way in production_ways(case, H200):
            planned = sample_of(case, way, 0.0, False).candidate(problem_of_case(case), H200).schedule
            assert as_fitted(way, case, H200).planned(case, H200).schedule == planned
            differing += way.planned(case, H200).schedule != planned
    assert differing > 0


def test_chips_of_two_architectures_are_refused(measured: list[Sample], tmp_path: Path) -> None:
    files, out = [tmp_path / "h200.jsonl", tmp_path / "a100.jsonl"], tmp_path / "fitted.json"
    for name, file in zip(("H200", "A100"), files, strict=True):
        file.write_text(text_of([], name))
    words = ["fit", "--samples", str(files[0]), "--samples", str(files[1]), "--out", str(out)]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code != 0
    assert "must be of chips of one architecture; got sm_80, sm_90a" in str(answer.exception)
    assert not out.exists()
