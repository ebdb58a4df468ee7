// Lesson:   with mma.sync the registers' layout is known, so every step from global memory to C can overlap
//           the others.
// From:     23_mma_swizzled
// Change:   the next step's fragments are read while this one is multiplied. cp.async brings tiles STAGES - 1
//           ahead. Warp tiles are 64 x 64. Tiles are visited in bands, for the L2.
// Predicts: 32 products for 8 ldmatrix (WM = WN = 64, half). No register or store stands between memory and
//           shared memory. So the tensor cores run all the time. Their mma.sync path is the limit, some 60 %
//           of what wgmma can do.
// Measured: 4096^3 in fp16: 418.0 TFLOP/s, 64.4 % of cuBLAS (H200,
//           results/h200-20261126T003710-climb-fp16-4096.jsonl)
//
//   rows of 4 chunks (BK = 32 halves), two of them in 128 bytes        stage  0       1       2       one step later
//   row 0 | 0 1 2 3   row 1 | 0 1 2 3    chunk c of row r lies at             in use  there   coming  coming, in use, there
//       2 | 1 0 3 2       3 | 1 0 3 2    place c ^ r / 2 % 4: a column
//       4 | 2 3 0 1       5 | 2 3 0 1    of eight rows is in eight       order of tiles: down a band of RASTER rows, then
//       6 | 3 2 1 0       7 | 3 2 1 0    different places                the next column
#include "config.cuh"
#include "mma_tile.cuh"

// Config: BM 128, BN 256, BK 64, WM 64, WN 64, STAGES 3;
//         fp64: BN 128, BK 16, WN 32, STAGES 4;
//         int8 uint8 e4m3 e5m2: BK 128;
//         tf32: BK 32
constexpr int THREADS = BM / WM * (BN / WN) * 32;
constexpr int BLOCKS = THREADS <= 128 ? 2 : 1;  // on an SM at once; it has 65536 registers
typedef Tile<BM, true, BK> ATile;               // k touches
typedef Tile<BN, false, BK> BTile;              // columns touch
typedef Reader<true, BM, true, BK, WM / 8> AReader;
typedef Reader<false, BN, false, BK, WN / 8> BReader;
constexpr int STAGE = ATile::BYTES + BTile::BYTES, STEPS = BK / DEPTH;
// rows that one move of all threads covers
constexpr int A_ROWS = THREADS / ATile::CHUNKS, B_ROWS = THREADS / BTile::CHUNKS;
constexpr int A_MOVES = BM / A_ROWS, B_MOVES = BK / B_ROWS, ROWS = WM / 16;  // ROWS of products of a warp
// a warp's patch of D: rows, and their distance
constexpr int PATCH = 16, D_PITCH = WN + 32 / sizeof(Scalar);
static_assert(THREADS % ATile::CHUNKS == 0 && A_MOVES * A_ROWS == BM,
              "all threads move whole rows of A, a chunk each at a time");
