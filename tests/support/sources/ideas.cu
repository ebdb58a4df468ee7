// Kernels by idea, as authors write them: what each does is known from its name, and its result from NumPy.
using u32 = unsigned;

__device__ float warp_sum(float value) {
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
  return value;
}

__device__ float warp_max(float value) {
  for (int step = 16; step; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, step));
  return value;
}

// One block a row; BARRIER stands between the sums of warps and their use.
template <typename Reduce>
__device__ float block_reduce(float value, float neutral, Reduce reduce) {
  __shared__ float parts[32];
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  value = reduce(value);
  __syncthreads();  // a reduction before may still be read
  if (threadIdx.x % 32 == 0) parts[warp] = value;
  BARRIER;
  return reduce(threadIdx.x % 32 < warps ? parts[threadIdx.x % 32] : neutral);
}

extern "C" __global__ void softmax(const float* x, float* y, int columns) {
  const float* row = x + blockIdx.x * columns;
  float largest = -INFINITY, sum = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) largest = fmaxf(largest, row[i]);
  largest = block_reduce(largest, -INFINITY, warp_max);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - largest);
  sum = block_reduce(sum, 0, warp_sum);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    y[blockIdx.x * columns + i] = expf(row[i] - largest) / sum;
  }
}

extern "C" __global__ void layer_norm(const float* x, const float* gain, const float* bias, float* y,
                                      int columns) {
  const float* row = x + blockIdx.x * columns;
  float sum = 0, squares = 0;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += row[i];
  const float mean = block_reduce(sum, 0, warp_sum) / columns;
  for (int i = threadIdx.x; i < columns; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
  const float scale = rsqrtf(block_reduce(squares, 0, warp_sum) / columns + 1e-5f);
  for (int i = threadIdx.x; i < columns; i += blockDim.x) {
    y[blockIdx.x * columns + i] = (row[i] - mean) * scale * gain[i] + bias[i];
  }
}

// Counts in shared memory, then one atomic a bin and block.
extern "C" __global__ void histogram(const unsigned char* x, int n, u32* counts) {
  __shared__ u32 mine[256];
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) mine[bin] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
    atomicAdd(&mine[x[i]], 1);
  BARRIER;
  for (int bin = threadIdx.x; bin < 256; bin += blockDim.x) {
    if (mine[bin]) atomicAdd(&counts[bin], mine[bin]);
  }
}

// Inclusive sums of a block's elements: warps, then the sums of warps.
__device__ int block_scan(int value, int* sums) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int step = 1; step < 32; step *= 2) {
    const int below = __shfl_up_sync(0xffffffff, value, step);
    if (lane >= step) value += below;
  }
  if (lane == 31) sums[warp] = value;
  BARRIER;
  for (int before = 0; before < warp; ++before) value += sums[before];
  return value;
}

// One pass over the grid: each block looks back at the sum of those before it. Blocks are numbered as they start,
// since nobody promises an order. status: 0, or 1 + the sum of all elements up to a block's end; then the ticket.
extern "C" __global__ void scan(const int* x, int* y, int n, u32* status) {
  __shared__ int sums[32], before, number;
  if (threadIdx.x == 0) number = atomicAdd(status + gridDim.x, 1);
  __syncthreads();
  const int block = number, i = block * blockDim.x + threadIdx.x;
  const int value = block_scan(i < n ? x[i] : 0, sums);
  if (threadIdx.x == blockDim.x - 1) {
    u32 seen = 1;
    while (block > 0) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(status + block - 1) : "memory");
      if (seen) break;
    }
    before = seen - 1;
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(status + block), "r"(seen + value) : "memory");
  }
  __syncthreads();
  if (i < n) y[i] = before + value;
}

extern "C" __global__ void bitonic_sort(int* x) {
  extern __shared__ int keys[];
  const int t = threadIdx.x;
  keys[t] = x[t];
  for (int size = 2; size <= blockDim.x; size *= 2) {
    for (int step = size / 2; step; step /= 2) {
      BARRIER;
      const int other = t ^ step;
      if (other > t && (keys[t] > keys[other]) == ((t & size) == 0)) {
        const int held = keys[t];
        keys[t] = keys[other];
        keys[other] = held;
      }
    }
  }
  __syncthreads();
  x[t] = keys[t];
}
