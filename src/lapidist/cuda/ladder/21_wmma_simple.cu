// Lesson:   a tensor core multiplies 16 x 16 x 16 in one instruction of a whole warp.
// From:     03_hoisted_indices
// Change:   one warp, one FM x FN tile of C. Fragments come straight from global memory. Sums are scaled and
//           stored by way of a patch of shared memory. What hangs over the border goes through a patch too,
//           padded with zeros.
// Predicts: 32 elements are read for 8 multiply-adds of each (FM = FN = 16). So loads are the limit, at the
//           speed of the L1, far below the tensor cores. 3 to 8 % of cuBLAS in half.
// Measured: 4096^3 in fp16: 27.6 TFLOP/s, 4.3 % of cuBLAS (H200,
//           results/h200-20261126T003710-climb-fp16-4096.jsonl)
//
//                FN         a warp:  a (FM x FK)  walks right
//              +----+                b (FK x FN)  walks down
//          FK  | b  | |              sums += a b, one instruction
//        FK    +----+ v
//      +----+  +----+         a block: WARPS_M x WARPS_N such tiles; neighbours find their a or b in the L1
//   FM | a  |  |sums|
//      +----+  +----+
//        ->
#include "config.cuh"
#include "wmma.cuh"

// Config: BM 64, BN 64;
//         fp64: BM 32, BN 32
constexpr int WARPS_N = BN / FN;
constexpr int WARPS = BM / FM * WARPS_N;
constexpr int THREADS = WARPS * 32;
static_assert(BM % FM == 0 && BN % FN == 0, "a block is made of whole fragments");

extern "C" __global__ void __launch_bounds__(THREADS)
    wmma_simple(int M, int N, int K, Scalar alpha, const T* A, i64 lda, const T* B, i64 ldb, Scalar beta,
                Out* C, i64 ldc) {
  // Where am I: the block's tile of C and my warp's fragment in it.
  const int tiles_n = ceil_div(N, BN);
  const int tile_row = blockIdx.x / tiles_n * BM, tile_col = blockIdx.x % tiles_n * BN;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = tile_row + warp / WARPS_N * FM, col = tile_col + warp % WARPS_N * FN;
  alignas(32) __shared__ T a_patch[WARPS][FM * FK], b_patch[WARPS][FK * FN];
  alignas(32) __shared__ Sum c_patch[WARPS][FM * FN];
  if (row >= M || col >= N) return;  // a whole warp at once, and no one waits for it

  // What I load: fragments that lie in the matrix come as they are.
  const T* a_gmem = A + row * lda;
  const T* b_gmem = B + col;
  const int k_whole = ALIGNED && M - row >= FM && N - col >= FN ? K / FK * FK : 0;

  W::Sums sums = {};
  W::Operand a, b;
  for (int k0 = 0; k0 < k_whole; k0 += FK) {
    W::load_a_global(a, a_gmem + k0, static_cast<int>(lda));
    W::load_b_global(b, b_gmem + k0 * ldb, static_cast<int>(ldb));
    W::multiply(sums, a, b);
  }

  for (i64 k0 = k_whole; k0 < K; k0 += FK) {
    // Load, at the border: element by element, zero where there is none.
    for (int i = lane; i < FM * FK; i += 32)
      a_patch[warp][i] = row + i / FK < M && k0 + i % FK < K ? a_gmem[i / FK * lda + k0 + i % FK] : T(0);
    for (int i = lane; i < FK * FN; i += 32)
      b_patch[warp][i] = k0 + i / FN < K && col + i % FN < N ? b_gmem[(k0 + i / FN) * ldb + i % FN] : T(0);
    __syncwarp();  // the patches are whole before the warp reads them

    // Compute.
    W::load_a(a, a_patch[warp], FK);
    W::load_b(b, b_patch[warp], FN);
    W::multiply(sums, a, b);
    __syncwarp();  // the warp is done with the patches before the next ones overwrite them
  }

  // Store.
  W::store(c_patch[warp], sums, FN);
  __syncwarp();  // which lane held what is not known: they read what others wrote
  for (int i = lane; i < FM * FN; i += 32) {
    const int m = row + i / FN, n = col + i % FN;
    if (m >= M || n >= N) continue;
    Scalar c = alpha * Scalar(c_patch[warp][i]);
    if (beta != Scalar(0)) c += beta * Scalar(C[m * ldc + n]);
    C[m * ldc + n] = Stored<Out>::of(c);
  }
}
