// One warp, one 16x16 tile: C = 2 A B with A staged through padded shared memory, B from global memory in
// either order.
#include <cuda_fp16.h>
#include "ptx.cuh"

extern "C" __global__ void tile(const half* A, const half* B, float* C, int K) {
  __shared__ __align__(32) half As[16 * 24];
  unsigned a[8], b[8];
  float c[8] = {};
  for (int k = 0; k < K; k += 16) {
    for (int i = threadIdx.x; i < 256; i += 32) As[i / 16 * 24 + i % 16] = A[i / 16 * K + k + i % 16];
    __syncwarp();
    asm volatile("wmma.load.a.sync.aligned.m16n16k16.shared.row.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
                 : "=r"(a[0]), "=r"(a[1]), "=r"(a[2]), "=r"(a[3]), "=r"(a[4]), "=r"(a[5]), "=r"(a[6]),
                   "=r"(a[7])
                 : "r"(shared_address(As)), "r"(24)
                 : "memory");
#if B_IS_COL
    asm volatile("wmma.load.b.sync.aligned.m16n16k16.global.col.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]), "=r"(b[4]), "=r"(b[5]), "=r"(b[6]),
                   "=r"(b[7])
                 : "l"(B + k), "r"(K)
                 : "memory");
    asm volatile(
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, "
        "{%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19,%20,%21,%22,%23}, {%0,%1,%2,%3,%4,%5,%6,%7};"
#else
    asm volatile("wmma.load.b.sync.aligned.m16n16k16.global.row.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"
                 : "=r"(b[0]), "=r"(b[1]), "=r"(b[2]), "=r"(b[3]), "=r"(b[4]), "=r"(b[5]), "=r"(b[6]),
                   "=r"(b[7])
                 : "l"(B + k * 16), "r"(16)
                 : "memory");
    asm volatile(
        "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, "
        "{%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19,%20,%21,%22,%23}, {%0,%1,%2,%3,%4,%5,%6,%7};"
#endif
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(a[4]), "r"(a[5]), "r"(a[6]), "r"(a[7]), "r"(b[0]),
          "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(b[4]), "r"(b[5]), "r"(b[6]), "r"(b[7]));
    __syncwarp();
  }
  for (int i = 0; i < 8; ++i) c[i] *= 2;
  asm volatile(
      "wmma.store.d.sync.aligned.m16n16k16.global.row.f32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8}, %9;" ::"l"(C),
      "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]), "f"(c[4]), "f"(c[5]), "f"(c[6]), "f"(c[7]), "r"(16)
      : "memory");
}
