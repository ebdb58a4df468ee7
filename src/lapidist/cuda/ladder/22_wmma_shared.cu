// Lesson:   a tensor core outruns the L1: what a block needs is staged once in shared memory and reused by
//           all its warps.
// From:     21_wmma_simple
// Change:   persistent blocks walk 128 x 128 tiles, with eight warps, each 2 x 4 fragments. k comes in chunks
//           of BK through shared memory, whose rows are skewed. C and D pass through shared memory, a warp's
//           row of fragments at a time.
// Predicts: a warp reads 6 fragments for 8 products in place of 16. It reads 2.7x less from shared memory
//           than it read from the L1, and 32x less from global memory. But load and compute take turns: 35 to
//           50 % of cuBLAS in half.
// Measured: 4096^3 in fp16: wmma_shared 258.6, wmma_no_skew 67.0 TFLOP/s, 39.8, 10.5 % of cuBLAS (H200,
//           results/h200-20261126T003710-climb-fp16-4096.jsonl)
//
//        BN = 2 warps x 4 fragments                    skew: a row of 64 halves is 32 banks; 8 more halves, and the
//      +---------------+---------------+               eight rows that one read takes start at banks 0 4 8 ... 28
//      | w0  .  .  .   | w1            |
//      |  .  .  .  .   |               |  BM =         | 0 1 2 3 ... | - |       SKEW (16 bytes)
//      +---------------+---------------+  4 warps x    | 4 5 6 7 ... | - |
//      | w2            | w3            |  2 fragments  | 8 9  ...    | - |
//      ...                                             |             | - |
//                                                without it (SKEW 0, detour wmma_no_skew) all eight start at bank 0
#include "config.cuh"
#include "wmma.cuh"

// Config: BM 128, BN 128, BK 64;
//         tf32: BK 32;
//         fp64: BM 64, BN 64, BK 16
constexpr int BLOCKS = 2;          // on an SM at once: one computes while the other loads
constexpr int ROWS = 2, COLS = 4;  // fragments of a warp
constexpr int WARPS_N = BN / (COLS * FN), WARPS = BM / (ROWS * FM) * WARPS_N, THREADS = WARPS * 32;
// in elements
constexpr int A_PITCH = BK + SKEW, B_PITCH = BN + SKEW, D_PITCH = COLS * FN + 16 / sizeof(Sum);
// rows that one move of all threads covers
constexpr int A_ROWS = THREADS / (BK / CHUNK), B_ROWS = THREADS / (BN / CHUNK);
constexpr int A_MOVES = BM / A_ROWS, B_MOVES = BK / B_ROWS;
static_assert(BM % (ROWS * FM) == 0 && BN % (COLS * FN) == 0 && BK % FK == 0,
              "tiles are made of whole fragments");
static_assert(A_MOVES * A_ROWS == BM && B_MOVES * B_ROWS == BK,
              "all threads move whole rows, a chunk each at a time");

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    wmma_shared(int M, int N, int K, Scalar alpha, const T* A, i64 lda, const T* B, i64 ldb, Scalar beta,
                Out* C, i64 ldc) {
  // Where am I: my warp's fragments in the block's tile.
  const int tiles_n = ceil_div(N, BN), tiles = ceil_div(M, BM) * tiles_n;
  const int warp = threadIdx.x / 32, warp_row = warp / WARPS_N * ROWS * FM,
            warp_col = warp % WARPS_N * COLS * FN;
  // chunks of A and B; at the end of a tile, the warps' patches of D
  extern __shared__ __align__(128) char smem[];
  const int a_row = threadIdx.x / (BK / CHUNK), a_col = threadIdx.x % (BK / CHUNK) * CHUNK;
  const int b_row = threadIdx.x / (BN / CHUNK), b_col = threadIdx.x % (BN / CHUNK) * CHUNK;
  T* As = reinterpret_cast<T*>(smem);
  T* Bs = As + BM * A_PITCH;
  Sum* Ds = reinterpret_cast<Sum*>(smem) + warp * FM * D_PITCH;

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int tile_row = tile / tiles_n * BM, tile_col = tile % tiles_n * BN;
    W::Sums sums[ROWS][COLS] = {};
    Chunk a_next[A_MOVES], b_next[B_MOVES];

    for (int k0 = 0; k0 < K; k0 += BK) {
      // Load: whole chunks through registers, all asked for before the first is stored; else element by
      // element.
      const bool whole = ALIGNED && K - k0 >= BK && tile_col <= N - BN;
      if (whole) {
#pragma unroll
        for (int i = 0; i < A_MOVES; ++i)
          a_next[i] = chunk_at(A + min_of(tile_row + a_row + i * A_ROWS, M - 1) * lda + k0 + a_col);
#pragma unroll
        for (int i = 0; i < B_MOVES; ++i)
          b_next[i] = chunk_at(B + (k0 + b_row + i * B_ROWS) * ldb + tile_col + b_col);
      }
      __syncthreads();  // everyone is done with the chunks before, or with D: they may be overwritten
      if (whole) {
#pragma unroll
        for (int i = 0; i < A_MOVES; ++i) chunk_at(&As[(a_row + i * A_ROWS) * A_PITCH + a_col]) = a_next[i];
#pragma unroll
        for (int i = 0; i < B_MOVES; ++i) chunk_at(&Bs[(b_row + i * B_ROWS) * B_PITCH + b_col]) = b_next[i];
      } else {
        copy_elements<BM, BK, A_PITCH, THREADS>(As, A + tile_row * lda + k0, lda, M - tile_row, K - k0);
        copy_elements<BK, BN, B_PITCH, THREADS>(Bs, B + k0 * ldb + tile_col, ldb, K - k0, N - tile_col);
      }
      __syncthreads();  // the chunks are whole before anyone reads them

      // Compute.
#pragma unroll
      for (int k = 0; k < BK; k += FK) {
        W::Operand a[ROWS], b[COLS];
#pragma unroll
        for (int m = 0; m < ROWS; ++m) W::load_a(a[m], &As[(warp_row + m * FM) * A_PITCH + k], A_PITCH);
#pragma unroll
        for (int n = 0; n < COLS; ++n) W::load_b(b[n], &Bs[k * B_PITCH + warp_col + n * FN], B_PITCH);
#pragma unroll
        for (int m = 0; m < ROWS; ++m)
#pragma unroll
          for (int n = 0; n < COLS; ++n) W::multiply(sums[m][n], a[m], b[n]);
      }
    }

    // Store.
    __syncthreads();  // everyone is done with the last chunk before D overwrites it
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
#pragma unroll
      for (int n = 0; n < COLS; ++n) W::store(Ds + n * FN, sums[m][n], D_PITCH);
      __syncwarp();  // lanes read what others wrote
      store_patch<FM, COLS * FN, D_PITCH>(Ds, C, ldc, 1, C, ldc, tile_row + warp_row + m * FM,
                                          tile_col + warp_col, M, N, alpha, beta);
      __syncwarp();  // the patch is read before it is filled again
    }
  }
}
