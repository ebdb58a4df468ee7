"""Kernels for numba-cuda 0.30: `python numba_kernels.py` writes their PTX here. Needs no GPU; the tests carry
what it wrote.
"""

import math
from pathlib import Path

from numba import cuda, float32, int32, types

HERE = Path(__file__).parent


def transpose(a, out):
    """Through a padded tile; each element clamped and divided by three."""
    tile = cuda.shared.array((16, 17), float32)
    x, y = cuda.grid(2)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    if y < a.shape[0] and x < a.shape[1]:
        tile[ty, tx] = a[y, x]
    cuda.syncthreads()
    r, c = cuda.blockIdx.x * 16 + ty, cuda.blockIdx.y * 16 + tx
    if r < out.shape[0] and c < out.shape[1]:
        out[r, c] = min(max(tile[tx, ty], float32(-1)), float32(1)) / float32(3)


def histogram(x, counts, low, width):
    i, stride = cuda.grid(1), cuda.gridsize(1)
    while i < x.size:
        place = int32(math.floor((x[i] - low) / width))
        if place >= 0 and place < counts.size:
            cuda.atomic.add(counts, place, 1)
        i += stride


def main():
    matrix, row, counts = (
        types.Array(float32, 2, "C"),
        types.Array(float32, 1, "C"),
        types.Array(int32, 1, "C"),
    )
    for function, arguments in ((transpose, (matrix, matrix)), (histogram, (row, counts, float32, float32))):
        text, _ = cuda.compile_ptx(function, arguments, cc=(9, 0), abi="numba", device=False)
        (HERE / f"numba_{function.__name__}.ptx").write_text(text)


if __name__ == "__main__":
    main()
