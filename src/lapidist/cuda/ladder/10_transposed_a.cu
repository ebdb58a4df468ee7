// Lesson:   what a warp reads at once should be one run of shared memory.
// From:     09_large_tile
// Change:   As is stored transposed, so a column of A is two Fours. A thread's 8x8 results are four 4x4,
//           ROW_STEP and COL_STEP apart. So neighbouring lanes read neighbouring Fours.
// Predicts: no conflicts are left in the main loop. Its 512 fmas and 32 loads stay as they are. 1.2x to 1.4x
//           (V100: 1.44x).
// Measured: 4096^3: 48.8 TFLOP/s, 94.9 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   the results of thread 0 in C            lanes 0 1 2 3 read their first Four: no bank twice
//   | 0 0 . . . . 0 0 . . . . |             | 0 0 0 0 1 1 1 1 2 2 2 2 3 3 3 3 . . |
//   | 0 0 . . . . 0 0 . . . . |
//   | . . . . . . . . . . . . |             a later load reads the second, COL_STEP further
//   | 0 0 . . . . 0 0 . . . . |
//   | 0 0 . . . . 0 0 . . . . |
#include "common.cuh"
#include "config.cuh"

// Config: BM 128, BN 128, BK 8, TM 8, TN 8
constexpr int THREADS = (BM / TM) * (BN / TN);
constexpr int BLOCKS = TM * TN * sizeof(Acc) <= 256 ? 2 : 1;  // on an SM at once; it has 65536 registers
constexpr int ROW_STEP = BM / (TM / 4);  // from one group of four rows of a thread to the next
constexpr int COL_STEP = BN / (TN / 4);
static_assert(BM * BK == 4 * THREADS && BK * BN == 4 * THREADS, "a thread loads one Four of each tile");
static_assert(TM % 4 == 0 && TN % 4 == 0 && BM % TM == 0 && BN % TN == 0,
              "thread tiles are whole Fours and divide C's");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    transposed_a(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                 i64 ldc) {
  // Where am I: the tile of C and my TM x TN elements in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int thread_row = threadIdx.x / (BN / TN) * 4, thread_col = threadIdx.x % (BN / TN) * 4;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my part of the tiles of A and B, clamped to the matrix.
  const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  const T* a_gmem = A + min_of(tile_row + a_row, M - 1) * lda + a_col;
  const int b_first = clamp4(tile_col + b_col, N - 1), b_last = N - 1 - b_first;
  const T* b_gmem = B + b_row * ldb + b_first;
  alignas(16) __shared__ T As[BK][BM + 4];  // transposed; padded, so that a warp stores to 32 banks
  alignas(16) __shared__ T Bs[BK][BN];

  // K % BK products first, straight from global memory: the loop below sees whole tiles only.
  Acc acc[TM][TN] = {}, a_frag[TM], b_frag[TN];
  const int k_whole = K % BK;
  first_products<ROW_STEP, COL_STEP>(acc, k_whole, A, lda, row, M, B, ldb, col, N);

  Four<T> a_next, b_next;
  a_gmem += k_whole, b_gmem += k_whole * ldb;
  if (k_whole < K) {
    a_next = load4(a_gmem, 3);
    b_next = load4(b_gmem, b_last);
  }
  for (int k0 = k_whole; k0 < K; k0 += BK) {
    // Load: this tile from registers to shared memory, the next one from global memory to registers.
#pragma unroll
    for (int i = 0; i < 4; ++i) As[a_col + i][a_row] = a_next.at[i];
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
      read_fragment<ROW_STEP>(a_frag, &As[k][thread_row]);
      read_fragment<COL_STEP>(b_frag, &Bs[k][thread_col]);
      outer_product(acc, a_frag, b_frag);
    }
    __syncthreads();  // everyone is done with the tile before the next one overwrites it
  }

  // Store.
  store_tile<ROW_STEP, COL_STEP>(C, ldc, row, col, M, N, alpha, acc, beta);
}
