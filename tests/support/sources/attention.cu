// Flash attention in float32: a warp fetches tiles of K and V by TMA, ahead of two warps with a row of Q a thread.
using u32 = unsigned;
using u64 = unsigned long long;

constexpr int DEPTH = 32, TILE = 32, STAGES = 2, ROWS = 64;
constexpr u32 BYTES = 2 * TILE * DEPTH * sizeof(float);

struct alignas(64) Map {
  char bytes[128];
};

__device__ u32 place(const void* shared) { return static_cast<u32>(__cvta_generic_to_shared(shared)); }

__device__ void init(u64* barrier, u32 count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(place(barrier)), "r"(count) : "memory");
}

__device__ void wait(u64* barrier, u32 parity) {
  u32 done;
  do {
    asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p;}"
                 : "=r"(done)
                 : "r"(place(barrier)), "r"(parity)
                 : "memory");
  } while (!done);
}

__device__ void fetch(void* target, const Map* map, int row, u64* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(place(target)),
      "l"(map), "r"(0), "r"(row), "r"(place(barrier))
      : "memory");
}

extern "C" __global__ void attention(const __grid_constant__ Map k_map, const __grid_constant__ Map v_map,
                                     const float* q, float* out, int rows) {
  __shared__ alignas(128) float tiles[STAGES][2][TILE][DEPTH];
  __shared__ u64 full[STAGES], empty[STAGES];
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < STAGES; ++stage) init(full + stage, 1), init(empty + stage, ROWS);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  const int count = (rows + TILE - 1) / TILE;
  if (threadIdx.x >= ROWS) {
    if (threadIdx.x != ROWS) return;
    for (int tile = 0; tile < count; ++tile) {
      const int stage = tile % STAGES;
      WAIT_EMPTY(empty + stage, tile / STAGES % 2 ^ 1);
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(place(full + stage)), "r"(BYTES)
                   : "memory");
      fetch(tiles[stage][0], &k_map, tile * TILE, full + stage);
      fetch(tiles[stage][1], &v_map, tile * TILE, full + stage);
    }
    return;
  }
  const int row = blockIdx.x * ROWS + threadIdx.x;
  float mine[DEPTH], sums[DEPTH] = {}, largest = -1e30f, total = 0;
  for (int d = 0; d < DEPTH; ++d) mine[d] = row < rows ? q[row * DEPTH + d] : 0;
  for (int tile = 0; tile < count; ++tile) {
    const int stage = tile % STAGES;
    WAIT_FULL(full + stage, tile / STAGES % 2);
    for (int key = 0; key < TILE && tile * TILE + key < rows; ++key) {
      float score = 0;
      for (int d = 0; d < DEPTH; ++d) score += mine[d] * tiles[stage][0][key][d];
      const float before = largest;
      largest = fmaxf(largest, score);
      const float shrink = expf(before - largest), weight = expf(score - largest);
      total = total * shrink + weight;
      for (int d = 0; d < DEPTH; ++d) sums[d] = sums[d] * shrink + weight * tiles[stage][1][key][d];
    }
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(place(empty + stage)) : "memory");
  }
  for (int d = 0; d < DEPTH; ++d) {
    if (row < rows) out[row * DEPTH + d] = sums[d] / total;
  }
}
