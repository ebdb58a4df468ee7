// Lesson:   at full size the limit is power: with fewer bytes to move the clock is higher.
// From:     29_wgmma_patches
// Change:   two blocks below each other form a cluster. Each loads half of the B that both need, for both.
// Predicts: a third less traffic between L2 and shared memory. 92 % of the limit, above cuBLAS.
// Measured: 4096^3 in fp16: 635.8 TFLOP/s, 97.9 % of cuBLAS (H200,
//           results/h200-20261126T003710-climb-fp16-4096.jsonl)
//
//   cluster            block 0: rows 0 .. 127    block 1: rows 128 .. 255     one tile of B for both
//   block 0 loads      its A, slabs 0, 1 of B    -> both blocks
//   block 1 loads      its A, slabs 2, 3 of B    -> both blocks               a stage is free when both have read it
//
//   sums of a warp, 16 x 64 of them | stmatrix -> patch of 2 KB, pieces swizzled by row | TMA -> D
#include "config.cuh"
#include "wgmma_instructions.cuh"
#include "ladder/store_rows.cuh"

// Config: BM 128, BN 256, BK 64, STAGES 4, CLUSTER 2;
//         tf32: BK 32;
//         int8 uint8 e4m3 e5m2: BK 128
constexpr int CONSUMERS = BM / 64 * 128;
constexpr int THREADS = CONSUMERS + 128;  // registers move between whole warpgroups
static_assert(BM == 128, "232 registers for 256 consumers and 40 for 128 producers are the SM's 65536");
static_assert(BN % (64 * CLUSTER) == 0 && BN <= 256,
              "each block of a cluster loads whole slabs of 64 columns of B");

struct alignas(1024) Stage {
  char A[BM * 128], B[BN * 128];
};
constexpr int D_COLS = 128 / sizeof(Out), PATCHES = BN / D_COLS;
static_assert(BN % D_COLS == 0, "a patch has 128 bytes of each row");

// 16 rows of a warp's sums on their way out, 128 bytes of each. TMA's swizzle goes by addresses: it repeats
// every 1024 bytes.
struct alignas(D_COPY_ENGINE ? 1024 : 16) Patch {
  static constexpr int PITCH = 128, STEP = D_COPY_ENGINE ? PITCH : SECTOR + PITCH + 16;
  char bytes[16 * STEP];

  // The swizzle permutes 16-byte pieces by row, so that eight rows of a column lie in different banks.
  __device__ __forceinline__ unsigned place(int row, int byte) const {
    if (!D_COPY_ENGINE) return shared_address(bytes) + row * STEP + SECTOR + byte;
    return shared_address(bytes) + row * PITCH + (byte ^ row % 8 * 16);
  }
  __device__ __forceinline__ void lay(const Sum* sums) {
    const int lane = threadIdx.x % 32;
    Vector<Out, 2> pairs[D_COLS / 4];
#pragma unroll
    for (int i = 0; i < D_COLS / 4; ++i)
      pairs[i] = {Stored<Out>::of(sums[2 * i]), Stored<Out>::of(sums[2 * i + 1])};
    if constexpr (sizeof(Out) == 2) {
      const unsigned* words = reinterpret_cast<const unsigned*>(pairs);
#pragma unroll
      for (int byte = 0; byte < PITCH; byte += 32, words += 4)
        store_matrices(place(lane % 16, byte + lane / 16 * 16), words[0], words[1], words[2], words[3]);
    } else {
      // Half a warp stores 32 bytes of each of four rows at a time. Elements of 4 bytes would lie in the banks
      // of the next row's, so odd rows store first what lies 64 bytes further.
      const bool aside = D_COPY_ENGINE && sizeof(Out) == 4 && lane / 4 % 2 > 0;
#pragma unroll
      for (int i = 0; i < D_COLS / 4; ++i) {
        const int byte = (i / 2 * 8 + lane % 4 * 2) * sizeof(Out) ^ (aside ? 64 : 0);
        *static_cast<Vector<Out, 2>*>(__cvta_shared_to_generic(place(lane / 4 + i % 2 * 8, byte))) =
            aside ? pairs[i ^ 4] : pairs[i];
      }
    }
  }
};
struct Pipeline {
  Stage stage[STAGES];
  // two a warp: one is written while the other one leaves
  Patch D[CONSUMERS / 32][D_COPY_ENGINE ? 2 : 1];
  Barrier full[STAGES], empty[STAGES];
};

