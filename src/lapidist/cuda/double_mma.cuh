// mma.sync of doubles: 16 x 8 sums, 8 steps of k (the lanes' parts: mma_instructions.cuh).
#pragma once

__device__ __forceinline__ void multiply_doubles(double (&sums)[4], const double (&top)[2],
                                                 const double (&bottom)[2], double b0, double b1) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, "
      "%1, %2, %3};"
      : "+d"(sums[0]), "+d"(sums[1]), "+d"(sums[2]), "+d"(sums[3])
      : "d"(top[0]), "d"(bottom[0]), "d"(top[1]), "d"(bottom[1]), "d"(b0), "d"(b1));
#else  // before Hopper there is 8 x 8 x 4 only
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const double a = i % 2 ? bottom[i / 2] : top[i / 2];
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+d"(sums[i % 2 * 2]), "+d"(sums[i % 2 * 2 + 1])
        : "d"(a), "d"(i / 2 ? b1 : b0));
  }
#endif
}
