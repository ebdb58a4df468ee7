// The sum, the maximum or the largest absolute value of each row of what a product's epilogue left: a block reduces
// CHUNK values that lie one behind another. Its order is that of kernels that join neighbours themselves
// (gemm/wgmma/reduce_in_epilogue.cuh), and of reduce.cu behind them: so all kernels have the same bits.
//
//   neighbours    NEIGHBOURS of a row, in lanes: two columns of a pair, then those 8, 4 and 2 further
//   of a chunk    eight threads take what these became by turns, then join theirs in twos
//
// What blocks have is reduced by the next launch, with one neighbour.
#include "config.cuh"
#include "epilogue_functions.cuh"

constexpr int LANES = 8;
constexpr int CHUNK = THREADS * NEIGHBOURS;

__device__ __forceinline__ Value nothing() { return OPERATION == 1 ? -fused::infinity() : 0; }

__device__ __forceinline__ Value joined(Value x, Value y) {
  return OPERATION == 0 ? x + y : fused::maximum(x, y);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_rows(const Value* A, Result::Stored* D, long long length, long long step, int chunks) {
  __shared__ Value parts[THREADS];
  const long long row = blockIdx.x / chunks, first = static_cast<long long>(blockIdx.x % chunks) * CHUNK;
  const Value* const from = A + row * length + first;
  const int count = static_cast<int>(length - first < CHUNK ? length - first : CHUNK);
#pragma unroll
  for (int turn = 0; turn < NEIGHBOURS; ++turn) {
    const int place = turn * THREADS + threadIdx.x;
    Value found = place < count ? from[place] : nothing();
    if (OPERATION == 2) found = fused::absolute(found);
    if (NEIGHBOURS == 16) found = joined(found, __shfl_xor_sync(0xffffffffu, found, 1));
#pragma unroll
    for (int far = NEIGHBOURS / 2; far > NEIGHBOURS / 16; far /= 2)
      found = joined(found, __shfl_xor_sync(0xffffffffu, found, far));
    if (threadIdx.x % NEIGHBOURS == 0) parts[place / NEIGHBOURS] = found;
  }
  __syncthreads();
  if (threadIdx.x >= LANES) return;
  Value found = nothing();
#pragma unroll
  for (int turn = 0; turn < THREADS / LANES; ++turn) {
    found = joined(found, parts[turn * LANES + threadIdx.x]);
  }
#pragma unroll
  for (int far = LANES / 2; far > 0; far /= 2) {
    found = joined(found, __shfl_xor_sync((1 << LANES) - 1, found, far));
  }
  if (threadIdx.x == 0) D[static_cast<long long>(blockIdx.x) * step] = Result::stored(found);
}