static_assert(THREADS % BTile::CHUNKS == 0 && B_MOVES * B_ROWS == BK, "all threads move whole rows of B");
static_assert(STAGES >= 3, "one tile is read, one is freed, one at least is under way");
static_assert(STEPS % 2 == 0, "the two fragment buffers take turns: tile after tile starts with the first");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of C");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    mma_multistage(int M, int N, int K, Scalar alpha, const T* A, i64 lda, const T* B, i64 ldb, Scalar beta,
                   Out* C, i64 ldc) {
  // Where am I: the tile of C, in bands of RASTER rows of tiles, and my warp's part of it.
  const int tiles_m = ceil_div(M, BM), tiles_n = ceil_div(N, BN);
  const int band = blockIdx.x / (RASTER * tiles_n) * RASTER, height = min_of(RASTER, tiles_m - band);
  const int tile_row = (band + blockIdx.x % (RASTER * tiles_n) % height) * BM;
  const int tile_col = blockIdx.x % (RASTER * tiles_n) / height * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;

  // What I load: one chunk of every A_ROWS-th row of A, one of every B_ROWS-th of B.
  // STAGES of a tile of A and one of B; in the end, the warps' patches of D
  extern __shared__ __align__(128) char smem[];
  const int a_row = threadIdx.x / ATile::CHUNKS, a_chunk = threadIdx.x % ATile::CHUNKS,
            a_exist = M - tile_row - a_row;
  const int b_row = threadIdx.x / BTile::CHUNKS, b_chunk = threadIdx.x % BTile::CHUNKS,
            b_exist = N - tile_col - b_chunk * CHUNK;
  const T* a_gmem = A + (tile_row + a_row) * lda + a_chunk * CHUNK;
  const T* b_gmem = B + b_row * ldb + tile_col + b_chunk * CHUNK;
  unsigned copied = 0;  // the k that the next copy starts with; it may end at 2^31
  const auto copy_part = [&](int stage, int part, int parts, bool whole) {
    char* target = smem + stage * STAGE;
#pragma unroll
    for (int i = 0; i < A_MOVES; ++i) {
      if (i * parts / A_MOVES != part) continue;
      copy_chunk(reinterpret_cast<T*>(target + ATile::offset(a_row + i * A_ROWS, a_chunk)),
                 a_gmem + i * A_ROWS * lda, i * A_ROWS < a_exist ? K - copied - a_chunk * CHUNK : 0, whole);
    }
    target += ATile::BYTES;
#pragma unroll
    for (int i = 0; i < B_MOVES; ++i) {
      if (i * parts / B_MOVES != part) continue;
      copy_chunk(reinterpret_cast<T*>(target + BTile::offset(b_row + i * B_ROWS, b_chunk)),
                 b_gmem + i * B_ROWS * ldb, copied + b_row + i * B_ROWS < K ? b_exist : 0, whole);
    }
    if (part == parts - 1) a_gmem += BK, b_gmem += BK * ldb, copied += BK;
  };

  Sums sums[ROWS][WN / 8];
  Eight a[2][WM / 8], b[2][WN / 8];
  const AReader read_a(warp_row);
  const BReader read_b(warp_col);
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (copied < K) copy_part(stage, 0, 1, false);
    cp_async_commit();  // also when there is no tile left: the wait below counts groups
  }
  if (K > 0) {
    cp_async_wait<STAGES - 2>();
    __syncthreads();  // the tile is whole before anyone reads it
    read_a.read(a[0], smem, 0);
    read_b.read(b[0], smem + ATile::BYTES, 0);
  }
  // up to there, whole tiles are copied
  const int k_whole = M - tile_row >= BM && N - tile_col >= BN ? K : 0;
  unsigned k0 = 0;
  int stage = 0, freed = STAGES - 1;
#pragma unroll
  // the loop is made twice: one copies whole tiles, the other the rest
  for (int border = 0; border < 2; ++border) {
    for (; border ? k0 < K : copied + BK <= k_whole; k0 += BK) {
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        if (step == STEPS - 1) {  // the next step is in the next tile
          freed = stage;
          stage = stage == STAGES - 1 || k0 + BK >= K ? 0 : stage + 1;  // after the last tile any will do
          cp_async_wait<STAGES - 2>();
          __syncthreads();  // the tile is whole, and everyone has read the last of the one before
        }
        const auto a_now = operands_of<T>(a[step % 2]);
        const auto b_now = operands_of<ElementB>(b[step % 2]);
#pragma unroll
        for (int m = 0; m < ROWS; ++m) {
          // Load: the next step's Eights, and of the tile STAGES - 1 ahead a part for each row of products.
          read_a.read(a[(step + 1) % 2], smem + stage * STAGE, (step + 1) % STEPS, m, ROWS);
          read_b.read(b[(step + 1) % 2], smem + stage * STAGE + ATile::BYTES, (step + 1) % STEPS, m, ROWS);
          if (step == 0 && (!border || copied < K)) copy_part(freed, m, ROWS, !border);
          if (step == 0 && m == ROWS - 1) cp_async_commit();

          // Compute.
          multiply_eights(sums[m], a_now.at[2 * m], a_now.at[2 * m + 1], b_now);
        }
      }
    }
  }

  // Store: a warp's rows, 16 at a time, through its patch of shared memory.
  __syncthreads();  // everyone has read the last tile
  Scalar* patch = reinterpret_cast<Scalar*>(smem) + warp * PATCH * D_PITCH;
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
