// Products of a few rows with weights (or of weights with a few columns) for gemm/wgmma.cu: one tile holds
// all lines of one operand, and the other is read once. What counts is bytes of that one on their way.
#pragma once

#include "gemm/wgmma/operands.cuh"

// bytes that a block asks for before the launch ahead has ended; more were slower again
constexpr int AHEAD = 128 * 1024;

// Where one tile holds all lines of an operand, boxes have no others: those outside the matrix would all come
// from one place, a few a cycle for the whole chip. Products read the whole tile all the same, so what is
// never loaded of it is zero from the start.
template <bool MnMajor, int Extent>
__device__ __forceinline__ bool loads_part(int lines) {
  return CLUSTER == 1 && !MnMajor && lines < Extent;
}

// Of a step, that TMA brings.
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

// By all consumers, while the first tiles are on their way to other lines of the same stages.
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

// Whether no two tiles read the same part of an operand, as all `lines` of the other one are in one tile.
template <int Extent>
__device__ __forceinline__ bool read_once(int lines, int matrices) {
  return CLUSTER == 1 && lines <= Extent && matrices == 1;
}

// The beginning of a tile's k to the L2.
template <bool MnMajor, int Extent>
__device__ __forceinline__ void prefetch_tiles(const TensorMap* map, int along, int step, int end) {
  constexpr int Bytes = tile_bytes(MnMajor, Extent), Slabs = MnMajor ? Bytes / MN_MAJOR_SLAB : 1;
  for (end = min_of(end, step + AHEAD / Bytes); step < end; ++step)
    for (int slab = 0; slab < Slabs; ++slab) {
      const int line = along + slab * MN_MAJOR_COLS;
      tma_prefetch(map, MnMajor ? line : step * BK, MnMajor ? step * BK : line, 0, 0);
    }
}
