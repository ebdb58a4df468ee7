// CUTLASS's SIMT SGEMM as a shared library for the bench: row-major A, B and C, one entry for each tile
// shape. The shapes and stages are those of its own generator (GenerateSM80_Simt_f32): with 4-byte cp.async,
// so that any size is taken.
#include <cuda_runtime.h>

#include "cutlass/gemm/device/gemm.h"

using Row = cutlass::layout::RowMajor;

template <int BM, int BN, int WM, int WN, int STAGES>
using Sgemm =
    cutlass::gemm::device::Gemm<float, Row, float, Row, float, Row, float, cutlass::arch::OpClassSimt,
                                cutlass::arch::Sm80, cutlass::gemm::GemmShape<BM, BN, 8>,
                                cutlass::gemm::GemmShape<WM, WN, 8>, cutlass::gemm::GemmShape<1, 1, 1>,
                                cutlass::epilogue::thread::LinearCombination<float, 1, float, float>,
                                cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<8>, STAGES>;

template <class Gemm>
int run(int m, int n, int k, const float* a, const float* b, float* c, float alpha, float beta,
        cudaStream_t stream) {
  Gemm gemm;
  return int(gemm({{m, n, k}, {a, k}, {b, n}, {c, n}, {c, n}, {alpha, beta}}, nullptr, stream));
}

using Entry = int (*)(int, int, int, const float*, const float*, float*, float, float, cudaStream_t);
struct Config {
  const char* name;
  Entry entry;
};
static const Config configs[] = {
    {"256x128x8, warp 64x64, 5 stages", run<Sgemm<256, 128, 64, 64, 5>>},
    {"128x256x8, warp 64x64, 5 stages", run<Sgemm<128, 256, 64, 64, 5>>},
    {"128x128x8, warp 32x64, 5 stages", run<Sgemm<128, 128, 32, 64, 5>>},
    {"128x128x8, warp 32x64, 4 stages", run<Sgemm<128, 128, 32, 64, 4>>},
    {"64x64x8, warp 32x32, 5 stages", run<Sgemm<64, 64, 32, 32, 5>>},
};

static cudaEvent_t begin, end;
static cudaStream_t last = nullptr;

extern "C" int cutlass_config_count() { return sizeof(configs) / sizeof(configs[0]); }
extern "C" const char* cutlass_config_name(int index) { return configs[index].name; }

extern "C" int cutlass_sgemm(int index, int m, int n, int k, const float* a, const float* b, float* c,
                             float alpha, float beta, cudaStream_t stream) {
  last = stream;
  return configs[index].entry(m, n, k, a, b, c, alpha, beta, stream);
}

extern "C" void cutlass_clock_start() {
  if (!begin) {
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
  }
  cudaEventRecord(begin, last);
}

extern "C" float cutlass_clock_stop() {
  float milliseconds = 0;
  cudaEventRecord(end, last);
  cudaEventSynchronize(end);
  cudaEventElapsedTime(&milliseconds, begin, end);
  return milliseconds;
}
