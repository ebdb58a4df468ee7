// Lesson:   memory can be copied to shared memory without a register or a store instruction, several tiles
//           ahead.
// From:     13_fragment_prefetch
// Change:   cp.async brings the tiles, STAGES - 1 ahead of the one in use. A is transposed on the way, 4
//           bytes at a time.
// Predicts: three tiles ahead instead of one, none of them in registers. Five copies replace two loads and
//           five stores, but four rows of A need four 64-bit pointers. So the main loop grows from 586 to 605
//           instructions for 512 fmas. 0.97x to 1.05x. The registers saved allow larger thread tiles (8x16:
//           1024 fmas in 1135 instructions).
// Measured: 4096^3: 48.0 TFLOP/s, 93.3 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   stage   0        1        2        3         one step later
//           in use   there    coming   coming    freed, in use, there or coming, coming
//   a warp copies A: 8 columns (k) of 4 rows (m): whole sectors of 32 bytes; bank 4 k + m of As, as BM + 4 is 4 mod 32
#include "common.cuh"
#include "config.cuh"
#include "ptx.cuh"

// Config: BM 128, BN 128, BK 8, WM 32, WN 64, TM 8, TN 8, STAGES 4;
//         fp64: BM 64, STAGES 3
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int BLOCKS = TM * TN * sizeof(Acc) <= 256 ? 2 : 1;  // on an SM at once; it has 65536 registers
constexpr int LANES_M = WM / TM;
constexpr int LANES_N = WN / TN;
constexpr int ROW_STEP = LANES_M * 4;  // from one group of four rows of a thread to the next
constexpr int COL_STEP = LANES_N * 4;
constexpr int A_ROWS = THREADS / BK;        // rows of A that one copy by all threads covers
constexpr int B_ROWS = THREADS / (BN / 4);  // rows of B
static_assert(THREADS % BK == 0 && BM % A_ROWS == 0,
              "all threads copy whole rows of A, an element each at a time");
static_assert(THREADS % (BN / 4) == 0 && BK % B_ROWS == 0,
              "all threads copy whole rows of B, a Four each at a time");
static_assert(STAGES >= 3, "one tile is read, one is freed, one at least is under way");
static_assert(BK % 2 == 0, "the two fragment buffers take turns: tile after tile starts with the first");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of C");
static_assert(TM % 4 == 0 && TN % 4 == 0 && WM % TM == 0 && WN % TN == 0,
              "thread tiles are whole Fours and divide a warp's");
static_assert(LANES_M * LANES_N == 32 && LANES_M % 2 == 0 && LANES_N % 2 == 0, "32 lanes, paired both ways");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    async_pipeline(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
                   i64 ldc) {
  // Where am I: the tile of C and my TM x TN elements in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int lane_row = lane / 2 % 2 + lane / (2 * LANES_N) * 2,
            lane_col = lane % 2 + lane / 4 % (LANES_N / 2) * 2;
  const int thread_row = warp / (BN / WN) * WM + lane_row * 4,
            thread_col = warp % (BN / WN) * WN + lane_col * 4;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  // What I load: my part of the tiles of A and B, clamped to the matrix.
  const int a_row = threadIdx.x / BK, a_col = threadIdx.x % BK;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  const T* a_gmem[BM / A_ROWS];
#pragma unroll
  for (int i = 0; i < BM / A_ROWS; ++i)
    a_gmem[i] = A + min_of(tile_row + a_row + i * A_ROWS, M - 1) * lda + K % BK + a_col;
  const int b_first = clamp4(tile_col + b_col, N - 1), b_last = N - 1 - b_first;
  const T* b_gmem = B + (K % BK + b_row) * ldb + b_first;
  alignas(16) __shared__ T As[STAGES][BK][BM + 4];  // transposed; padded, so that a warp stores to 32 banks
  alignas(16) __shared__ T Bs[STAGES][BK][BN];

  // K % BK products first, straight from global memory: the loop below sees whole tiles only.
  Acc acc[TM][TN] = {}, a_frag[2][TM], b_frag[2][TN];
  const int k_whole = K % BK;
  first_products<ROW_STEP, COL_STEP>(acc, k_whole, A, lda, row, M, B, ldb, col, N);

  const auto copy_tile = [&](int stage) {
#pragma unroll
    for (int i = 0; i < BM / A_ROWS; ++i) {
      copy_async(&As[stage][a_col][a_row + i * A_ROWS], a_gmem[i]);
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
    read_fragment<ROW_STEP>(a_frag[0], &As[0][0][thread_row]);
    read_fragment<COL_STEP>(b_frag[0], &Bs[0][0][thread_col]);
  }
  for (int k0 = k_whole, stage = 0, freed = STAGES - 1; k0 < K; k0 += BK) {
    // Load: the tile STAGES - 1 steps ahead, from global to shared memory.
    if (K - k0 > (STAGES - 1) * BK) copy_tile(freed);
    cp_async_commit();

    // Compute: the fragments of k, while those of k + 1 are on their way from shared memory.
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      if (k == BK - 1) {  // k + 1 is in the next tile
        freed = stage;
        stage = k0 + BK == K || stage == STAGES - 1 ? 0 : stage + 1;  // after the last tile any will do
        cp_async_wait<STAGES - 2>();
        __syncthreads();  // the tile is whole, and everyone has read the last of the one before
      }
      read_fragment<ROW_STEP>(a_frag[(k + 1) % 2], &As[stage][(k + 1) % BK][thread_row]);
      read_fragment<COL_STEP>(b_frag[(k + 1) % 2], &Bs[stage][(k + 1) % BK][thread_col]);
      outer_product(acc, a_frag[k % 2], b_frag[k % 2]);
    }
  }

  // Store.
  store_tile<ROW_STEP, COL_STEP>(C, ldc, row, col, M, N, alpha, acc, beta);
}
