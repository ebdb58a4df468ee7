// A tile that leaves while the next one's first products run: its sums wait as the 2-byte elements of D that they become, in half
// of the registers. Tensor cores idle between two tiles only for as long as that takes.
#pragma once

#include "wgmma_store.cuh"  // first: it brings the element types

template <int Cols, int Patches> struct Held {
  unsigned pairs[Patches * Cols / 4];
  int row, col, inner, outer;

  // All sums of a warp, whose first row and column these are.
  __device__ __forceinline__ void take(const Sum* sums, int first_row, int first_col, int inner_matrix, int outer_matrix) {
    row = first_row, col = first_col, inner = inner_matrix, outer = outer_matrix;
#pragma unroll
    for (int i = 0; i < Patches * Cols / 4; ++i) pairs[i] = Patch<Cols>::pair(sums + 2 * i);
  }

  template <typename Buffer, int Buffers> __device__ __forceinline__ void store(const TensorMap* map, Buffer (&buffers)[Buffers]) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < Patches; ++i) {
      if (lane == 0) tma_store_wait_read<Buffers - 1>();
      __syncwarp();
      buffers[i % Buffers].lay_pairs(pairs + i * (Cols / 4));
      proxy_fence();
      __syncwarp();
      if (lane != 0) continue;
      const int next = col + i * Cols;
      tma_store(map, D_TURNED ? row : next, D_TURNED ? next : row, inner, outer, buffers[i % Buffers].bytes);
      tma_store_commit();
    }
  }
};
