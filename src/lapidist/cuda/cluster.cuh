// Blocks of a cluster and each other's shared memory (sm_90 on).
#pragma once
#include "shared_address.cuh"

// All threads of all blocks; what they wrote before it, the others see behind it.
__device__ __forceinline__ void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The same in the beginning, when nothing but mbarriers was written, which barrier_init_fence has published:
// a release would be a fence of all memory, most of a microsecond.
__device__ __forceinline__ void cluster_start() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Where block `rank` of the cluster has what lies at this address of the own shared memory; and 16 bytes sent
// there.
__device__ __forceinline__ unsigned peer_address(unsigned address, int rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
template <typename Sixteen>
__device__ __forceinline__ void send_peer(unsigned address, const Sixteen& value) {
  static_assert(sizeof(Sixteen) == 16, "one store");
  const uint4 bits = reinterpret_cast<const uint4&>(value);
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(bits.x), "r"(bits.y),
               "r"(bits.z), "r"(bits.w)
               : "memory");
}

// The 16 bytes at this place in the shared memory of block `rank` of the cluster.
template <typename Sixteen>
__device__ __forceinline__ Sixteen read_peer(const Sixteen* place, int rank) {
  static_assert(sizeof(Sixteen) == 16, "one load");
  union {
    Sixteen value;
    unsigned at[4];
  } held;
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, %4, %5;\nld.shared::cluster.v4.u32 {%0, %1, %2, "
      "%3}, [there];\n}"
      : "=r"(held.at[0]), "=r"(held.at[1]), "=r"(held.at[2]), "=r"(held.at[3])
      : "r"(shared_address(place)), "r"(rank)
      : "memory");
  return held.value;
}
