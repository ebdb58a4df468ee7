#include <cooperative_groups.h>

// Each step reads what other blocks wrote in the one before.
extern "C" __global__ void heat(float* now, float* next, int n, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int step = 0; step < steps; ++step) {
    if (i < n) next[i] = 0.25f * now[(i + n - 1) % n] + 0.5f * now[i] + 0.25f * now[(i + 1) % n];
    GRID_BARRIER;
    float* held = now;
    now = next;
    next = held;
  }
}
