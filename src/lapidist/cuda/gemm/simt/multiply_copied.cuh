// The main loop for tiles that cp.async copies to shared memory.
//
//   step   | fmas on this tile, k by k, and copies to the stage that is free | barrier before those of the last k
#pragma once

#include "config.cuh"
#include "gemm/simt/copy.cuh"
#include "gemm/simt/place.cuh"

// Copies of tiles of A and B, spread over the steps of the tile before: all at once they would delay the
// loads of fragments. Those of four steps are grouped, as the assembler puts three instructions before each
// group.
struct Copiers {
  static constexpr int TOGETHER = 4;  // steps of k
  Copier<BM, A_CONTIGUOUS, A_VECTOR> a;
  Copier<BN, B_CONTIGUOUS, B_VECTOR> b;

  __device__ __forceinline__ Copiers(const Product& p, const Task& task, const Tiles& tiles)
      : a(task.A + p.a.to_matrix(task.inner, task.outer) + task.k * p.a.col, task.row, p.M, p.a.row, p.a.col,
          GATHER_A ? task.modes.a_rows : nullptr, tiles.A),
        b(task.B + p.b.to_matrix(task.inner, task.outer) + task.k * p.b.row, task.col, p.N, p.b.col, p.b.row,
          GATHER_B ? task.modes.b_cols : nullptr, tiles.B) {}
  __device__ __forceinline__ void copy_first(int first_k) {
    a.copy_first(first_k);
    b.copy_first(first_k);
    cp_async_commit();
  }
  // Start the copies that belong to step k of a tile.
  __device__ __forceinline__ void copy(int k, int stage, bool wanted) {
    some_of(a, k, stage, wanted);
    some_of(b, k, stage, wanted);
    if (k == STEPS - 1) cp_async_commit();  // also if nothing was wanted: waits count groups
  }
  template <typename One>
  __device__ __forceinline__ static void some_of(One& copier, int k, int stage, bool wanted) {
#pragma unroll
    for (int i = 0; i < One::COPIES; ++i)  // constant bounds: else the pointers would be in local memory
      if (i * STEPS / One::COPIES / TOGETHER * TOGETHER == k) copier.copy(i, stage, wanted);
  }
};

// The sum of column j lies at j ^ 1, in another register bank than its element of B. Every other row goes
// backwards, so that two rows share an element of B at the turn (bank_order.cuh). This saved a tenth of the
// loop's cycles.
template <int Rows, int Cols>
__device__ __forceinline__ void add_products(Acc (&sums)[Rows][Cols], const Acc (&a)[Rows],
                                             const Acc (&b)[Cols]) {
#pragma unroll
  for (int m = 0; m < Rows; ++m)
#pragma unroll
    for (int n = 0; n < Cols; ++n) {
      const int j = n ^ m % 2 * (Cols - 1);
      sums[m][j ^ 1] += a[m] * b[j];
    }
}

// All of a task's k. Copies are STAGES - 1 tiles ahead; fragments of a k are loaded during the products of
// the last k.
__device__ __forceinline__ void multiply(const Product& p, const Task& task, const Tiles& tiles,
                                         const Position& position, Acc (&acc)[TM][TN]) {
  if (task.count <= 0) return;
  const int first_k = (task.count - 1) % BK + 1;
  int more = (task.count - first_k) / BK;  // tiles that follow the current one
  Copiers copiers(p, task, tiles);
  copiers.copy_first(first_k);
#pragma unroll
  for (int stage = 1; stage < STAGES - 1; ++stage)
#pragma unroll
    for (int k = 0; k < STEPS; ++k) copiers.copy(k, stage, stage <= more);
  Acc sums[TM][TN] = {}, a[2][TM], b[2][TN];
  const auto read = [&](int stage, int k) {
    read_fours<16>(a[k % 2], tiles.A[stage][position.slice * STEPS + k], position.row);
    read_fours<32>(b[k % 2], tiles.B[stage][position.slice * STEPS + k], position.col);
  };
  cp_async_wait<STAGES - 2>();
  __syncthreads();  // the tile is complete before any thread reads it
  read(0, 0);
  for (int stage = 0, freed = STAGES - 1; more >= 0; --more) {
    const bool wanted = more >= STAGES - 1;
#pragma unroll
    for (int k = 0; k < STEPS; ++k) {
      copiers.copy(k, freed, wanted);
      if (k == STEPS - 1) {  // the next k is in the next tile
        freed = stage;
        stage = more == 0 || stage == STAGES - 1 ? 0 : stage + 1;  // after the last tile any stage will do
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // the tile is complete, and all threads have read the last one
      }
      read(stage, (k + 1) % STEPS);
      add_products(sums, a[k % 2], b[k % 2]);
    }
  }
#pragma unroll
  for (int m = 0; m < TM; ++m)
#pragma unroll
    for (int n = 0; n < TN; ++n) acc[m][n] = sums[m][n ^ 1];
}
