// Lesson:   the price of operands falls with the side of a thread's tile: give a thread all the registers that
//           it can have.
// From:     16_tma_tiles
// Change:   constants only: 256x128 tiles of C, 16x8 results a thread, one block of 256 threads on an SM.
// Predicts: for 512 fmas 24 loads from shared memory in place of 32, and three quarters of the bytes from the
//           L2. But eight warps are alone on the SM: when they meet at the end of a step, nobody works. 1.0x
//           to 1.08x.
// Measured: 4096^3: 48.3 TFLOP/s, 93.9 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   registers of a thread, of 255:   128 sums | 64 of A: 16 rows, four k | 16 of B | addresses
//   before, of 128:                   64 sums | 32 of A:  8 rows, four k | 16 of B | addresses
#include "common.cuh"
#include "config.cuh"
#include "hopper.cuh"

// Config: BM 256, BN 128, BK 32, WM 64, WN 64, TM 16, TN 8, STAGES 4;
//         fp16: BK 64;
//         fp64: BM 128, BK 16, WM 32, TM 8
constexpr int THREADS = (BM / WM) * (BN / WN) * 32;
constexpr int BLOCKS = TM * TN * sizeof(Acc) <= 256 ? 2 : 1;  // on an SM at once; it has 65536 registers
constexpr int LANES_M = WM / TM;
constexpr int LANES_N = WN / TN;
constexpr int COL_STEP = LANES_N * 4;  // from one group of four columns of a thread to the next
// k of a row of A that a thread reads at once: 16 bytes, 8 of half
constexpr int VEC = sizeof(T) < 8 ? 4 : 2;
static_assert(BK * sizeof(T) == 128, "TMA's swizzle works on rows of 128 bytes");
static_assert(BM <= 256 && BN <= 256, "a box has 256 elements a side at most");
static_assert(STAGES >= 3, "one tile is read, the next one is looked into, one at least is under way");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of C");
static_assert(TM % 2 == 0 && TN % 4 == 0, "rows have two swizzles in turns, columns are whole Fours");
static_assert(LANES_M == 4 && LANES_N == 8, "4 by 8 lanes: 4 rows of A lie in different banks");

struct alignas(sizeof(T) * VEC) Vec {
  T at[VEC];
};
struct alignas(1024) Stage {  // the swizzle counts rows of 128 bytes from a multiple of 1024
  T A[BM][BK], B[BK][BN];
};
struct Pipeline {
  Stage stage[STAGES];
  Barrier full[STAGES];
};

// The boxes of one step, to one stage; `full` hears when all bytes are there.
__device__ __forceinline__ void load(Stage& stage, Barrier* full, const TensorMap* a_map,
                                     const TensorMap* b_map, int row, int col, int k) {
  barrier_arrive_expect(full, sizeof(T) * (BM + BN) * BK);
  tma_load(stage.A, a_map, k, row, full);
  tma_load(stage.B, b_map, col, k, full);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    tall_tile(int M, int N, int K, Acc alpha, const __grid_constant__ TensorMap a_map,
              const __grid_constant__ TensorMap b_map, Acc beta, T* C, i64 ldc) {
  // Where am I: the tile of C and my TM x TN elements in it, rows LANES_M apart.
  const int tiles_n = ceil_div(N, BN), steps = ceil_div(K, BK);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int lane_row = lane / 2 % 2 + lane / (2 * LANES_N) * 2,
            lane_col = lane % 2 + lane / 4 % (LANES_N / 2) * 2;
  const int thread_row = warp / (BN / WN) * WM + lane_row, thread_col = warp % (BN / WN) * WN + lane_col * 4;
  const int row = tile_row + thread_row, col = tile_col + thread_col;

  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) barrier_init(&pipeline.full[i], 1);
    barrier_init_fence();
    for (int i = 0; i < STAGES && i < steps; ++i)
      load(pipeline.stage[i], &pipeline.full[i], &a_map, &b_map, tile_row, tile_col, i * BK);
  }
  __syncthreads();  // nobody uses a barrier before it is initialised

  Acc acc[TM][TN] = {}, b_frag[2][TN];
  Vec a[TM];
  const auto read_a = [&](int m, int stage, int k) {
    const int place = k ^ (lane_row + m % 2 * LANES_M) * 16 / static_cast<int>(sizeof(T));
    a[m] = reinterpret_cast<Vec&>(pipeline.stage[stage].A[thread_row + m * LANES_M][place]);
  };
  if (steps > 0) {
    barrier_wait(&pipeline.full[0], 0);
#pragma unroll
    for (int m = 0; m < TM; ++m) read_a(m, 0, 0);
    read_fragment<COL_STEP>(b_frag[0], &pipeline.stage[0].B[0][thread_col]);
  }
#pragma unroll 1
  for (int step = 0, stage = 0, parity = 0; step < steps; ++step) {
    // Compute: B's fragments of k + 1 come while k is multiplied; a Vec of A follows the last use of the one
    // before.
    const int freed = stage;
#pragma unroll(32 / VEC)
    for (int k = 0; k < BK; ++k) {
      if (k == BK - 1) {  // k + 1 is in the next tile
        if (++stage == STAGES) stage = 0, parity ^= 1;
        if (step + 1 < steps) barrier_wait(&pipeline.full[stage], parity);
      }
      read_fragment<COL_STEP>(b_frag[(k + 1) % 2], &pipeline.stage[stage].B[(k + 1) % BK][thread_col]);
#pragma unroll
      for (int m = 0; m < TM; ++m) {
        multiply_row(acc[m], Acc(a[m].at[k % VEC]), b_frag[k % 2]);
        if (k % VEC == VEC - 1) read_a(m, stage, (k + 1) % BK);
      }
    }
    __syncthreads();  // everyone has read the tile
    if (threadIdx.x == 0 && step + STAGES < steps)
      load(pipeline.stage[freed], &pipeline.full[freed], &a_map, &b_map, tile_row, tile_col,
           (step + STAGES) * BK);
  }

  // Store.
  store_tile<LANES_M, COL_STEP, 1>(C, ldc, row, col, M, N, alpha, acc, beta);
}
