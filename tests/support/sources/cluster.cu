// Two blocks of a cluster exchange through distributed shared memory, a remote mbarrier and a multicast copy.
#include "hopper.cuh"

__device__ __forceinline__ unsigned rank() {
  unsigned r;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ unsigned in_block(unsigned address, unsigned block) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(block));
  return there;
}
#ifndef ARRIVE
#define ARRIVE "barrier.cluster.arrive.release.aligned;"
#endif
__device__ __forceinline__ void cluster_sync() {
  asm volatile(ARRIVE "\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// out[block][t] = 1000 * (rank of the other block) + t, read from its shared memory.
extern "C" __global__ void exchange(int* out) {
  __shared__ int mine[64];
  mine[threadIdx.x] = 1000 * rank() + threadIdx.x;
  cluster_sync();
  int value;
  asm volatile("ld.shared::cluster.s32 %0, [%1];"
               : "=r"(value)
               : "r"(in_block(shared_address(&mine[threadIdx.x]), rank() ^ 1))
               : "memory");
  out[blockIdx.x * 64 + threadIdx.x] = value;
  cluster_sync();
}

// Every thread tells the other block's barrier; then each block reads what the other wrote into it.
extern "C" __global__ void tell(int* out) {
  __shared__ Barrier told;
  __shared__ int box[64];
  if (threadIdx.x == 0) {
    barrier_init(&told, 64);
    barrier_init_fence();
  }
  cluster_sync();
  const unsigned other = rank() ^ 1;
  asm volatile("st.shared::cluster.s32 [%0], %1;" ::"r"(in_block(shared_address(&box[threadIdx.x]), other)),
               "r"(threadIdx.x + 100 * rank())
               : "memory");
  asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(
                   in_block(shared_address(&told), other))
               : "memory");
  barrier_wait(&told, 0);
  out[blockIdx.x * 64 + threadIdx.x] = box[threadIdx.x ^ 1];
  cluster_sync();
}

// Block 0 of each cluster loads a 16x16 tile for both.
extern "C" __global__ void multicast(const __grid_constant__ TensorMap map, float* out) {
  __shared__ __align__(1024) float tile[256];
  __shared__ Barrier full;
  if (threadIdx.x == 0) {
    barrier_init(&full, 1);
    barrier_init_fence();
    barrier_arrive_expect(&full, 1024);
  }
  cluster_sync();
  if (threadIdx.x == 0 && rank() == 0)
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(tile)),
        "l"(&map), "r"(-4), "r"(8), "r"(shared_address(&full)), "h"((short)3)
        : "memory");
  barrier_wait(&full, 0);
  for (int i = threadIdx.x; i < 256; i += 64) out[blockIdx.x * 256 + i] = tile[i];
}

// Each block adds its 64 numbers to `sums` with one bulk reduction, after storing them with one bulk copy.
extern "C" __global__ void bulk(float* copies, float* sums) {
  __shared__ __align__(16) float line[64];
  line[threadIdx.x] = float(threadIdx.x + blockIdx.x);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  if (threadIdx.x == 0) {
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(copies + blockIdx.x * 64),
        "r"(shared_address(line)), "r"(256)
        : "memory");
    asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(sums),
                 "r"(shared_address(line)), "r"(256)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
  }
}

// A turnstile: blocks add to `total` in the order of their index, then put the flag back to zero.
extern "C" __global__ void turnstile(float* total, const float* parts, int* flag, int blocks) {
  if (threadIdx.x == 0) {
    int turn;
    do {
      asm volatile("ld.acquire.gpu.s32 %0, [%1];" : "=r"(turn) : "l"(flag) : "memory");
    } while (turn != blockIdx.x);
  }
  __syncthreads();
  total[threadIdx.x] = total[threadIdx.x] * 0.5f + parts[blockIdx.x * 64 + threadIdx.x];
  __syncthreads();
  if (threadIdx.x == 0) {
    const int next = blockIdx.x + 1 == blocks ? 0 : blockIdx.x + 1;
    asm volatile("st.release.gpu.s32 [%0], %1;" ::"l"(flag), "r"(next) : "memory");
  }
}

// __syncthreads_count and a histogram by atomics.
extern "C" __global__ void votes(int* out, unsigned* histogram) {
  const int even = __syncthreads_count(threadIdx.x % 2 == 0);
  const int any = __syncthreads_or(threadIdx.x == 77);
  out[threadIdx.x] = even * 10 + any;
  atomicAdd(&histogram[threadIdx.x % 3], 1u);
}

// Every thread sends four numbers to the other block, whose barrier counts the bytes. FAULT 1: nobody waits;
// 2: to itself; 3: the barrier is the sender's own.
#ifndef FAULT
#define FAULT 0
#endif
extern "C" __global__ void post(int* out) {
  __shared__ Barrier told;
  __shared__ __align__(16) int box[64][4];
  if (threadIdx.x == 0) {
    barrier_init(&told, 1);
    barrier_init_fence();
    barrier_arrive_expect(&told, 64 * 16);
  }
  cluster_sync();
  const unsigned other = rank() ^ 1, to = FAULT == 2 ? rank() : other, at = FAULT == 3 ? rank() : to;
  const int first = 1000 * rank() + 4 * threadIdx.x;
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.s32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          in_block(shared_address(box[threadIdx.x]), to)),
      "r"(first), "r"(first + 1), "r"(first + 2), "r"(first + 3), "r"(in_block(shared_address(&told), at))
      : "memory");
  if (FAULT != 1) barrier_wait(&told, 0);
  for (int i = 0; i < 4; ++i) out[(blockIdx.x * 64 + threadIdx.x) * 4 + i] = box[threadIdx.x][i];
  cluster_sync();
}

// Every thread combines a number with one of eight in the other block.
#ifndef REDUCTION
#define REDUCTION "add.s32"
#endif
extern "C" __global__ void tally(int* out, int value) {
  __shared__ Barrier told;
  __shared__ int box[8];
  if (threadIdx.x < 8) box[threadIdx.x] = 0;
  if (threadIdx.x == 0) {
    barrier_init(&told, 1);
    barrier_init_fence();
    barrier_arrive_expect(&told, 64 * 4);
  }
  cluster_sync();
  const unsigned other = rank() ^ 1;
  asm volatile("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes." REDUCTION
               " [%0], %1, [%2];" ::"r"(in_block(shared_address(&box[threadIdx.x % 8]), other)),
               "r"(value ? value : threadIdx.x), "r"(in_block(shared_address(&told), other))
               : "memory");
  barrier_wait(&told, 0);
  if (threadIdx.x < 8) out[blockIdx.x * 8 + threadIdx.x] = box[threadIdx.x];
  cluster_sync();
}
