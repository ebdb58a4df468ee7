// Lesson:   a TM x TN tile per thread reads TM + TN elements for TM * TN fmas: the reuse grows with its side.
// From:     07_vector_loads
// Change:   tiles of C are 64x64x16, with 4x4 results a thread. A step of k is an outer product of a column
//           and a row.
// Predicts: elements read from shared memory for an fma fall from 5/4 to 8/16, loads from 40/128 to 32/256.
//           Bytes from global memory for an fma halve. About 2x. Shared memory is still the limit.
// Measured: 4096^3: 32.1 TFLOP/s, 62.4 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//              b0 b1 b2 b3     one Four of Bs
//         a0 |  .  .  .  . |
//         a1 |  .  .  .  . |   16 fmas for
//         a2 |  .  .  .  . |   8 elements
//         a3 |  .  .  .  . |
//   four rows of As
#include "common.cuh"
#include "config.cuh"

// Config: BM 64, BN 64, BK 16, TM 4, TN 4
constexpr int THREADS = (BM / TM) * (BN / TN);
static_assert(BM * BK == 4 * THREADS && BK * BN == 4 * THREADS, "a thread loads one Four of each tile");
static_assert(TM % 4 == 0 && TN % 4 == 0 && BM % TM == 0 && BN % TN == 0,
              "thread tiles are whole Fours and divide C's");

extern "C" __global__ void __launch_bounds__(THREADS)
    thread_tile(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                i64 ldc) {
  // Where am I: the tile of C and my TM x TN elements in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x / (BN / TN) * TM, thread_col = threadIdx.x % (BN / TN) * TN;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my part of the tiles of A and B, clamped to the matrix.
  const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  const T* a_gmem = A + min_of(tile_row + a_row, M - 1) * lda + a_col;
  const int b_first = clamp4(tile_col + b_col, N - 1), b_last = N - 1 - b_first;
  const T* b_gmem = B + b_row * ldb + b_first;
  // padded: the rows that a warp reads together lie in different banks
  alignas(16) __shared__ T As[BM][BK + 4];
  alignas(16) __shared__ T Bs[BK][BN];

  // K % BK products first, straight from global memory: the loop below sees whole tiles only.
  Acc acc[TM][TN] = {}, a_frag[TM], b_frag[TN];
  const int k_whole = K % BK;
  first_products<4, 4>(acc, k_whole, A, lda, row, M, B, ldb, col, N);

  Four<T> a_next, b_next;
  a_gmem += k_whole, b_gmem += k_whole * ldb;
  if (k_whole < K) {
    a_next = load4(a_gmem, 3);
    b_next = load4(b_gmem, b_last);
  }
  for (int k0 = k_whole; k0 < K; k0 += BK) {
    // Load: this tile from registers to shared memory, the next one from global memory to registers.
    four_at(&As[a_row][a_col]) = a_next;
    four_at(&Bs[b_row][b_col]) = b_next;
    __syncthreads();  // the tile is whole before anyone reads it
    a_gmem += BK, b_gmem += BK * ldb;
    if (k0 + BK < K) {
      a_next = load4(a_gmem, 3);
      b_next = load4(b_gmem, b_last);
    }

    // Compute.
#pragma unroll
    for (int k = 0; k < BK; ++k) {
#pragma unroll
      for (int m = 0; m < TM; ++m) a_frag[m] = Acc(As[thread_row + m][k]);
      read_fragment<4>(b_frag, &Bs[k][thread_col]);
      outer_product(acc, a_frag, b_frag);
    }
    __syncthreads();  // everyone is done with the tile before the next one overwrites it
  }

  // Store.
  store_tile<4, 4>(C, ldc, row, col, M, N, alpha, acc, beta);
}
