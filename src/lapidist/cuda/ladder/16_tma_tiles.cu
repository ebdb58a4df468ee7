// Lesson:   one thread can order a whole tile: Hopper's TMA takes all copies out of the loop.
// From:     15_wide_copies
// Change:   thread 0 orders boxes of A and B, STAGES steps ahead. An mbarrier for each stage says when the
//           bytes are there. TMA cannot pad rows: it swizzles their 16-byte pieces. A step is 128 bytes of k.
// Predicts: for 512 fmas 32 loads from shared memory as before. No copies, no pointers, no first K % BK
//           products, and a barrier for 32 k in place of 8. So 550 instructions in place of 590. 1.03x to
//           1.08x.
// Measured: 4096^3: 43.0 TFLOP/s, 83.6 % of cuBLAS (H200, results/h200-20261126T003801-climb-fp32-4096.jsonl)
//
//   row of A: 32 floats, 8 pieces of 16 bytes      four lanes read piece 0 of rows 0 1 2 3: no bank twice
//   row 0 | 0 1 2 3 4 5 6 7 |                      piece p of row r lies at p ^ r % 8
//   row 1 | 1 0 3 2 5 4 7 6 |
//   row 2 | 2 3 0 1 6 7 4 5 |                      what lies outside of A and B arrives as zeros: rows, columns
//   row 3 | 3 2 1 0 7 6 5 4 |                      and k
#include "common.cuh"
#include "config.cuh"
#include "hopper.cuh"

// Config: BM 128, BN 128, BK 32, WM 32, WN 64, TM 8, TN 8, STAGES 3;
//         fp16: BK 64;
//         fp64: BK 16, STAGES 4
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
    tma_tiles(int M, int N, int K, Acc alpha, const __grid_constant__ TensorMap a_map,
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
