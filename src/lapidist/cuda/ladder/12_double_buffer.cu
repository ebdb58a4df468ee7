// Lesson:   with two buffers nobody waits for the last reader before the next tile is written: one barrier a
//           step.
// From:     11_warp_tile
// Change:   As and Bs have two buffers (stages), used in turn. The second barrier of a step is gone.
// Predicts: one barrier for 512 fmas in place of two. Two blocks an SM already hid most of the wait. 1.02x to
//           1.08x.
// Measured: 4096^3: 45.0 TFLOP/s, 87.6 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   barrier          v               v               v
//   fast warp   store 0 | compute 0, store 1 | compute 1, store 0 |    a warp may run ahead into the other buffer;
//   slow warp   store 0 |       compute 0, store 1 | compute 1 ...     the barrier keeps it from coming round to this one
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
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of C");
static_assert(TM % 4 == 0 && TN % 4 == 0 && WM % TM == 0 && WN % TN == 0,
              "thread tiles are whole Fours and divide a warp's");
static_assert(LANES_M * LANES_N == 32 && LANES_M % 2 == 0 && LANES_N % 2 == 0, "32 lanes, paired both ways");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    double_buffer(int M, int N, int K, Acc alpha, const T* A, i64 lda, const T* B, i64 ldb, Acc beta, T* C,
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
  const int a_row = threadIdx.x / (BK / 4), a_col = threadIdx.x % (BK / 4) * 4;
  const int b_row = threadIdx.x / (BN / 4), b_col = threadIdx.x % (BN / 4) * 4;
  const T* a_gmem = A + min_of(tile_row + a_row, M - 1) * lda + a_col;
  const int b_first = clamp4(tile_col + b_col, N - 1), b_last = N - 1 - b_first;
  const T* b_gmem = B + b_row * ldb + b_first;
  alignas(16) __shared__ T As[BUFFERS][BK][BM + 4];  // transposed; padded, so that a warp stores to 32 banks
  alignas(16) __shared__ T Bs[BUFFERS][BK][BN];

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
  for (int k0 = k_whole, stage = 0; k0 < K; k0 += BK, stage ^= 1) {
    // Load: this tile from registers to shared memory, the next one from global memory to registers.
#pragma unroll
    for (int i = 0; i < 4; ++i) As[stage][a_col + i][a_row] = a_next.at[i];
    four_at(&Bs[stage][b_row][b_col]) = b_next;
    __syncthreads();  // the tile is whole, and everyone is done with the other stage
    a_gmem += BK, b_gmem += BK * ldb;
    if (k0 + BK < K) {
      a_next = load4(a_gmem, 3);
      b_next = load4(b_gmem, b_last);
    }

    // Compute.
#pragma unroll
    for (int k = 0; k < BK; ++k) {
      read_fragment<ROW_STEP>(a_frag, &As[stage][k][thread_row]);
      read_fragment<COL_STEP>(b_frag, &Bs[stage][k][thread_col]);
      outer_product(acc, a_frag, b_frag);
    }
  }

  // Store.
  store_tile<ROW_STEP, COL_STEP>(C, ldc, row, col, M, N, alpha, acc, beta);
}
