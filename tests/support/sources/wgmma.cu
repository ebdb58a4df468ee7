// A producer warp and one consumer warpgroup: TMA with 128-byte swizzle, mbarriers, wgmma m64n64k16; B as N x
// K (K-major) or as K x N (MN-major).
#include <cuda_bf16.h>
#include "hopper.cuh"
#define BM 64
#define BN 64
#define BK 64
#define STAGES 2
#ifndef B_TURNED
#define B_TURNED 0
#endif

__device__ __forceinline__ unsigned long long descriptor(const void* tile, int leading, int stride) {
  const unsigned long long address = shared_address(tile);
  return (address >> 4 & 0x3FFF) | (unsigned long long)(leading >> 4) << 16 |
         (unsigned long long)(stride >> 4) << 32 | 1ull << 62;
}

struct __align__(1024) Shared {
  __nv_bfloat16 A[STAGES][BM * BK];
  __nv_bfloat16 B[STAGES][BN * BK];
  Barrier full[STAGES], empty[STAGES];
};

extern "C" __global__ void __launch_bounds__(160)
    multiply(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map, float* C,
             int N, int K) {
  extern __shared__ __align__(1024) char raw[];
  Shared& s = *reinterpret_cast<Shared*>(raw);
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; ++i) {
      barrier_init(&s.full[i], 1);
      barrier_init(&s.empty[i], 128);
    }
    barrier_init_fence();
  }
  __syncthreads();
  const int row = blockIdx.y * BM, col = blockIdx.x * BN;
  if (threadIdx.x >= 128) {
    if (threadIdx.x == 128)
      for (int k = 0, step = 0; k < K; k += BK, ++step) {
        const int stage = step % STAGES;
        barrier_wait(&s.empty[stage], (step / STAGES & 1) ^ 1);
        barrier_arrive_expect(&s.full[stage], sizeof(s.A[0]) + sizeof(s.B[0]));
        tma_load(s.A[stage], &a_map, k, row, &s.full[stage]);
        tma_load(s.B[stage], &b_map, B_TURNED ? col : k, B_TURNED ? k : col, &s.full[stage]);
      }
    return;
  }
  float d[32] = {};
  for (int k = 0, step = 0; k < K; k += BK, ++step) {
    const int stage = step % STAGES;
    barrier_wait(&s.full[stage], step / STAGES & 1);
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int kk = 0; kk < BK; kk += 16) {
      const unsigned long long a = descriptor(&s.A[stage][kk], 16, 1024);
      const unsigned long long b =
          B_TURNED ? descriptor(&s.B[stage][kk * BN], 8192, 1024) : descriptor(&s.B[stage][kk], 16, 1024);
      asm volatile(
          "{ .reg .pred p; setp.ne.b32 p, 1, 0;\n"
          "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
          "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%"
          "26,%27,%28,%29,%30,%31}, "
          "%32, %33, p, 1, 1, 0, %34; }\n"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),
            "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),
            "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),
            "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),
            "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
          : "l"(a), "l"(b), "n"(B_TURNED));
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    barrier_arrive(&s.empty[stage]);
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < 32; ++i)
    C[(row + warp * 16 + lane / 4 + i / 2 % 2 * 8) * N + col + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
}
