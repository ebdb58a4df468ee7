// Random words of epilogues, a counter and a key a thread.
#include "epilogue_functions.cuh"

extern "C" __global__ void words(const unsigned* counters, const unsigned* keys, unsigned* out) {
  const unsigned i = threadIdx.x;
  const fused::Words counter = {
      {counters[4 * i], counters[4 * i + 1], counters[4 * i + 2], counters[4 * i + 3]}};
  const fused::Words found = fused::philox(counter, keys[2 * i], keys[2 * i + 1]);
  for (int word = 0; word < 4; ++word) out[4 * i + word] = found.at[word];
}
