// Lesson:   neighbouring threads should load neighbouring elements: a warp's request is then a few whole
//           sectors.
// From:     01_uncoalesced
// Change:   thread x walks along the columns of C.
// Predicts: a load of A is one element for all lanes (1 sector). A load of B is 32 neighbours (4 sectors of
//           32 bytes). So a request has 2.5 sectors in place of 16.5: about 6x. Then the limit is the rate of
//           loads: two for each fma.
// Measured: 4096^3: 5.43 TFLOP/s, 10.6 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   one request of A at step k             of B, lanes 0 1 2 3
//   | . a . . |  all lanes: the same       | . . . . |
//   | . . . . |                            | b b b b |  all lanes: one run of memory
#include "common.cuh"
#include "config.cuh"

// Config: BM 32, BN 32
static_assert(BN % 32 == 0, "a warp is 32 columns of one row of C: that is the lesson");

extern "C" __global__ void __launch_bounds__(BM* BN)
    coalesced(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
              i64 ldc) {
  // Where am I: the tile of C and my element in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x / BN, thread_col = threadIdx.x % BN;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my row of A, my column of B, clamped to the matrix.
  const int a_row = min_of(row, M - 1);
  const int b_col = min_of(col, N - 1);

  // All K products, straight from global memory.
  Acc acc = 0;
  for (int k = 0; k < K; ++k) acc += Acc(A[a_row * lda + k]) * Acc(B[k * ldb + b_col]);

  // Store.
  store(C, ldc, row, col, M, N, alpha, acc, beta);
}
