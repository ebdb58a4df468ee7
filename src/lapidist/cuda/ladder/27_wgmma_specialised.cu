// Lesson:   a warp that waits does not multiply: a producer loads for two consumers, tied by mbarriers only.
// From:     26_wgmma_tma
// Change:   a third warpgroup orders the tiles and gives its registers away. A consumer commits the products
//           of a step before it waits for those of the step before. Only then it gives that stage back, so
//           the tensor cores always have work queued.
// Predicts: no idle cycle inside the k loop. What stays is the start, the end and the store of each tile,
//           some 5 % at k = 4096. And the last round of tiles: 512 tiles on 132 SMs are 3.9 rounds. 85 to 90
//           % of the limit.
// Measured: 4096^3 in fp16: 518.5 TFLOP/s, 79.9 % of cuBLAS (H200,
//           results/h200-20261126T003710-climb-fp16-4096.jsonl)
//
//   producer  | wait empty[s] | order A, B -> stage s | ...                                     one thread, 40 registers
//   consumers | wait full[s] | 4 wgmma of stage s | wait for those of s - 1 | free s - 1 | ...  2 x 128 threads, 232 registers
#include "config.cuh"
#include "wgmma_instructions.cuh"

// Config: BM 128, BN 256, BK 64, STAGES 4;
//         tf32: BK 32;
//         int8 uint8 e4m3 e5m2: BK 128
constexpr int CONSUMERS = BM / 64 * 128;
constexpr int THREADS = CONSUMERS + 128;  // registers move between whole warpgroups
static_assert(BM == 128, "232 registers for 256 consumers and 40 for 128 producers are the SM's 65536");
static_assert(BN % 64 == 0 && BN <= 256, "a warpgroup multiplies 64 rows; a slab of B has 64 columns");

struct alignas(1024) Stage {
  char A[BM * 128], B[BN * 128];
};
struct Pipeline {
  Stage stage[STAGES];
  Barrier full[STAGES], empty[STAGES];
};

// The boxes of one step, to one stage; `full` hears when all bytes are there.
__device__ __forceinline__ void load(Stage& stage, Barrier* full, const TensorMap* a_map,
                                     const TensorMap* b_map, int row, int col, int k) {
  barrier_arrive_expect(full, sizeof(Stage));
  tma_load(stage.A, a_map, k, row, full);
#pragma unroll
  for (int slab = 0; slab < (B_N_MAJOR ? BN / 64 : 1); ++slab)
    tma_load(stage.B + slab * SLAB, b_map, B_N_MAJOR ? col + slab * 64 : k, B_N_MAJOR ? k : col, full);
}

// Where sum i of a thread lies from its first one on: pairs of neighbours, in rows 8 apart.
__device__ constexpr int row_of(int i) { return i / 2 % 2 * 8; }
__device__ constexpr int col_of(int i) { return i / 4 * 8 + i % 2; }

// sums = alpha sums + beta C; rows x cols of C exist from the thread's first element on. beta = 0 never reads
// C: NaN there must not leak.
__device__ __forceinline__ void scale(Sum (&sums)[BN / 2], const Out* C, i64 ldc, int rows, int cols,
                                      Scalar alpha, Scalar beta) {
#pragma unroll
  for (int i = 0; i < BN / 2; ++i) sums[i] *= alpha;
  if (beta == Scalar(0)) return;
#pragma unroll
  for (int i = 0; i < BN / 2; ++i)
    if (row_of(i) < rows && col_of(i) < cols) sums[i] += beta * Scalar(C[row_of(i) * ldc + col_of(i)]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    wgmma_specialised(int M, int N, int K, Scalar alpha, const __grid_constant__ TensorMap a_map,
                      const __grid_constant__ TensorMap b_map, Scalar beta, Out* C, i64 ldc) {
  // Where am I: the tile of C, and my warpgroup's 64 rows of it.
  const int tiles_n = ceil_div(N, BN), steps = ceil_div(K, BK);
  const int row = blockIdx.x / tiles_n * BM, col = blockIdx.x % tiles_n * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;

  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&pipeline.full[i], 1);
      barrier_init(&pipeline.empty[i], CONSUMERS / 32);
    }
    barrier_init_fence();
  }
  __syncthreads();  // nobody uses a barrier before it is initialised

  int stage = 0;
  if (warp >= CONSUMERS / 32) {
    // Load: one thread, as far ahead as stages are empty.
    give_registers_back<40>();
    if (threadIdx.x == CONSUMERS) {
      int parity = 1;
      for (int step = 0; step < steps; ++step) {
        barrier_wait(&pipeline.empty[stage], parity);
        load(pipeline.stage[stage], &pipeline.full[stage], &a_map, &b_map, row, col, step * BK);
        if (++stage == STAGES) stage = 0, parity ^= 1;
      }
    }
    return;
  }

  take_registers<232>();
  Sum sums[BN / 2] = {};
  int parity = 0, last = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    barrier_wait(&pipeline.full[stage], parity);
    const Descriptor a = describe(pipeline.stage[stage].A + group * SLAB),
                     b = describe(pipeline.stage[stage].B);
    products_begin();
#pragma unroll
    for (int i = 0; i < STEPS; ++i)
      Wgmma<BN>::multiply(sums, a + step_along_k<false>(i), b + step_along_k<B_N_MAJOR>(i));
    products_commit();
    products_wait<1>();  // those of the step before are done
    if (step > 0 && lane == 0) barrier_arrive(&pipeline.empty[last]);
    last = stage;
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  products_wait<0>();
  sums_arrive(sums);

  // Store: each thread the sums that it has.
  const int my_row = row + group * 64 + warp % 4 * 16 + lane / 4, my_col = col + lane % 4 * 2;
  const int rows = M - my_row, cols = N - my_col;
  Out* const D = C + my_row * ldc + my_col;
  scale(sums, D, ldc, rows, cols, alpha, beta);
#pragma unroll
  for (int i = 0; i < BN / 2; ++i)
    if (row_of(i) < rows && col_of(i) < cols) D[row_of(i) * ldc + col_of(i)] = Stored<Out>::of(sums[i]);
}
