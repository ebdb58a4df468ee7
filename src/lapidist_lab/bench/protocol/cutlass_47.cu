// CUTLASS's mma.sync kernel for Ampere as a shared library for the bench: its tile of 128 x 128 x 32, warps of
// 64 x 64 and four stages, with a block for each tile and by Stream-K. Its example 47 measures the same two.
// Compiled with ELEMENT, A_LAYOUT, B_LAYOUT and ACCUMULATOR; C and D are row-major, of the element's type.
#include <cuda_runtime.h>

#include <memory>
#include <vector>

#include "cutlass/gemm/device/gemm_universal.h"

using Element = ELEMENT;
using ALayout = cutlass::layout::A_LAYOUT;
using BLayout = cutlass::layout::B_LAYOUT;
using Row = cutlass::layout::RowMajor;
using Sum = ACCUMULATOR;
constexpr int VECTOR = 16 / sizeof(Element);

template <class Swizzle>
using Universal = cutlass::gemm::device::GemmUniversal<
    Element, ALayout, Element, BLayout, Element, Row, Sum, cutlass::arch::OpClassTensorOp,
    cutlass::arch::Sm80, cutlass::gemm::GemmShape<128, 128, 32>, cutlass::gemm::GemmShape<64, 64, 32>,
    cutlass::gemm::GemmShape<16, 8, 16>,
    cutlass::epilogue::thread::LinearCombination<Element, VECTOR, Sum, Sum>, Swizzle, 4, VECTOR, VECTOR>;

// A product made ready: what `run` repeats is the launch alone.
struct Ready {
  virtual ~Ready() = default;
  virtual int run(cudaStream_t stream) = 0;
};

template <class Gemm>
struct ReadyOf : Ready {
  Gemm gemm;
  void* workspace = nullptr;
  int status;

  ReadyOf(int m, int n, int k, const void* a, const void* b, void* d) {
    using cutlass::layout::RowMajor;
    const int lda = std::is_same<ALayout, RowMajor>::value ? k : m;
    const int ldb = std::is_same<BLayout, RowMajor>::value ? n : k;
    typename Gemm::Arguments arguments(cutlass::gemm::GemmUniversalMode::kGemm, {m, n, k}, 1,
                                       {Sum(1), Sum(0)}, a, b, d, d, 0, 0, 0, 0, lda, ldb, n, n);
    status = int(Gemm::can_implement(arguments));
    const size_t bytes = Gemm::get_workspace_size(arguments);
    if (!status && bytes && cudaMalloc(&workspace, bytes)) status = -1;
    if (!status) status = int(gemm.initialize(arguments, workspace));
  }
  ~ReadyOf() override { cudaFree(workspace); }
  int run(cudaStream_t stream) override { return status ? status : int(gemm.run(stream)); }
};

template <class Gemm>
Ready* ready(int m, int n, int k, const void* a, const void* b, void* d) {
  return new ReadyOf<Gemm>(m, n, k, a, b, d);
}

struct Config {
  const char* name;
  Ready* (*ready)(int, int, int, const void*, const void*, void*);
};
static const Config configs[] = {
    {"128x128x32, warp 64x64, 4 stages, a block a tile",
     ready<Universal<cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<>>>},
    {"128x128x32, warp 64x64, 4 stages, Stream-K",
     ready<Universal<cutlass::gemm::threadblock::ThreadblockSwizzleStreamK>>},
};

extern "C" int cutlass_config_count() { return sizeof(configs) / sizeof(configs[0]); }
extern "C" const char* cutlass_config_name(int index) { return configs[index].name; }
extern "C" Ready* cutlass_ready(int index, int m, int n, int k, const void* a, const void* b, void* d) {
  return configs[index].ready(m, n, k, a, b, d);
}
extern "C" int cutlass_run(Ready* ready, cudaStream_t stream) { return ready->run(stream); }
extern "C" void cutlass_free(Ready* ready) { delete ready; }

// Of three launches, after one to warm up; negative: what CUTLASS answered.
extern "C" float cutlass_milliseconds(Ready* ready, cudaStream_t stream) {
  cudaEvent_t begin, end;
  float milliseconds = 0;
  if (const int status = ready->run(stream)) return static_cast<float>(-status);
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  cudaEventRecord(begin, stream);
  for (int i = 0; i < 3; ++i) ready->run(stream);
  cudaEventRecord(end, stream);
  cudaEventSynchronize(end);
  cudaEventElapsedTime(&milliseconds, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return milliseconds;
}
