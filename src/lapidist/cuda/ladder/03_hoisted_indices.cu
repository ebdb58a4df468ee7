// Lesson:   an index that grows by a constant is a pointer that is bumped, not a product computed each time.
// From:     02_coalesced
// Change:   the row of A and the column of B are two pointers in registers, moved on by 1 and by ldb.
// Predicts: 1.0x to 1.2x. The compiler already hoists the row of A and most of the column's product. For 16
//           fmas its main loop has 112 instructions in 02 and 89 here. But the 32 loads among them are the
//           limit in both.
// Measured: 4096^3: 5.55 TFLOP/s, 10.8 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   per step, as 02 is written                    here
//   A + a_row * lda + k        multiply, add      a_gmem += 1      add
//   B + k * ldb + b_col        multiply, add      b_gmem += ldb    add
#include "common.cuh"
#include "config.cuh"

// Config: BM 32, BN 32
static_assert(BN % 32 == 0, "a warp is 32 columns of one row of C, as in 02");

extern "C" __global__ void __launch_bounds__(BM* BN)
    hoisted_indices(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                    i64 ldc) {
  // Where am I: the tile of C and my element in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x / BN, thread_col = threadIdx.x % BN;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my row of A, my column of B, clamped to the matrix.
  const T* a_gmem = A + min_of(row, M - 1) * lda;
  const T* b_gmem = B + min_of(col, N - 1);

  // All K products, straight from global memory.
  Acc acc = 0;
  for (int k = 0; k < K; ++k, a_gmem += 1, b_gmem += ldb) acc += Acc(*a_gmem) * Acc(*b_gmem);

  // Store.
  store(C, ldc, row, col, M, N, alpha, acc, beta);
}
