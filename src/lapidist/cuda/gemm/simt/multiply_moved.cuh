// The main loop for tiles that pass through registers.
//
//   step   | barrier | next tile -> registers | fmas on this one, k by k | registers -> the other buffer
#pragma once

#include "config.cuh"
#include "gemm/simt/move.cuh"
#include "gemm/simt/place.cuh"

// Loads of A and B, one tile of each at a time.
struct Movers {
  Mover<BM, A_CONTIGUOUS, A_VECTOR> a;
  Mover<BN, B_CONTIGUOUS, B_VECTOR> b;

  __device__ __forceinline__ Movers(const Product& p, const Task& task)
      : a(task.A + p.a.to_matrix(task.inner, task.outer) + task.k * p.a.col, task.row, p.M, p.a.row, p.a.col,
          GATHER_A ? task.modes.a_rows : nullptr),
        b(task.B + p.b.to_matrix(task.inner, task.outer) + task.k * p.b.row, task.col, p.N, p.b.col, p.b.row,
          GATHER_B ? task.modes.b_cols : nullptr) {}
  __device__ __forceinline__ void load(int k_left) {
    a.load(BK <= k_left, k_left);
    b.load(BK <= k_left, k_left);
  }
  __device__ __forceinline__ void store(const Tiles& tiles, int buffer) const {
    a.store(tiles.A[buffer]);
    b.store(tiles.B[buffer]);
  }
};

// One tile of k.
__device__ __forceinline__ void multiply_tile(Acc (&acc)[TM][TN], const Tiles& tiles, int buffer,
                                              const Position& position) {
#pragma unroll(AT_ONCE)
  for (int k = 0; k < STEPS; ++k) {
    Acc a[TM], b[TN];
    read_fours<16>(a, tiles.A[buffer][position.slice * STEPS + k], position.row);
    read_fours<32>(b, tiles.B[buffer][position.slice * STEPS + k], position.col);
    outer_product(acc, a, b);
  }
}

// All of a task's k.
__device__ __forceinline__ void multiply(const Product& p, const Task& task, const Tiles& tiles,
                                         const Position& position, Acc (&acc)[TM][TN]) {
  Movers movers(p, task);
  if (task.count > 0) {
    movers.load(task.count);
    movers.store(tiles, 0);
  }
  int buffer = 0;
  for (int k0 = 0; k0 < task.count; k0 += BK, buffer ^= 1) {
    __syncthreads();  // this buffer is complete, and no thread reads the other one any more
    const bool more = k0 + BK < task.count;
    if (more) movers.load(task.count - k0 - BK);  // arrives while this tile is computed
    multiply_tile(acc, tiles, buffer, position);
    if (more) movers.store(tiles, buffer ^ 1);
  }
}
