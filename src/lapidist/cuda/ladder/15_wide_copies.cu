// Lesson:   a copy costs an instruction, however narrow it is: 16 bytes at a time are a quarter of the copies.
// From:     14_async_pipeline
// Change:   A is copied as it lies, a Four of k at a time, and a thread reads four k of a row at once. Nothing
//           is transposed any more.
// Predicts: for 512 fmas two copies in place of five, and one 64-bit pointer to rows of A in place of four.
//           32 loads from shared memory stay. 590 instructions in place of 605. 1.0x to 1.03x.
// Measured: 4096^3: 43.8 TFLOP/s, 85.2 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   rows of As: BK elements of k, and four unused             a thread's Four of a row, for four steps of k
//   row 0 | 0 1 2 3  4 5 6 7  . . . . |  starts in bank 0     k     0    1    2    3    4
//   row 1 | 0 1 2 3  4 5 6 7  . . . . |  bank 12              fmas  a.0  a.1  a.2  a.3  a'.0
//   row 2 | 0 1 2 3  4 5 6 7  . . . . |  bank 24              read                 a' follows each row's last fma
#include "common.cuh"
#include "config.cuh"
#include "ptx.cuh"

// Config: BM 128, BN 128, BK 8, WM 32, WN 64, TM 8, TN 8, STAGES 4;
//         fp64: BM 64, STAGES 3
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int BLOCKS = TM * TN * sizeof(Acc) <= 256 ? 2 : 1;  // on an SM at once; it has 65536 registers
constexpr int LANES_M = WM / TM;
constexpr int LANES_N = WN / TN;
constexpr int COL_STEP = LANES_N * 4;       // from one group of four columns of a thread to the next
constexpr int A_ROWS = THREADS / (BK / 4);  // rows of A that one copy by all threads covers
constexpr int B_ROWS = THREADS / (BN / 4);  // rows of B
static_assert(BK % 4 == 0 && THREADS % (BK / 4) == 0 && BM % A_ROWS == 0,
              "all threads copy whole rows of A, a Four each at a time");
static_assert(THREADS % (BN / 4) == 0 && BK % B_ROWS == 0,
              "all threads copy whole rows of B, a Four each at a time");
static_assert(STAGES >= 3, "one tile is read, one is freed, one at least is under way");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of C");
static_assert(TM % 4 == 0 && TN % 4 == 0 && WM % TM == 0 && WN % TN == 0,
              "thread tiles are whole Fours and divide a warp's");
static_assert(LANES_M * LANES_N == 32 && LANES_M % 2 == 0 && LANES_N % 2 == 0, "32 lanes, paired both ways");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    wide_copies(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                i64 ldc) {
  // Where am I: the tile of C and my TM x TN elements in it, rows LANES_M apart.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int lane_row = lane / 2 % 2 + lane / (2 * LANES_N) * 2,
            lane_col = lane % 2 + lane / 4 % (LANES_N / 2) * 2;
  const int thread_row = warp / (BN / WN) * WM + lane_row, thread_col = warp % (BN / WN) * WN + lane_col * 4;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my part of the tiles of A and B, clamped to the matrix.
  const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  const T* a_gmem[BM / A_ROWS];
#pragma unroll
  for (int i = 0; i < BM / A_ROWS; ++i)
    a_gmem[i] = A + min_of(tile_row + a_row + i * A_ROWS, M - 1) * lda + K % BK + a_col;
  const int b_first = clamp4(tile_col + b_col, N - 1), b_last = N - 1 - b_first;
  const T* b_gmem = B + (K % BK + b_row) * ldb + b_first;
  alignas(16)
      __shared__ T As[STAGES][BM][BK + 4];  // padded: rows that a warp reads together lie in different banks
  alignas(16) __shared__ T Bs[STAGES][BK][BN];

  // K % BK products first, straight from global memory: the loop below sees whole tiles only.
  Acc acc[TM][TN] = {}, b_frag[2][TN];
  Four<T> a[TM];
  const int k_whole = K % BK;
  first_products<LANES_M, COL_STEP, 1>(acc, k_whole, A, lda, row, M, B, ldb, col, N);

  const auto copy_tile = [&](int stage) {
#pragma unroll
    for (int i = 0; i < BM / A_ROWS; ++i) {
      copy4_async(&As[stage][a_row + i * A_ROWS][a_col], a_gmem[i], 3);
      a_gmem[i] += BK;
    }
#pragma unroll
    for (int i = 0; i < BK; i += B_ROWS) copy4_async(&Bs[stage][b_row + i][b_col], b_gmem + i * ldb, b_last);
    b_gmem += BK * ldb;
  };
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (stage * BK < K - k_whole) copy_tile(stage);
    cp_async_commit();  // also when there is no tile left: the wait below counts groups
  }
  if (k_whole < K) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // the tile is whole before anyone reads it
#pragma unroll
    for (int m = 0; m < TM; ++m) a[m] = four_at(&As[0][thread_row + m * LANES_M][0]);
    read_fragment<COL_STEP>(b_frag[0], &Bs[0][0][thread_col]);
  }
  for (int k0 = k_whole, stage = 0, freed = STAGES - 1; k0 < K; k0 += BK) {
    // Load: the tile STAGES - 1 steps ahead, from global to shared memory.
    if (K - k0 > (STAGES - 1) * BK) copy_tile(freed);
    cp_async_commit();

    // Compute: B's fragments of k + 1 come while k is multiplied; a Four of A follows the last use of the one before.
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      if (k == BK - 1) {  // k + 1 is in the next tile
        freed = stage;
        stage = k0 + BK == K || stage == STAGES - 1 ? 0 : stage + 1;  // after the last tile any will do
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // the tile is whole, and everyone has read the last of the one before
      }
      read_fragment<COL_STEP>(b_frag[(k + 1) % 2], &Bs[stage][(k + 1) % BK][thread_col]);
#pragma unroll
      for (int m = 0; m < TM; ++m) {
        multiply_row(acc[m], Acc(a[m].at[k % 4]), b_frag[k % 2]);
        if (k % 4 == 3) a[m] = four_at(&As[stage][thread_row + m * LANES_M][(k + 1) % BK]);
      }
    }
  }

  // Store.
  store_tile<LANES_M, COL_STEP, 1>(C, ldc, row, col, M, N, alpha, acc, beta);
}
