// The largest of all values, from the slots that a product's threads left (epilogue_largest.cuh). The slots are
// zero again behind it.
#include "config.cuh"
#include "epilogue_largest.cuh"

typedef decltype(fused::word_of<ABSOLUTE>(Value())) Word;

extern "C" __global__ void __launch_bounds__(THREADS) largest(Word* A, Result::Stored* D) {
  __shared__ Word parts[THREADS];
  fused::Largest<Word> own;
#pragma unroll
  for (int slot = threadIdx.x; slot < LARGEST_SLOTS; slot += THREADS) {
    own.add(A[slot]);
    A[slot] = 0;
  }
  parts[threadIdx.x] = own.found;
  __syncthreads();
  for (int half = THREADS / 2; half > 0; half /= 2) {
    if (threadIdx.x < half && parts[threadIdx.x] < parts[threadIdx.x + half]) {
      parts[threadIdx.x] = parts[threadIdx.x + half];
    }
    __syncthreads();
  }
  if (threadIdx.x == 0) *D = Result::stored(fused::value_of<ABSOLUTE>(parts[0]));
}
