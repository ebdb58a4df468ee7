// Lesson:   an instruction can read both tiles from shared memory, where TMA puts them: no operand passes
//           through a register.
// From:     25_mma_tma
// Change:   two warpgroups multiply 64 x 256 each by one instruction for 16 k (half). It reads the tiles as
//           TMA swizzles them.
// Predicts: a step of 64 k is four instructions a warpgroup and 1024 cycles of the tensor cores. Then all
//           wait for the products and for the other warpgroup, before the stage is filled again. That leaves
//           the tensor cores idle for some 300 cycles of each step: 75 %.
// Measured: 4096^3 in fp16: 481.3 TFLOP/s, 74.1 % of cuBLAS (H200,
//           results/h200-20261126T003710-climb-fp16-4096.jsonl)
//
//   tile of A: 128 rows of 128 bytes of k           tile of B: slabs of 64 columns, a row of 128 bytes for
//              each k
//   16-byte piece p of row r lies at p ^ r % 8      likewise; k touches instead where B is given as N x K
//
//   warpgroup 0 | wait full[s] | 4 wgmma, rows  0 .. 63 | wait for them | meet | fill stage s again | ...
//   warpgroup 1 | wait full[s] | 4 wgmma, rows 64 ..127 | wait for them | meet |
#include "config.cuh"
#include "wgmma_instructions.cuh"

// Config: BM 128, BN 256, BK 64, STAGES 4;
//         tf32: BK 32;
//         int8 uint8 e4m3 e5m2: BK 128
constexpr int THREADS = BM / 64 * 128;
static_assert(BM % 64 == 0 && BN % 64 == 0 && BN <= 256,
              "a warpgroup multiplies 64 rows; a slab of B has 64 columns");

struct alignas(1024) Stage {
  char A[BM * 128], B[BN * 128];
};
struct Pipeline {
  Stage stage[STAGES];
  Barrier full[STAGES];
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
    wgmma_tma(int M, int N, int K, Scalar alpha, const __grid_constant__ TensorMap a_map,
              const __grid_constant__ TensorMap b_map, Scalar beta, Out* C, i64 ldc) {
  // Where am I: the tile of C, and my warpgroup's 64 rows of it.
  const int tiles_n = ceil_div(N, BN), steps = ceil_div(K, BK);
  const int row = blockIdx.x / tiles_n * BM, col = blockIdx.x % tiles_n * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;

  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) barrier_init(&pipeline.full[i], 1);
    barrier_init_fence();
    for (int i = 0; i < STAGES && i < steps; ++i)
      load(pipeline.stage[i], &pipeline.full[i], &a_map, &b_map, row, col, i * BK);
  }
  __syncthreads();  // nobody uses a barrier before it is initialised

  Sum sums[BN / 2] = {};
  int stage = 0, parity = 0;
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
    products_wait<0>();
    __syncthreads();  // both warpgroups have read the stage
    if (threadIdx.x == 0 && step + STAGES < steps)
      load(pipeline.stage[stage], &pipeline.full[stage], &a_map, &b_map, row, col, (step + STAGES) * BK);
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
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
