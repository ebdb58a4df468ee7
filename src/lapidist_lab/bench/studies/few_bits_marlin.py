"""Marlin, a kernel of others for rows of float16 by int4 with factors of 128: a peer of few_bits.

Its sources are those of a checkout that the command line names, compiled by nvcc.
"""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from lapidist.device import Device
from lapidist.errors import ArgumentError, DeviceError
from lapidist_lab.bench.protocol.peers import build_peer

SOURCE = Path(__file__).with_suffix(".cu")
KERNEL = Path("marlin") / "marlin_cuda_kernel.cu"
TILE = 16
# An H200 ended its copies of codes with this hint to the L2 by "illegal instruction". So they go without.
HINT, WITHOUT = ".L2::cache_hint [%0], [%1], %2, p;", " [%0], [%1], %2;"
PARALLEL = 16  # of 64 rows each: it keeps a number for each of them and 128 columns


def library(folder: Path, device: Device) -> ctypes.CDLL:
    """Compiled once, before anything is measured."""
    if not (folder / KERNEL).is_file():
        raise ArgumentError(
            f"--marlin: must be a checkout of github.com/IST-DASLab/marlin; {folder} has no {KERNEL}."
            " Clone it, or leave the option out"
        )
    if not shutil.which("nvcc"):
        raise DeviceError("--marlin: nvcc compiles it, which is not on the PATH. Install CUDA's toolkit")
    with TemporaryDirectory() as room:
        copy = Path(room) / KERNEL
        copy.parent.mkdir()
        copy.write_text((folder / KERNEL).read_text().replace(HINT, WITHOUT))
        try:
            return build_peer("marlin", Path(room), copy, device, SOURCE)
        except subprocess.CalledProcessError as error:
            first = next((line for line in error.stderr.splitlines() if "error" in line), error.stderr)
            raise DeviceError(f"--marlin: nvcc did not compile {folder / KERNEL}: {first}") from None


def codes_in_order(codes: Any) -> Any:
    """Codes (k, n), 8 more than their numbers, as it reads them: words (k / 16, 2 n) of eight codes each.

    Of 16 steps of k by 64 columns, a lane has four words: of each 16 columns those of fragments of mma.sync.
    """
    k, n = codes.shape
    tiles = codes.reshape(k // TILE, TILE, n // TILE, TILE).transpose(1, 2).reshape(-1, 4 * TILE * TILE)
    device = codes.device
    lane = torch.arange(32, device=device)[:, None, None, None]
    tile = torch.arange(4, device=device)[:, None, None]
    half = torch.arange(2, device=device)[:, None]
    step = torch.tensor([0, 1, 8, 9], device=device)
    indices = 256 * tile + 16 * (2 * (lane % 4) + step) + lane // 4 + 8 * half
    turns = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7], device=device)  # pairs lie 16 bits apart
    chosen = tiles[:, indices.reshape(-1, 8)[:, turns].reshape(-1)].reshape(-1, 8).int()
    words = chosen[:, 0].clone()
    for place in range(1, 8):
        words |= chosen[:, place] << 4 * place
    return words.reshape(k // TILE, 2 * n)


def factors_in_order(factors: Any) -> Any:
    """Factors (k / 128, n): of 64 columns those eight apart lie side by side."""
    return factors.reshape(-1, 8, 8).transpose(1, 2).reshape(factors.shape).half().contiguous()


def room_of(n: int) -> Any:
    return torch.zeros(n // 128 * PARALLEL, dtype=torch.int32, device="cuda")


def multiply(built: ctypes.CDLL, x: Any, codes: Any, factors: Any, out: Any, room: Any) -> None:
    """All of float16 but the codes; it starts on the current stream."""
    (m, k), n = x.shape, out.shape[1]
    arrays = [ctypes.c_void_p(array.data_ptr()) for array in (x, codes, out, factors)]
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    room_and_stream = ctypes.c_void_p(room.data_ptr()), k // len(factors), x.device.index, stream
    status = built.marlin_multiply(*arrays, m, n, k, *room_and_stream)
    if status:
        raise DeviceError(f"peer Marlin: answered status {status} for {m} x {n} x {k}")
