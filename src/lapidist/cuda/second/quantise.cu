// Values that a product's epilogue left, as 8 bits with a factor for each GROUP neighbours of a row: a warp takes
// a group, and a thread four of it. With AMONG_GROUPS rows are those of a grouped product: what belongs to none
// was not written, and is left (share/groups.cuh).
#include "config.cuh"
#include "epilogue_functions.cuh"

constexpr int FOUR = GROUP / 32;

struct alignas(16) Values {
  Value at[FOUR];
};
struct alignas(4) Results {
  Result::Stored at[FOUR];
};

#if AMONG_GROUPS
// C: the last end of all is where rows end; or, if `high` > 0, how many there are in each matrix of so many.
#define GROUPS_PARAMETERS , const Index *C, int count, int total, int high
__device__ __forceinline__ bool belongs(long long row, const Index* ends, int count, int total, int high) {
  if (high == 0) return row < total && row < static_cast<long long>(ends[count - 1]);
  return row % high < static_cast<long long>(ends[row / high]);
}
#else
#define GROUPS_PARAMETERS
#endif

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    quantise(const Value* A, float* B, Result::Stored* D, long long rows, long long d_row, long long d_col,
             long long factor_row, long long factor_col, int columns, int groups GROUPS_PARAMETERS) {
  const long long which = static_cast<long long>(blockIdx.x) * WARPS + threadIdx.x / 32;
  const long long row = which / groups;
  if (row >= rows) return;
#if AMONG_GROUPS
  if (!belongs(row, C, count, total, high)) return;
#endif
  const int group = static_cast<int>(which % groups), first = group * GROUP + threadIdx.x % 32 * FOUR;
  const Value* const from = A + row * columns + first;
  Values held = {};
  if (TOGETHER && first < columns) held = *reinterpret_cast<const Values*>(from);
#pragma unroll
  for (int i = 0; i < FOUR; ++i) {
    if (!TOGETHER && first + i < columns) held.at[i] = from[i];
  }
  Value most = 0;
#pragma unroll
  for (int i = 0; i < FOUR; ++i) most = fused::maximum(most, fused::absolute(held.at[i]));
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    most = fused::maximum(most, __shfl_xor_sync(0xffffffffu, most, step));
  }
  const float wanted = static_cast<float>(most / Value(LARGEST)), factor = wanted == 0 ? 1 : wanted;
  Results found;
#pragma unroll
  for (int i = 0; i < FOUR; ++i) found.at[i] = Result::stored(held.at[i] / Value(factor));
  if (TOGETHER && first < columns) *reinterpret_cast<Results*>(D + row * d_row + first) = found;
#pragma unroll
  for (int i = 0; i < FOUR; ++i) {
    if (!TOGETHER && first + i < columns) D[row * d_row + (first + i) * d_col] = found.at[i];
  }
  if (threadIdx.x % 32 == 0) B[row * factor_row + group * factor_col] = factor;
}
