// Each block makes a tensor map of its own from one that it was given: as grouped products do, whose matrices
// lie anywhere. FAULT leaves one of the two fences out, or both.
#include "config.cuh"

struct alignas(64) Map {
  unsigned words[32];
};

__device__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

extern "C" __global__ void moved_boxes(const __grid_constant__ Map given, Map* maps, float* const* matrices,
                                       const int* rows, float* out) {
  __shared__ alignas(128) Map mine;
  __shared__ alignas(128) float box[8][16];
  __shared__ alignas(8) unsigned long long full;
  int lane = threadIdx.x;
  Map* published = maps + blockIdx.x;
  mine.words[lane] = given.words[lane];
  __syncwarp();
  if (lane == 0) {
    unsigned map = shared_address(&mine);
    asm volatile("tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%0], %1;" ::"r"(map),
                 "l"(matrices[blockIdx.x]));
    asm volatile("tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%0], 1, %1;" ::"r"(map),
                 "r"(rows[blockIdx.x]));
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(shared_address(&full)));
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncwarp();
#if FAULT & 1
  __syncwarp();
  reinterpret_cast<volatile unsigned*>(published->words)[lane] = mine.words[lane];
  __syncwarp();
#else
  asm volatile(
      "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%0], [%1], "
      "128;" ::"l"(published),
      "r"(shared_address(&mine))
      : "memory");
#endif
  __syncwarp();
  if (lane == 0) {
#if !(FAULT & 2)
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(published) : "memory");
#endif
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(&full)),
                 "r"(static_cast<unsigned>(sizeof box)));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
        "%3}], "
        "[%4];" ::"r"(shared_address(box)),
        "l"(published), "r"(0), "r"(2), "r"(shared_address(&full))
        : "memory");
  }
  asm volatile(
      "{ .reg .pred done; AGAIN: mbarrier.try_wait.parity.shared.b64 done, [%0], 0; @!done bra AGAIN; }" ::
          "r"(shared_address(&full))
      : "memory");
  for (int n = lane; n < 128; n += 32) out[128 * blockIdx.x + n] = box[n / 16][n % 16];
}
