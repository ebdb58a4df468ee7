// Lesson:   a load from shared memory takes about 30 cycles: ask for the next operands before using these.
// From:     12_double_buffer
// Change:   two sets of fragment registers. The fragments of k + 1 are read while those of k are multiplied,
//           across the barrier too. So the store of the next tile moves before the last step of this one.
// Predicts: 1.0x to 1.1x. Four warps a scheduler hide much of the wait, and the compiler moves loads up by
//           itself. But it never moves them across the barrier, where all warps now wait with fmas at hand.
// Measured: 4096^3: 49.1 TFLOP/s, 95.5 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   read    | k = 0 | k = 1 | k = 2 | ... | barrier, k = 0 of the next tile |
//   fma             | k = 0 | k = 1 | ... | k = BK - 1                      | k = 0 ...
#include "common.cuh"
#include "config.cuh"

// Config: BM 128, BN 128, BK 8, WM 32, WN 64, TM 8, TN 8
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int BUFFERS = 2;                                    // one tile is read while the other is written
constexpr int BLOCKS = TM * TN * sizeof(Acc) <= 256 ? 2 : 1;  // on an SM at once; it has 65536 registers
constexpr int LANES_M = WM / TM;
constexpr int LANES_N = WN / TN;
constexpr int ROW_STEP = LANES_M * 4;  // from one group of four rows of a thread to the next
constexpr int COL_STEP = LANES_N * 4;
static_assert(BM * BK == 4 * THREADS && BK * BN == 4 * THREADS, "a thread loads one Four of each tile");
static_assert(BK % 2 == 0, "the two fragment buffers take turns: tile after tile starts with the first");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of C");
static_assert(TM % 4 == 0 && TN % 4 == 0 && WM % TM == 0 && WN % TN == 0,
              "thread tiles are whole Fours and divide a warp's");
static_assert(LANES_M * LANES_N == 32 && LANES_M % 2 == 0 && LANES_N % 2 == 0, "32 lanes, paired both ways");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    fragment_prefetch(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta,
                      T* C, i64 ldc) {
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
  const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  const T* a_gmem = A + min_of(tile_row + a_row, M - 1) * lda + a_col;
  const int b_first = clamp4(tile_col + b_col, N - 1), b_last = N - 1 - b_first;
  const T* b_gmem = B + b_row * ldb + b_first;
  alignas(16) __shared__ T As[BUFFERS][BK][BM + 4];  // transposed; padded, so that a warp stores to 32 banks
  alignas(16) __shared__ T Bs[BUFFERS][BK][BN];

  // K % BK products first, straight from global memory: the loop below sees whole tiles only.
  Acc acc[TM][TN] = {}, a_frag[2][TM], b_frag[2][TN];
  const int k_whole = K % BK;
  first_products<ROW_STEP, COL_STEP>(acc, k_whole, A, lda, row, M, B, ldb, col, N);

  Four<T> a_next, b_next;
  a_gmem += k_whole, b_gmem += k_whole * ldb;
  if (k_whole < K) {
    a_next = load4(a_gmem, 3);
    b_next = load4(b_gmem, b_last);
#pragma unroll
    for (int i = 0; i < 4; ++i) As[0][a_col + i][a_row] = a_next.at[i];
    four_at(&Bs[0][b_row][b_col]) = b_next;
    __syncthreads();  // the tile is whole before anyone reads it
    read_fragment<ROW_STEP>(a_frag[0], &As[0][0][thread_row]);
    read_fragment<COL_STEP>(b_frag[0], &Bs[0][0][thread_col]);
  }
  for (int k0 = k_whole, stage = 0; k0 < K; k0 += BK) {
    // Load: the next tile from global memory to registers.
    a_gmem += BK, b_gmem += BK * ldb;
    if (k0 + BK < K) {
      a_next = load4(a_gmem, 3);
      b_next = load4(b_gmem, b_last);
    }

    // Compute: the fragments of k, while those of k + 1 are on their way from shared memory.
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      if (k == BK - 1) {  // k + 1 is in the next tile
        stage ^= 1;
#pragma unroll
        for (int i = 0; i < 4; ++i) As[stage][a_col + i][a_row] = a_next.at[i];
        four_at(&Bs[stage][b_row][b_col]) = b_next;
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
