// Products of few rows with weights (or of weights with few columns) for gemm/wgmma.cu. One tile holds all
// lines of one operand, and the other operand is read once: its loads in flight decide the speed.
#pragma once

#include "config.cuh"
#include "gemm/wgmma/operands.cuh"

// bytes that a block prefetches before the last launch has ended; more were slower again
constexpr int AHEAD = 128 * 1024;

// If one tile holds all lines of an operand, boxes have no lines outside the matrix. These would all be
// loaded from one address, a few in a cycle for the whole chip. wgmma still reads the whole tile, so the
// lines that are never loaded are set to zero at the start.
template <bool MnMajor, int Extent>
__device__ __forceinline__ bool loads_part(int lines) {
  return CLUSTER == 1 && !MnMajor && lines < Extent;
}

// Bytes of an operand that TMA loads in an iteration.
template <bool MnMajor, int Extent>
__device__ __forceinline__ int loaded_bytes(int lines) {
  return loads_part<MnMajor, Extent>(lines) ? lines * 128 : tile_bytes(MnMajor, Extent);
}

template <int Extent>
__device__ __forceinline__ void clear_lines(char* tile, int lines) {
#pragma unroll 1
  for (int at = lines * 128 + threadIdx.x * 16; at < Extent * 128; at += SHARERS * 16)
    *reinterpret_cast<int4*>(tile + at) = int4{0, 0, 0, 0};
}

// All consumers call this, while the first tiles are being loaded to other lines of the same stages.
template <bool AMajorM, int ARows, bool BMajorN, int BCols, int Stages, typename Stage>
__device__ __forceinline__ void clear_rests(Stage (&stages)[Stages], int M, int N) {
  const bool of_a = loads_part<AMajorM, ARows>(M), of_b = loads_part<BMajorN, BCols>(N);
  if (!of_a && !of_b) return;
#pragma unroll 1
  for (int i = 0; i < Stages; ++i) {
    if (of_a) clear_lines<ARows>(stages[i].A, M);
    if (of_b) clear_lines<BCols>(stages[i].B, N);
  }
  proxy_fence();
  sharers_barrier();
}

// Whether each part of an operand is read by one tile only, as all `lines` of the other one are in one tile.
template <int Extent>
__device__ __forceinline__ bool read_once(int lines, int matrices) {
  return CLUSTER == 1 && lines <= Extent && matrices == 1;
}

// Prefetch the beginning of a tile's k to the L2.
template <bool MnMajor, int Extent>
__device__ __forceinline__ void prefetch_tiles(const TensorMap* map, int along, int step, int end) {
  constexpr int Bytes = tile_bytes(MnMajor, Extent), Slabs = MnMajor ? Bytes / MN_MAJOR_SLAB : 1;
  for (end = min_of(end, step + AHEAD / Bytes); step < end; ++step)
    for (int slab = 0; slab < Slabs; ++slab) {
      const int line = along + slab * MN_MAJOR_COLS;
      tma_prefetch(map, MnMajor ? line : step * BK, MnMajor ? step * BK : line, 0, 0);
    }
}
