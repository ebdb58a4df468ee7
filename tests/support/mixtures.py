"""A mixture of experts as transformers 5 has those of Mixtral and Qwen3-MoE: a router, and the weights of all
experts in two parameters, multiplied one expert at a time.
"""

from __future__ import annotations

from typing import Any

import torch


class StockExperts(torch.nn.Module):  # type: ignore[misc]
    """With what transformers' `use_experts_implementation` adds to such classes."""

    has_gate, has_bias = True, False

    def __init__(self, count: int, features: int, inner: int, transposed: bool = False) -> None:
        super().__init__()
        up, down = torch.randn(count, 2 * inner, features) / 4, torch.randn(count, features, inner) / 4
        self.is_transposed = transposed
        self.gate_up_proj = torch.nn.Parameter(up.mT.contiguous() if transposed else up)
        self.down_proj = torch.nn.Parameter(down.mT.contiguous() if transposed else down)
        self.act_fn = torch.nn.functional.silu

    def _apply_gate(self, gate_up: Any) -> Any:
        gate, up = gate_up.chunk(2, dim=-1)
        return self.act_fn(gate) * up

    def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        result = torch.zeros_like(hidden_states)
        for number in range(len(self.gate_up_proj)):
            up, down = self.gate_up_proj[number], self.down_proj[number]
            up, down = (up, down) if self.is_transposed else (up.mT, down.mT)
            token, place = torch.where(top_k_index == number)
            rows = self._apply_gate(hidden_states[token] @ up) @ down
            rows = rows * top_k_weights[token, place, None]
            result = result.index_add(0, token, rows.to(result.dtype))
        return result


class StockBiasedExperts(StockExperts):
    """With the biases and the gate of gpt-oss."""

    has_bias = True

    def __init__(self, count: int, features: int, inner: int) -> None:
        super().__init__(count, features, inner, transposed=True)
        self.gate_up_proj_bias = torch.nn.Parameter(torch.randn(count, 2 * inner))
        self.down_proj_bias = torch.nn.Parameter(torch.randn(count, features))

    def _apply_gate(self, gate_up: Any) -> Any:
        gate, up = gate_up[..., ::2].clamp(max=7), gate_up[..., 1::2].clamp(-7, 7)
        return (up + 1) * gate * torch.sigmoid(gate * 1.702)

    def forward(self, hidden_states: Any, top_k_index: Any, top_k_weights: Any) -> Any:
        result = torch.zeros_like(hidden_states)
        for number in range(len(self.gate_up_proj)):
            token, place = torch.where(top_k_index == number)
            up = hidden_states[token] @ self.gate_up_proj[number] + self.gate_up_proj_bias[number]
            rows = self._apply_gate(up) @ self.down_proj[number] + self.down_proj_bias[number]
            result = result.index_add(0, token, rows * top_k_weights[token, place, None])
        return result


class StockMixture(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, count: int, top_k: int, features: int, inner: int, transposed: bool = False) -> None:
        super().__init__()
        self.top_k, self.gate = top_k, torch.nn.Linear(features, count, bias=False)
        self.experts = StockExperts(count, features, inner, transposed)

    def forward(self, x: Any) -> Any:
        tokens = x.flatten(0, -2)
        shares = torch.nn.functional.softmax(self.gate(tokens).float(), dim=-1)
        weights, index = shares.topk(self.top_k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        return self.experts(tokens, index, weights).view_as(x)
