// Lesson:   with mma.sync the registers' layout is known, so the fastest way to fill them can be taken: ldmatrix.
// From:     22_wmma_shared
// Change:   fragments come by ldmatrix, four 8 x 8 matrices of 2-byte elements at once. In tiles, the 16-byte
//           chunks of a row are swizzled in place of skewed.
// Predicts: for 16 products of a warp, 6 instructions read 96 x 16 halves, each in as few turns as its bytes
//           take. Shared memory is no longer the limit. Load and compute still take turns. 1.2x to 1.5x.
// Measured: 4096^3 in fp16: 307.4 TFLOP/s, 47.3 % of cuBLAS (H200,
//           results/h200-20261126T003710-climb-fp16-4096.jsonl)
//
//   rows of 8 chunks (BK = 64 halves)          ldmatrix: lane l gives the address of row l % 8 of matrix l / 8,
//   row 0 | 0 1 2 3 4 5 6 7                    and receives two neighbours of row l / 4
//   row 1 | 1 0 3 2 5 4 7 6
//   row 2 | 2 3 0 1 6 7 4 5                    chunk c of row r lies at place c ^ r % 8: a column of eight rows is
//   row 3 | 3 2 1 0 7 6 5 4   ...              in eight different places, so in all banks once
#include "config.cuh"
#include "mma_tile.cuh"

// Config: BM 128, BN 128, BK 64, WM 32, WN 64;
//         fp64: BM 64, BN 64, BK 16, WM 16, WN 32;
//         int8 uint8 e4m3 e5m2: BK 128;
//         tf32: BK 32
constexpr int BLOCKS = 2;  // on an SM at once: one computes while the other loads
constexpr int THREADS = BM / WM * (BN / WN) * 32;
typedef Tile<BM, true, BK> ATile;   // k touches
typedef Tile<BN, false, BK> BTile;  // columns touch
typedef Reader<true, BM, true, BK, WM / 8> AReader;
typedef Reader<false, BN, false, BK, WN / 8> BReader;
// rows that one move of all threads covers
constexpr int A_ROWS = THREADS / ATile::CHUNKS, B_ROWS = THREADS / BTile::CHUNKS;
constexpr int A_MOVES = BM / A_ROWS, B_MOVES = BK / B_ROWS, ROWS = WM / 16;  // ROWS of products of a warp
// a warp's patch of D: rows, and their distance
constexpr int PATCH = 16, D_PITCH = WN + 32 / sizeof(Scalar);
static_assert(THREADS % ATile::CHUNKS == 0 && A_MOVES * A_ROWS == BM,
              "all threads move whole rows of A, a chunk each at a time");
static_assert(THREADS % BTile::CHUNKS == 0 && B_MOVES * B_ROWS == BK, "all threads move whole rows of B");
static_assert(BM % WM == 0 && BN % WN == 0, "warp tiles divide the tile of C");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    mma_swizzled(int M, int N, int K, Scalar alpha, const T* A, i64 lda, const T* B, i64 ldb, Scalar beta,
                 Out* C, i64 ldc) {
  // Where am I: the tile of C and my warp's part of it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_row = warp / (BN / WN) * WM, warp_col = warp % (BN / WN) * WN;
  // tiles of A and B; in the end, the warps' patches of D
  extern __shared__ __align__(128) char smem[];
  const int a_row = threadIdx.x / ATile::CHUNKS, a_chunk = threadIdx.x % ATile::CHUNKS;
  const int b_row = threadIdx.x / BTile::CHUNKS, b_chunk = threadIdx.x % BTile::CHUNKS;
  const AReader read_a(warp_row);
  const BReader read_b(warp_col);
  Scalar* patch = reinterpret_cast<Scalar*>(smem) + warp * PATCH * D_PITCH;

  Sums sums[ROWS][WN / 8];
  const T* a_gmem = A + (tile_row + a_row) * lda + a_chunk * CHUNK;
  const T* b_gmem = B + b_row * ldb + tile_col + b_chunk * CHUNK;
  const auto copy_tiles = [&](int k0, bool whole) {
#pragma unroll
    for (int i = 0; i < A_MOVES; ++i)
      copy_chunk(reinterpret_cast<T*>(smem + ATile::offset(a_row + i * A_ROWS, a_chunk)),
                 a_gmem + i * A_ROWS * lda, tile_row + a_row + i * A_ROWS < M ? K - k0 - a_chunk * CHUNK : 0,
                 whole);
#pragma unroll
    for (int i = 0; i < B_MOVES; ++i)
      copy_chunk(reinterpret_cast<T*>(smem + ATile::BYTES + BTile::offset(b_row + i * B_ROWS, b_chunk)),
                 b_gmem + i * B_ROWS * ldb, k0 + b_row + i * B_ROWS < K ? N - tile_col - b_chunk * CHUNK : 0,
                 whole);
  };

  for (int k0 = 0; k0 < K; k0 += BK, a_gmem += BK, b_gmem += BK * ldb) {
    // Load.
    __syncthreads();  // everyone is done with the tiles before: they may be overwritten
    if (tile_row <= M - BM && tile_col <= N - BN && k0 <= K - BK) copy_tiles(k0, true);
    else copy_tiles(k0, false);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();  // the tiles are whole before anyone reads them

    // Compute.
#pragma unroll
    for (int step = 0; step < BK / DEPTH; ++step) {
      Eight a[WM / 8], b[WN / 8];
      read_a.read(a, smem, step);
      read_b.read(b, smem + ATile::BYTES, step);
      const auto a_now = operands_of<T>(a);
      const auto b_now = operands_of<ElementB>(b);
#pragma unroll
      for (int m = 0; m < ROWS; ++m) multiply_eights(sums[m], a_now.at[2 * m], a_now.at[2 * m + 1], b_now);
    }
  }

  // Store: a warp's rows, 16 at a time, through its patch of shared memory.
  __syncthreads();  // everyone is done with the last tiles before D overwrites them
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
