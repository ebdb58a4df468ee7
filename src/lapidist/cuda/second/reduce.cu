// The sum, the maximum or the largest absolute value of what a product's epilogue left: a block reduces CHUNK
// values of each of WIDTH neighbouring columns, in an order that only their number decides. What blocks have is
// reduced by the next launch in the same way.
#include "config.cuh"
#include "epilogue_functions.cuh"

constexpr int LANES = THREADS / WIDTH;
constexpr int CHUNK = LANES * IN_TURN;

__device__ __forceinline__ Value nothing() { return OPERATION == 1 ? -fused::infinity() : 0; }

__device__ __forceinline__ Value joined(Value x, Value y) {
  return OPERATION == 0 ? x + y : fused::maximum(x, y);
}

// A holds matrices of length x inner. Blocks come tile by tile of their columns, then chunk by chunk.
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce(const Value* A, Result::Stored* D, long long length, long long outer_step, long long inner_step,
           int inner, int chunks, int tiles) {
  __shared__ Value parts[THREADS];
  const int tile = blockIdx.x % tiles, line = blockIdx.x / tiles, outer = line / chunks;
  const int lane = threadIdx.x / WIDTH, column = tile * WIDTH + threadIdx.x % WIDTH;
  const long long first = static_cast<long long>(line % chunks) * CHUNK;
  const Value* const from = A + (outer * length + first) * inner + column;
  Value found = nothing();
  if (column < inner) {
    const int count = static_cast<int>(length - first < CHUNK ? length - first : CHUNK);
#pragma unroll 8
    for (int turn = 0; turn < IN_TURN; ++turn) {
      const int place = turn * LANES + lane;
      if (place < count) {
        const Value value = from[static_cast<long long>(place) * inner];
        found = joined(found, OPERATION == 2 ? fused::absolute(value) : value);
      }
    }
  }
  parts[threadIdx.x] = found;
  __syncthreads();
  for (int half = THREADS / 2; half >= WIDTH; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] = joined(parts[threadIdx.x], parts[threadIdx.x + half]);
    __syncthreads();
  }
  if (lane == 0 && column < inner) {
    D[line * outer_step + column * inner_step] = Result::stored(parts[threadIdx.x]);
  }
}
