// Lesson:   a block that stays has the next tile's operands on their way while it stores this one.
// From:     27_wgmma_specialised
// Change:   one block an SM walks many tiles, in bands that the L2 can hold. Both roles walk the same list.
//           The producer goes on to the next tile as stages become empty.
// Predicts: the start of a tile, some 2 % at k = 4096, hides behind the store of the one before. A and B of 8
//           rows of tiles are read from the L2, not from DRAM. 1.02x to 1.1x.
// Measured: 4096^3 in fp16: 530.8 TFLOP/s, 81.8 % of cuBLAS (H200,
//           results/h200-20261126T003710-climb-fp16-4096.jsonl)
//
//   producer   | tile 0: 64 steps | tile 132: 4 steps, as many as there are stages | ...
//   consumers  |   tile 0: 64 steps | store 0 | tile 132: its first stages are there | ...
//
//   order of tiles, RASTER = 8:    0  8 16        a band: down its 8 rows of tiles, then the next column
//                                  1  9 17
//                                  ...
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

// The block's tiles: down a band of RASTER rows of them, then the next column.
struct Tiles {
  int tiles_m, tiles_n, at, row, col;
  __device__ __forceinline__ Tiles(int M, int N)
      : tiles_m(ceil_div(M, BM)), tiles_n(ceil_div(N, BN)), at(blockIdx.x) {}
  __device__ __forceinline__ bool next() {
    if (at >= tiles_m * tiles_n) return false;
    const int band = at / (RASTER * tiles_n) * RASTER, height = min_of(RASTER, tiles_m - band);
    const int within = at % (RASTER * tiles_n);
    row = (band + within % height) * BM, col = within / height * BN;
    at += gridDim.x;
    return true;
  }
};

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
    wgmma_rounds(int M, int N, int K, Scalar alpha, const __grid_constant__ TensorMap a_map,
                 const __grid_constant__ TensorMap b_map, Scalar beta, Out* C, i64 ldc) {
  // Where am I: my warpgroup's 64 rows of each tile of C.
  const int steps = ceil_div(K, BK);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;
  Tiles tiles(M, N);

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
    // Load: one thread orders tile after tile, as far ahead as stages are empty.
    give_registers_back<40>();
    if (threadIdx.x == CONSUMERS) {
      int parity = 1;
      while (tiles.next()) {
        for (int step = 0; step < steps; ++step) {
          barrier_wait(&pipeline.empty[stage], parity);
          load(pipeline.stage[stage], &pipeline.full[stage], &a_map, &b_map, tiles.row, tiles.col, step * BK);
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
    }
    return;
  }

  take_registers<232>();
  int parity = 0;
  while (tiles.next()) {
    Sum sums[BN / 2] = {};
    int last = 0;
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
    if (steps > 0 && lane == 0) barrier_arrive(&pipeline.empty[last]);

    // Store: each thread the sums that it has.
    const int my_row = tiles.row + group * 64 + warp % 4 * 16 + lane / 4, my_col = tiles.col + lane % 4 * 2;
    const int rows = M - my_row, cols = N - my_col;
    Out* const D = C + my_row * ldc + my_col;
    scale(sums, D, ldc, rows, cols, alpha, beta);
#pragma unroll
    for (int i = 0; i < BN / 2; ++i)
      if (row_of(i) < rows && col_of(i) < cols) D[row_of(i) * ldc + col_of(i)] = Stored<Out>::of(sums[i]);
  }
}
