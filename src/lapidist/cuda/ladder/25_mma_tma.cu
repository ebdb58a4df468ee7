// Lesson:   TMA writes the very swizzle that ldmatrix reads: the tensor cores' warps need not copy.
// From:     24_mma_multistage
// Change:   thread 0 orders the tiles by TMA, STAGES steps ahead, and mbarriers say when they are there. What
//           lies beyond the matrices arrives as zeros. A stage holds 128 bytes of k: rows of A, and slabs of
//           64 columns of B (whole columns where B is K-major).
// Predicts: 12 copies a thread and step, with their addresses and lengths, are gone from between the
//           products. A fourth stage fits. 1.0x to 1.1x: the L2's answers are waited for as before.
// Measured: 4096^3 in fp16: 396.4 TFLOP/s, 61.1 % of cuBLAS (H200,
//           results/h200-20261126T003710-climb-fp16-4096.jsonl)
//
//   stage   | A: 128 rows of 128 bytes | B: 4 slabs of 64 columns, a row of 128 bytes for each k |
//   thread 0   orders both boxes  ->  full[s] counts bytes  ->  all warps read s  ->  meet  ->  thread 0 orders again
#include "config.cuh"
#include "mma_tile.cuh"
#include "hopper.cuh"

// Config: BM 128, BN 256, BK 64, WM 64, WN 64, STAGES 4;
//         tf32: BK 32;
//         int8 uint8 e4m3 e5m2: BK 128
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int BLOCKS = THREADS <= 128 ? 2 : 1;  // on an SM at once; it has 65536 registers
typedef Reader<true, BM, true, BK, WM / 8> AReader;
typedef Reader<false, B_N_MAJOR ? 64 : BN, !B_N_MAJOR, BK, WN / 8> BReader;
constexpr int STEPS = BK / DEPTH, ROWS = WM / 16;  // ROWS of products of a warp
// a warp's patch of D: rows, and their distance
constexpr int PATCH = 16, D_PITCH = WN + 32 / sizeof(Scalar);
static_assert(BK == 8 * CHUNK && WN == 64 && (sizeof(T) == 2 || !B_N_MAJOR),
              "a stage has rows of 128 bytes, a warp a slab of B; ldmatrix transposes 2-byte elements only");
static_assert(STEPS % 2 == 0, "the two fragment buffers take turns: tile after tile starts with the first");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of C");

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
    tma_load(stage.B + slab * 64 * 128, b_map, B_N_MAJOR ? col + slab * 64 : k, B_N_MAJOR ? k : col, full);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    mma_tma(int M, int N, int K, Scalar alpha, const __grid_constant__ TensorMap a_map,
            const __grid_constant__ TensorMap b_map, Scalar beta, Out* C, i64 ldc) {
  // Where am I: the tile of C, in bands of RASTER rows of tiles, and my warp's part of it.
  const int tiles_m = ceil_div(M, BM), tiles_n = ceil_div(N, BN), steps = ceil_div(K, BK);
  const int band = blockIdx.x / (RASTER * tiles_n) * RASTER, height = min_of(RASTER, tiles_m - band);
  const int tile_row = (band + blockIdx.x % (RASTER * tiles_n) % height) * BM;
  const int tile_col = blockIdx.x % (RASTER * tiles_n) / height * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;

  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) barrier_init(&pipeline.full[i], 1);
    barrier_init_fence();
    for (int i = 0; i < STAGES && i < steps; ++i)
      load(pipeline.stage[i], &pipeline.full[i], &a_map, &b_map, tile_row, tile_col, i * BK);
  }
  __syncthreads();  // nobody uses a barrier before it is initialised

  Sums sums[ROWS][WN / 8];
  Eight a[2][WM / 8], b[2][WN / 8];
  const AReader read_a(warp_row);
  const BReader read_b(0);
  if (steps > 0) {
    barrier_wait(&pipeline.full[0], 0);
    read_a.read(a[0], pipeline.stage[0].A, 0);
    read_b.read(b[0], pipeline.stage[0].B + warp_col * 128, 0);
  }
  int stage = 0, freed = 0, parity = 0;
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
#pragma unroll
    for (int step = 0; step < STEPS; ++step) {
      if (step == STEPS - 1) {  // the next step is in the next tile
        freed = stage;
        // after the last tile any will do
        if (++stage == STAGES || k + 1 == steps) stage = 0, parity ^= 1;
        if (k + 1 < steps) barrier_wait(&pipeline.full[stage], parity);
      }
      const auto a_now = operands_of<T>(a[step % 2]);
      const auto b_now = operands_of<ElementB>(b[step % 2]);
#pragma unroll
      for (int m = 0; m < ROWS; ++m) {
        // Load: the next step's Eights, a part for each row of products.
        read_a.read(a[(step + 1) % 2], pipeline.stage[stage].A, (step + 1) % STEPS, m, ROWS);
        read_b.read(b[(step + 1) % 2], pipeline.stage[stage].B + warp_col * 128, (step + 1) % STEPS, m, ROWS);

        // Compute.
        multiply_eights(sums[m], a_now.at[2 * m], a_now.at[2 * m + 1], b_now);
      }
      if (step == 0 && k > 0) {
        __syncthreads();  // everyone has read the last of the tile before
        if (threadIdx.x == 0 && k - 1 + STAGES < steps)
          load(pipeline.stage[freed], &pipeline.full[freed], &a_map, &b_map, tile_row, tile_col,
               (k - 1 + STAGES) * BK);
      }
    }
  }

  // Store: a warp's rows, 16 at a time, through its patch of shared memory.
  __syncthreads();  // everyone has read the last tile
  Scalar* patch = reinterpret_cast<Scalar*>(shared) + warp * PATCH * D_PITCH;
#pragma unroll
  for (int m = 0; m < ROWS; ++m) {
#pragma unroll
    for (int n = 0; n < WN / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        patch[(lane / 4 + i / 2 * 8) * D_PITCH + BReader::outer_of(n, lane % 4 * 2 + i % 2)] =
            sums[m][n].sum(i);
    __syncwarp();  // lanes read what others wrote
    store_patch<PATCH, WN, D_PITCH>(patch, C, ldc, 1, C, ldc, tile_row + warp_row + m * PATCH,
                                    tile_col + warp_col, M, N, alpha, beta);
    __syncwarp();  // the patch is read before it is filled again
  }
}
