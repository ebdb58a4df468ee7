"""`lapidist warm --model`: the layers that a config.json stands for, and what is compiled for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import run
from lapidist.commands.model_layers import Layer, model_of
from lapidist.device import chip
from lapidist.errors import ArgumentError
from lapidist.planning import warm
from lapidist.planning.plans import make_plan
from lapidist.planning.warm import ROWS, Build, Built, builds_of
from lapidist.problems.problem import dense_problem

LLAMA = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
OF_LLAMA = {(4096, 4096), (1024, 4096), (6144, 4096), (128256, 4096)}
OF_LLAMA |= {(14336, 4096), (28672, 4096), (4096, 14336)}


def folder_with(folder: Path, config: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def shapes(layers: list[Layer]) -> list[tuple[int, ...]]:
    return [layer[1:] for layer in layers]


def test_the_layers_of_a_llama(tmp_path: Path) -> None:
    folder = folder_with(tmp_path, LLAMA)
    for name in (folder, folder / "config.json"):
        model = model_of(str(name))
        assert model.dtype == "bfloat16"
        assert sorted(shapes(model.layers)) == sorted(OF_LLAMA)


@pytest.mark.parametrize(
    ("config", "layers"),
    [
        (
            {"n_embd": 768, "n_head": 12, "n_inner": None, "vocab_size": 50257},
            {(768, 768), (2304, 768), (3072, 768), (6144, 768), (768, 3072), (50257, 768)},
        ),
        (
            LLAMA | {"head_dim": 256},
            {(8192, 4096), (2048, 4096), (12288, 4096), (4096, 8192), *OF_LLAMA}
            - {(4096, 4096)}
            - {(1024, 4096), (6144, 4096)},
        ),
        (LLAMA | {"moe_intermediate_size": 768}, {*OF_LLAMA, (768, 4096), (1536, 4096), (4096, 768)}),
        ({"model_type": "image and text", "text_config": LLAMA}, OF_LLAMA),
    ],
    ids=["gpt2", "large heads", "experts", "text and images"],
)
def test_other_families(tmp_path: Path, config: Any, layers: set[tuple[int, int]]) -> None:
    model = model_of(str(folder_with(tmp_path, config)))
    assert sorted(shapes(model.layers)) == sorted(layers)


def test_a_name_is_looked_up_in_the_hubs_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = tmp_path / "hub" / "models--maker--llama"
    folder_with(folder / "snapshots" / "abc", LLAMA)
    with pytest.raises(ArgumentError, match=r"--model: must be a model's folder.*got 'maker/llama'"):
        model_of("maker/llama")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc\n")
    assert len(model_of("maker/llama").layers) == len(OF_LLAMA)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "must give hidden_size as a whole number of at least 1"),
        (LLAMA | {"vocab_size": "many"}, "must give vocab_size .* has 'many'"),
        (LLAMA | {"num_attention_heads": 0}, "must give num_attention_heads .* has 0"),
        (LLAMA | {"num_key_value_heads": True}, "must give num_key_value_heads .* has True"),
        (LLAMA | {"kv_lora_rank": 512}, "has kv_lora_rank. Set LAPIDIST_SHAPES"),
        ([LLAMA], "must hold an object; .* holds list"),
        ({"text_config": []}, "must hold an object; .* holds list"),
    ],
)
def test_what_is_no_transformers_config(tmp_path: Path, config: Any, words: str) -> None:
    with pytest.raises(ArgumentError, match=f"--model: .*{words}"):
        model_of(str(folder_with(tmp_path, config)))


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"--model: must have a config.json that can be read"):
        model_of(str(tmp_path))


# ---- the command ----


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Build]:
    """What would be compiled."""
    monkeypatch.setenv("LAPIDIST_CACHE_DIR", str(tmp_path / "cache"))
    asked: list[Build] = []

    def build_all(builds: list[Build], *_: object) -> list[Built]:
        asked.extend(builds)
        return [Built(build, 0.1, None) for build in builds]

    monkeypatch.setattr(warm, "build_all", build_all)
    return asked


def expected(rows: tuple[int, ...], math: str, with_c: bool = False) -> set[Build]:
    problems = [dense_problem(m, n, k, math, "rc") for n, k in OF_LLAMA for m in rows]
    if with_c:
        problems = [added for problem in problems for added in warm.with_each_c(problem)]
    return set(builds_of(make_plan(problem, chip("h100")) for problem in problems))


@pytest.mark.parametrize(
    ("more", "rows", "maths"),
    [
        ([], ROWS, ["bfloat16"]),
        (["--tokens", "1, 16"], (1, 16), ["bfloat16"]),
        (["--tokens", "512", "--dtype", "fp16,tf32"], (512,), ["float16", "tf32"]),
    ],
)
def test_the_layers_kernels_are_compiled(
    tmp_path: Path,
    builds: list[Build],
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
    rows: tuple[int, ...],
    maths: list[str],
) -> None:
    folder = folder_with(tmp_path, LLAMA)
    assert run(["warm", "--model", str(folder), "--chip", "h100", *more], monkeypatch) == 0
    assert set(builds) == set().union(*(expected(rows, math) for math in maths))


def test_biases_and_residuals(tmp_path: Path, builds: list[Build], monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["warm", "--model", str(folder_with(tmp_path, LLAMA)), "--tokens", "512", "--chip", "h100"]
    assert run([*words, "--with-c"], monkeypatch) == 0
    assert set(builds) == expected((512,), "bfloat16", with_c=True)


def test_a_type_that_is_none(
    tmp_path: Path, builds: list[Build], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["warm", "--model", str(folder_with(tmp_path, LLAMA | {"torch_dtype": "auto"})), "--chip", "h100"]
    assert run(words, monkeypatch) == 2
    assert "the type that its config.json names: must be one of" in capsys.readouterr().err
    assert builds == []
    assert run([*words, "--dtype", "bf16"], monkeypatch) == 0


@pytest.mark.parametrize("tokens", ["0", "-1", "1,,2", "many", "1.5", "²"])
def test_tokens_are_counts(
    tmp_path: Path,
    builds: list[Build],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tokens: str,
) -> None:
    folder = folder_with(tmp_path, LLAMA)
    assert run(["warm", "--model", str(folder), f"--tokens={tokens}"], monkeypatch) == 2
    assert f"--tokens: must be whole numbers of at least 1, separated by commas; got {tokens!r}" in (
        capsys.readouterr().err
    )
    assert builds == []


def test_tokens_belong_to_a_model(
    builds: list[Build], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["warm", "--tokens", "16"], monkeypatch) == 2
    assert "--tokens: belongs to --model; got '16' and no model" in capsys.readouterr().err
    assert builds == []
