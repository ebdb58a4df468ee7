// Lesson:   a warp's 32 threads load together, so what they ask for should lie together.
// From:     nothing: one thread per element of C, no memory but the global one
// Change:   thread x walks down the rows of C. That is the wrong way round, on purpose: this is where we
//           start.
// Predicts: each load of A touches 32 rows, so 32 sectors of 32 bytes. Each load of B touches one. That is
//           16.5 sectors a request on average, for one fma a thread. A few percent of the fp32 limit at most:
//           the L1 is busy, not the fma units.
// Measured: 4096^3: 0.50 TFLOP/s, 1.0 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   one request of A at step k, lanes 0 1 2 3            of B
//   | . a . . . . . . |  lane 0: a sector for 4 bytes     | . . b . |  all lanes: the same element
//   | . a . . . . . . |  lane 1: another
//   | . a . . . . . . |  lane 2: another
//   | . a . . . . . . |  lane 3: another
#include "common.cuh"
#include "config.cuh"

// Config: BM 32, BN 32
static_assert(BM % 32 == 0, "a warp is 32 rows of the tile of C: that is the lesson");

extern "C" __global__ void __launch_bounds__(BM* BN)
    uncoalesced(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                i64 ldc) {
  // Where am I: the tile of C and my element in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x % BM, thread_col = threadIdx.x / BM;
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