// The boxes of one step, to one stage; `full` hears when all bytes are there.
__device__ __forceinline__ void load(Stage& stage, Barrier* full, const TensorMap* a_map,
                                     const TensorMap* b_map, int row, int col, int k, int rank) {
  constexpr int part = BN / CLUSTER;  // columns of B that this block loads for all
  barrier_arrive_expect(full, sizeof(Stage));
  tma_load(stage.A, a_map, k, row, full);
#pragma unroll
  for (int i = 0; i < (B_N_MAJOR ? part : 64); i += 64) {
    const int at = rank * part + i;
    tma_load_shared(stage.B + at * 128, b_map, B_N_MAJOR ? col + at : k, B_N_MAJOR ? k : col + at, full,
                    (1 << CLUSTER) - 1);
  }
}

// The clusters' tiles: down a band of RASTER of them, then the next column.
struct Tiles {
  int tiles_m, tiles_n, at, row, col;
  __device__ __forceinline__ Tiles(int M, int N)
      : tiles_m(ceil_div(M, BM * CLUSTER)), tiles_n(ceil_div(N, BN)), at(blockIdx.x / CLUSTER) {}
  __device__ __forceinline__ bool next(int rank) {
    if (at >= tiles_m * tiles_n) return false;
    const int band = at / (RASTER * tiles_n) * RASTER, height = min_of(RASTER, tiles_m - band);
    const int within = at % (RASTER * tiles_n);
    row = ((band + within % height) * CLUSTER + rank) * BM, col = within / height * BN;
    at += gridDim.x / CLUSTER;
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

extern "C" __global__ CLUSTERED void __launch_bounds__(THREADS, 1)
    wgmma_clusters(int M, int N, int K, Scalar alpha, const __grid_constant__ TensorMap a_map,
                   const __grid_constant__ TensorMap b_map, Scalar beta,
                   const __grid_constant__ TensorMap d_map, Out* C, i64 ldc) {
  // Where am I: my warpgroup's 64 rows of each tile of C.
  const int steps = ceil_div(K, BK), rank = cluster_rank();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, group = warp / 4;
  Tiles tiles(M, N);

  extern __shared__ __align__(1024) char shared[];
  Pipeline& pipeline = *reinterpret_cast<Pipeline*>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&pipeline.full[i], 1);
      barrier_init(&pipeline.empty[i], CLUSTER * CONSUMERS / 32);
    }
    barrier_init_fence();
  }
  cluster_barrier();  // nobody uses a barrier before it is initialised

  int stage = 0;
  if (warp >= CONSUMERS / 32) {
    // Load: one thread orders tile after tile, as far ahead as stages are empty.
    give_registers_back<40>();
    if (threadIdx.x == CONSUMERS) {
      int parity = 1;
      while (tiles.next(rank)) {
        for (int step = 0; step < steps; ++step) {
          barrier_wait(&pipeline.empty[stage], parity);
          load(pipeline.stage[stage], &pipeline.full[stage], &a_map, &b_map, tiles.row, tiles.col, step * BK,
               rank);
          if (++stage == STAGES) stage = 0, parity ^= 1;
        }
      }
    }
    return;
  }

  take_registers<232>();
  int parity = 0;
  while (tiles.next(rank)) {
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
      if (step > 0 && lane < CLUSTER) barrier_arrive_at(&pipeline.empty[last], lane);
      last = stage;
      if (++stage == STAGES) stage = 0, parity ^= 1;
    }
    products_wait<0>();
    sums_arrive(sums);
    if (steps > 0 && lane < CLUSTER) barrier_arrive_at(&pipeline.empty[last], lane);

    // Store: patch after patch of 16 rows, each warp for itself.
    const int row = tiles.row + group * 64 + warp % 4 * 16, my_row = row + lane / 4,
              my_col = tiles.col + lane % 4 * 2;
    scale(sums, C + my_row * ldc + my_col, ldc, M - my_row, N - my_col, alpha, beta);
    Words begins;
#pragma unroll
    for (int i = 0; i < PATCHES; ++i) {
      if (!D_COPY_ENGINE) {
        Out* const D = C + row * ldc + tiles.col;
        store_rows(pipeline.D[warp][0], begins, sums, i, D, ldc, M - row, min_of(N - tiles.col, BN));
        continue;
      }
      Patch& patch = pipeline.D[warp][i % 2];
      if (lane == 0) tma_store_wait_read<1>();  // the patch before the last has been read
      __syncwarp();
      patch.lay(sums + i * (D_COLS / 2));
      proxy_fence();
      __syncwarp();
      if (lane == 0) tma_store(&d_map, tiles.col + i * D_COLS, row, patch.bytes), tma_store_commit();
    }
  }
  if (D_COPY_ENGINE && lane == 0) tma_store_wait<0>();
  // No consumer leaves while the other block still writes to its memory. Who has left is not waited for.
  cluster_barrier();
}
