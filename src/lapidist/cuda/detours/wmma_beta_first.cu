// Lesson:   C can be scaled by beta / alpha up front, so that alpha is the only work left at the end; it
//           should not be.
// From:     22_wmma_shared
// Change:   C goes through the warp's patch before the K loop and becomes the first sums, as (beta / alpha)
//           C; the end scales by alpha. alpha = 0 has no such quotient: then nothing is multiplied and D =
//           beta C.
// Predicts: the same bytes and the same speed. But it loses precision: beta / alpha rounds, overflows when
//           alpha is small against beta (1e-30 and 1e10), and the products are added to a C that may be far
//           larger than they are: each
//           of the k roundings is then one of |beta C / alpha| (of C itself with ACCUMULATE=half, before the first product).
// Measured: 4096^3 in fp16: 257.3 TFLOP/s, 40.4 % of cuBLAS (H200,
//           results/h200-20261123T013927-bench-types-fp16.jsonl)
//
//   17:   sums = 0          ... += A B ...     D = alpha sums + beta C
//   here: sums = (beta / alpha) C   ... += A B ...   D = alpha sums
#include "config.cuh"
#include "wmma.cuh"

// Config: BM 128, BN 128, BK 64;
//         tf32: BK 32;
//         fp64: BM 64, BN 64, BK 16
constexpr int BLOCKS = 2;  // on an SM at once: one computes while the other loads
static_assert(Scalar(0.5) != Scalar(0), "beta / alpha is no integer: the integers scale at the end");
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
    wmma_beta_first(int M, int N, int K, Scalar alpha, const T* A, i64 lda, const T* B, i64 ldb, Scalar beta,
                    Out* C, i64 ldc) {
  // Where am I: my warp's fragments in the block's tile.
  const int tiles_n = ceil_div(N, BN), tiles = ceil_div(M, BM) * tiles_n;
  const int warp = threadIdx.x / 32, warp_row = warp / WARPS_N * ROWS * FM,
            warp_col = warp % WARPS_N * COLS * FN;
  // chunks of A and B; at the end of a tile, the warps' patches of D
  extern __shared__ __align__(128) char smem[];
  if (alpha == Scalar(0)) K = 0;
  const int a_row = threadIdx.x / (BK / CHUNK), a_col = threadIdx.x % (BK / CHUNK) * CHUNK;
  const int b_row = threadIdx.x / (BN / CHUNK), b_col = threadIdx.x % (BN / CHUNK) * CHUNK;
  T* As = reinterpret_cast<T*>(smem);
  T* Bs = As + BM * A_PITCH;
  Sum* Ds = reinterpret_cast<Sum*>(smem) + warp * FM * D_PITCH;

  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int tile_row = tile / tiles_n * BM, tile_col = tile % tiles_n * BN;
    W::Sums sums[ROWS][COLS] = {};
    Chunk a_next[A_MOVES], b_next[B_MOVES];

    // C: a row of fragments at a time, scaled on its way.
    if (beta != Scalar(0) && alpha != Scalar(0)) {
      const Scalar ratio = beta / alpha;
      __syncthreads();  // the tile before is done with shared memory
#pragma unroll
      for (int m = 0; m < ROWS; ++m) {
        for (int i = threadIdx.x % 32; i < FM * COLS * FN; i += 32) {
          const int row = tile_row + warp_row + m * FM + i / (COLS * FN),
                    col = tile_col + warp_col + i % (COLS * FN);
          Ds[i / (COLS * FN) * D_PITCH + i % (COLS * FN)] =
              row < M && col < N ? Sum(ratio * Scalar(C[row * ldc + col])) : Sum(0);
        }
        __syncwarp();  // lanes read what others wrote
#pragma unroll
        for (int n = 0; n < COLS; ++n) W::load_sums(sums[m][n], Ds + n * FN, D_PITCH);
        __syncwarp();  // the patch is read before it is filled again
      }
    }

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
                                          tile_col + warp_col, M, N, alpha,
                                          alpha == Scalar(0) ? beta : Scalar(0));
      __syncwarp();  // the patch is read before it is filled again
    }
  }
}
