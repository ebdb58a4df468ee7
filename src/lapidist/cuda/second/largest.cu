// The largest of all values, from the slots that a product's threads left (epilogue_largest.cuh). The slots are
// zero again behind it.
//
//   VALUE, RESULT   what values are, and what is stored, as epilogue_types.cuh calls it
//   ABSOLUTE        1: of values without their signs
#include "epilogue_largest.cuh"

#ifndef VALUE
#define VALUE float
#define RESULT Float32
#define ABSOLUTE 1
#endif
#define THREADS 256

typedef decltype(fused::word_of<ABSOLUTE>(VALUE())) Word;

extern "C" __global__ void __launch_bounds__(THREADS) largest(Word* A, fused::RESULT::Stored* D) {
  __shared__ Word parts[THREADS];
  fused::Largest<Word> own;
#pragma unroll
  for (int slot = threadIdx.x; slot < fused::LARGEST_SLOTS; slot += THREADS) {
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
  if (threadIdx.x == 0) *D = fused::RESULT::stored(fused::value_of<ABSOLUTE>(parts[0]));
}
