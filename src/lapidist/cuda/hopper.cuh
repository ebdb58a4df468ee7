// Hopper's asynchronous machinery (sm_90 and newer), each instruction wrapped once: mbarriers, the tensor copy engine (TMA),
// register reallocation. PTX ISA, "mbarrier" and "cp.async.bulk.tensor".
#pragma once

#include "ptx.cuh"

// 128 opaque bytes, passed by value as a __grid_constant__ parameter; the driver's cuTensorMapEncodeTiled writes them.
struct alignas(64) TensorMap { char opaque[128]; };

// ---- mbarrier: counts arrivals and bytes; a phase completes when both are in ----

typedef unsigned long long Barrier;

__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the copy engine, which reads shared memory through another proxy.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Arrive, and let the phase wait for `bytes` more from the copy engine.
__device__ __forceinline__ void barrier_arrive_expect(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}

// Arrive when all cp.async of this thread so far are done. The barrier's count has a place for each such thread.
__device__ __forceinline__ void barrier_arrive_after_copies(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// Until the phase of this parity is complete. A fresh barrier counts as having completed the phase of parity 1.
__device__ __forceinline__ void barrier_wait(Barrier* barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}

// ---- TMA: one thread starts the copy of a whole box; what lies outside the matrix arrives as zeros ----

__device__ __forceinline__ void tma_load(void* shared, const TensorMap* map, int inner, int outer, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
      ::"r"(shared_address(shared)), "l"(map), "r"(inner), "r"(outer), "r"(shared_address(barrier)) : "memory");
}

__device__ __forceinline__ void tma_prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// ---- registers move between warpgroups: all four warps of one must execute it ----

template <int Registers> __device__ __forceinline__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers> __device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}
