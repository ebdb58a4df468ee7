"""The linear layers of a transformer, by the config.json that its weights come with."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from lapidist.errors import ArgumentError

# One size has several names, by the age and the family of a model.
HIDDEN = "hidden_size", "n_embd", "d_model"
INTERMEDIATE = "intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size"
HEADS = "num_attention_heads", "n_head", "num_heads"
KEY_VALUE_HEADS = "num_key_value_heads", "num_kv_heads"
HEAD_SIZE = "head_dim", "d_kv"
EXPERT, VOCABULARY, TYPE = ("moe_intermediate_size",), ("vocab_size",), ("dtype", "torch_dtype")
LATENT = "kv_lora_rank"  # of attention whose projections have other shapes
OTHERWISE = "Set LAPIDIST_SHAPES while it runs, and warm --shapes"


class Layer(NamedTuple):
    """A linear layer: rows of `inputs` numbers become rows of `outputs`."""

    name: str
    outputs: int
    inputs: int


class Model(NamedTuple):
    """A model's linear layers without repetitions, and the type of its weights if its config names one."""

    layers: list[Layer]
    dtype: str | None


def model_of(name: str) -> Model:
    """The layers of a model in a local folder, or in the cache of Hugging Face's hub."""
    path = config_path(name)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ArgumentError(
            f"--model: must have a config.json that can be read; {str(path)!r} cannot ({error})."
            " Name the folder of another model"
        ) from error
    config = content.get("text_config", content) if isinstance(content, dict) else content
    if not isinstance(config, dict):
        raise ArgumentError(
            f"--model: its config.json must hold an object; {str(path)!r} holds {type(config).__name__}."
            " Name the folder of another model"
        )
    named = first_of(config, TYPE) or first_of(content, TYPE)
    return Model(layers_of(Sizes(config, path)), named if isinstance(named, str) else None)


def config_path(name: str) -> Path:
    path = Path(name)
    if path.is_dir():
        return path / "config.json"
    if path.is_file():
        return path
    folder = hub_cache() / f"models--{name.replace('/', '--')}"
    try:
        revision = (folder / "refs" / "main").read_text(encoding="utf-8").strip()
        return folder / "snapshots" / revision / "config.json"
    except (OSError, ValueError):
        raise ArgumentError(
            f"--model: must be a model's folder, its config.json, or a name in {folder.parent}; got {name!r}."
            " Download it first: nothing is loaded from the network"
        ) from None


def hub_cache() -> Path:
    """Where Hugging Face's hub keeps what was downloaded."""
    home = os.environ.get("HF_HOME") or "~/.cache/huggingface"
    return Path(os.environ.get("HF_HUB_CACHE") or Path(home) / "hub").expanduser()


def first_of(config: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


class Sizes:
    """The sizes that a config.json names. Each is checked when it is read."""

    def __init__(self, config: dict[str, Any], path: Path) -> None:
        self.config, self.path = config, path
        if LATENT in config:
            raise ArgumentError(
                f"--model: must project queries, keys and values from rows of {HIDDEN[0]}; {str(path)!r} has"
                f" {LATENT}. {OTHERWISE}"
            )

    def __call__(self, names: tuple[str, ...], default: int | None = None) -> int:
        size = first_of(self.config, names)
        size = default if size is None else size
        if size is None or type(size) is not int or size < 1:
            raise ArgumentError(
                f"--model: its config.json must give {names[0]} as a whole number of at least 1;"
                f" {str(self.path)!r} has {size!r}. {OTHERWISE}"
            )
        return size


def layers_of(sizes: Sizes) -> list[Layer]:
    """The layers alone, as transformers runs them, and joined, as servers do: qkv, and gate with up."""
    hidden, heads = sizes(HIDDEN), sizes(HEADS)
    of_head = sizes(HEAD_SIZE, hidden // heads)
    queries, keys = heads * of_head, sizes(KEY_VALUE_HEADS, heads) * of_head
    layers = [
        Layer("q", queries, hidden),
        Layer("k, v", keys, hidden),
        Layer("qkv", queries + 2 * keys, hidden),
        Layer("o", hidden, queries),
        Layer("lm_head", sizes(VOCABULARY), hidden),
    ]
    widths = [sizes(INTERMEDIATE, 4 * hidden)]
    widths += [sizes(EXPERT)] if first_of(sizes.config, EXPERT) is not None else []
    for width in widths:
        layers += [
            Layer("gate, up", width, hidden),
            Layer("gate with up", 2 * width, hidden),
            Layer("down", hidden, width),
        ]
    return list({layer[1:]: layer for layer in reversed(layers)}.values())[::-1]
