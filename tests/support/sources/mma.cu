// Four warps, a 64x32 tile: cp.async into padded shared memory, ldmatrix (transposed for B), mma.sync
// m16n8k16.
#include <cuda_fp16.h>
#include "ptx.cuh"
#define BK 32
#define PITCH_A (BK + 8)
#define PITCH_B (32 + 8)

__device__ __forceinline__ void load_tiles(unsigned (&r)[4], const half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_tiles_turned(unsigned (&r)[4], const half* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}

extern "C" __global__ void __launch_bounds__(128)
    multiply(const half* A, const half* B, float* C, int N, int K) {
  __shared__ __align__(16) half As[2][64 * PITCH_A];
  __shared__ __align__(16) half Bs[2][BK * PITCH_B];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const half* a_gmem = A + blockIdx.y * 64 * K;
  const half* b_gmem = B + blockIdx.x * 32;
  float acc[4][4] = {};
  const auto load = [&](int stage, int k0) {
    for (int i = threadIdx.x; i < 64 * BK / 8; i += 128)
      cp_async<16>(&As[stage][i / (BK / 8) * PITCH_A + i % (BK / 8) * 8],
                   a_gmem + i / (BK / 8) * K + k0 + i % (BK / 8) * 8);
    for (int i = threadIdx.x; i < BK * 4; i += 128)
      cp_async<16>(&Bs[stage][i / 4 * PITCH_B + i % 4 * 8], b_gmem + (k0 + i / 4) * N + i % 4 * 8);
    cp_async_commit();
  };
  load(0, 0);
  for (int k0 = 0, stage = 0; k0 < K; k0 += BK, stage ^= 1) {
    if (k0 + BK < K) {
      load(stage ^ 1, k0 + BK);
      cp_async_wait<1>();
    } else cp_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < BK; kk += 16) {
      unsigned a[4], b[2][4];
      load_tiles(a, &As[stage][(warp * 16 + lane % 16) * PITCH_A + kk + lane / 16 * 8]);
      load_tiles_turned(b[0], &Bs[stage][(kk + lane % 16) * PITCH_B + lane / 16 * 8]);
      load_tiles_turned(b[1], &Bs[stage][(kk + lane % 16) * PITCH_B + 16 + lane / 16 * 8]);
#pragma unroll
      for (int j = 0; j < 4; ++j)
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
            "{%0,%1,%2,%3};"
            : "+f"(acc[j][0]), "+f"(acc[j][1]), "+f"(acc[j][2]), "+f"(acc[j][3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[j / 2][j % 2 * 2]),
              "r"(b[j / 2][j % 2 * 2 + 1]));
    }
    __syncthreads();
  }
  const int row = blockIdx.y * 64 + warp * 16 + lane / 4, col = blockIdx.x * 32 + lane % 4 * 2;
#pragma unroll
  for (int j = 0; j < 4; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) C[(row + i / 2 * 8) * N + col + j * 8 + i % 2] = acc[j][i];
}
