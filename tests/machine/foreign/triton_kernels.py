"""Kernels for Triton 3.9: `python triton_kernels.py` writes their PTX here. Needs no GPU; the tests carry
what it wrote.
"""

from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).parent


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    cols = tl.program_id(1) * BN + tl.arange(0, BN)
    ks = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(
            a_ptr + rows[:, None] * K + (k + ks)[None, :],
            mask=(rows[:, None] < M) & (k + ks[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + (k + ks)[:, None] * N + cols[None, :],
            mask=(k + ks[:, None] < K) & (cols[None, :] < N),
            other=0.0,
        )
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], total, mask=(rows[:, None] < M) & (cols[None, :] < N))


@triton.jit
def softmax(x_ptr, y_ptr, n, B: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, B)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * n + at, e / tl.sum(e, axis=0), mask=at < n)


def main():
    aligned = {(place,): [["tt.divisibility", 16]] for place in (0, 1, 2, 4, 5)}
    arrays = {"a_ptr": "*fp16", "b_ptr": "*fp16", "c_ptr": "*fp32", **dict.fromkeys("MNK", "i32")}
    for capability, height in ((80, 32), (90, 64)):
        constants = {"BM": height, "BN": 32, "BK": 32}
        source = ASTSource(
            product, {**arrays, **dict.fromkeys(constants, "constexpr")}, constexprs=constants, attrs=aligned
        )
        write(f"triton_product_{capability}", source, capability, 3)
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "B": "constexpr"}
    write("triton_softmax_90", ASTSource(softmax, signature, constexprs={"B": 512}), 90, 1)


def write(name, source, capability, stages):
    compiled = triton.compile(
        source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4, "num_stages": stages}
    )
    (HERE / f"{name}.ptx").write_text(compiled.asm["ptx"])
    print(name, compiled.metadata.shared, "bytes of shared memory")


if __name__ == "__main__":
    main()
