// The limit of wgmma: products whose operands never leave shared memory.
//
// Each warpgroup adds the same product of its own A (64 x BK) and B (WN x BK, k touches) again and again:
// D[warpgroup] = iterations * A B^T. The tiles lie as TMA would leave them; nothing is copied,
// awaited or stored meanwhile.
#include "config.cuh"
#include "wgmma_instructions.cuh"

constexpr int GROUP = 128, GROUPS = THREADS / GROUP;
constexpr int ROW_CHUNKS = 8;  // 16 bytes each: a row of the swizzle

// Rows of 128 bytes, each chunk where the swizzle of 128 bytes puts it.
__device__ __forceinline__ void copy_rows(char* tile, const T* rows, int count) {
  for (int i = threadIdx.x % GROUP; i < count * ROW_CHUNKS; i += GROUP) {
    const int row = i / ROW_CHUNKS, chunk = i % ROW_CHUNKS;
    *reinterpret_cast<Chunk*>(tile + row * 128 + (chunk ^ row % 8) * 16) = chunk_at(rows + i * CHUNK);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    wgmma_limit(int iterations, const T* A, const T* B, Scalar* D) {
  extern __shared__ __align__(1024) char smem[];
  const int group = threadIdx.x / GROUP, thread = threadIdx.x % GROUP;
  char* a_tile = smem + group * (WM + WN) * 128;
  char* b_tile = a_tile + WM * 128;
  copy_rows(a_tile, A + group * WM * BK, WM);
  copy_rows(b_tile, B + group * WN * BK, WN);
  proxy_fence();  // the tensor cores read shared memory through another proxy
  __syncthreads();

  const Descriptor a = describe(a_tile), b = describe(b_tile);
  Sum sums[WN / 2] = {};
  for (int i = 0; i < iterations; ++i) {
    products_begin();
#pragma unroll
    for (int step = 0; step < STEPS; ++step)
      Wgmma<WN>::multiply(sums, a + step_along_k<false>(step), b + step_along_k<false>(step));
    products_commit();
    products_wait<1>();
  }
  products_wait<0>();
  sums_arrive(sums);

  Scalar* mine = D + (static_cast<long long>(blockIdx.x) * GROUPS + group) * WM * WN;
#pragma unroll
  for (int i = 0; i < WN / 2; ++i) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8,
              col = i / 4 * 8 + thread % 4 * 2 + i % 2;
    mine[row * WN + col] = sums[i];
  }
}
