// Hopper's asynchronous machinery (sm_90 and newer), each instruction wrapped once: mbarriers, TMA,
// register reallocation. PTX ISA, "mbarrier" and "cp.async.bulk.tensor".
#pragma once

#include "cluster.cuh"
#include "overlap.cuh"
#include "ptx.cuh"

// 128 opaque bytes, passed by value as a __grid_constant__ parameter; the driver's cuTensorMapEncodeTiled
// writes them.
struct alignas(64) TensorMap {
  char opaque[128];
};

// ---- mbarrier: counts arrivals and bytes; a phase completes when both are in ----

typedef unsigned long long Barrier;

__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
}

// Makes initialised barriers visible to TMA, which reads shared memory through another proxy.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive(Barrier* barrier) { barrier_arrive(shared_address(barrier)); }

// Arrive, and let the phase wait for `bytes` more from TMA.
__device__ __forceinline__ void barrier_arrive_expect(Barrier* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

// Arrive when all cp.async of this thread so far are done. The barrier's count has a place for each such
// thread.
__device__ __forceinline__ void barrier_arrive_after_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void barrier_arrive_after_copies(Barrier* barrier) {
  barrier_arrive_after_copies(shared_address(barrier));
}

// Until the phase of this parity is complete. A fresh barrier counts as having completed the phase of parity
// 1.
__device__ __forceinline__ void barrier_wait(unsigned barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void barrier_wait(Barrier* barrier, int parity) {
  barrier_wait(shared_address(barrier), parity);
}

// ---- TMA: one thread starts the copy of a whole box; what lies outside the matrix arrives as zeros ----

__device__ __forceinline__ void tma_load(void* shared, const TensorMap* map, int inner, int outer,
                                         Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
      "[%4];" ::"r"(shared_address(shared)),
      "l"(map), "r"(inner), "r"(outer), "r"(shared_address(barrier))
      : "memory");
}

// A box of a matrix in a batch of two dimensions.
__device__ __forceinline__ void tma_load(void* shared, const TensorMap* map, int inner, int outer, int batch,
                                         int batches, Barrier* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, "
      "%5}], [%6];" ::"r"(shared_address(shared)),
      "l"(map), "r"(inner), "r"(outer), "r"(batch), "r"(batches), "r"(shared_address(barrier))
      : "memory");
}

// The same of what nobody reads again: its lines leave the L2 before others.
__device__ __forceinline__ void tma_load_once(void* shared, const TensorMap* map, int inner, int outer,
                                              int batch, int batches, Barrier* barrier) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%2, %3, %4, %5}], [%6], policy;\n"
      "}\n" ::"r"(shared_address(shared)),
      "l"(map), "r"(inner), "r"(outer), "r"(batch), "r"(batches), "r"(shared_address(barrier))
      : "memory");
}

// To the L2 only, which is coherent: nothing is read, so it may come before the launch that writes these
// elements has ended.
__device__ __forceinline__ void tma_prefetch(const TensorMap* map, int inner, int outer, int batch,
                                             int batches) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(map), "r"(inner),
               "r"(outer), "r"(batch), "r"(batches)
               : "memory");
}

// Bytes that touch, in 16s from a multiple of 16 on, likewise.
__device__ __forceinline__ void bulk_prefetch(unsigned long long from, unsigned bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// To every block of the cluster whose bit is set in `blocks`, at the same place there; each one's barrier is
// told.
__device__ __forceinline__ void tma_load_shared(void* shared, const TensorMap* map, int inner, int outer,
                                                Barrier* barrier, int blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(inner), "r"(outer), "r"(shared_address(barrier)), "h"(static_cast<short>(blocks))
      : "memory");
}
__device__ __forceinline__ void tma_load_shared(void* shared, const TensorMap* map, int inner, int outer,
                                                int batch, int batches, Barrier* barrier, int blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address(shared)),
      "l"(map), "r"(inner), "r"(outer), "r"(batch), "r"(batches), "r"(shared_address(barrier)),
      "h"(static_cast<short>(blocks))
      : "memory");
}

// The way back: what lies outside the matrix is not written. Stores of one thread since its last commit are a
// group.
__device__ __forceinline__ void tma_store(const TensorMap* map, int inner, int outer, const void* shared) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
               "r"(inner), "r"(outer), "r"(shared_address(shared))
               : "memory");
}
__device__ __forceinline__ void tma_store(const TensorMap* map, int inner, int outer, int batch, int batches,
                                          const void* shared) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%1, %2, %3, %4}], [%5];" ::"l"(map),
      "r"(inner), "r"(outer), "r"(batch), "r"(batches), "r"(shared_address(shared))
      : "memory");
}

// The same of what nobody reads soon: its lines leave the L2 before others.
__device__ __forceinline__ void tma_store_once(const TensorMap* map, int inner, int outer, int batch,
                                               int batches, const void* shared) {
  asm volatile(
      "{\n"
      ".reg .b64 policy;\n"
      "createpolicy.fractional.L2::evict_first.b64 policy, 1.0;\n"
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group.L2::cache_hint"
      " [%0, {%1, %2, %3, %4}], [%5], policy;\n"
      "}\n" ::"l"(map),
      "r"(inner), "r"(outer), "r"(batch), "r"(batches), "r"(shared_address(shared))
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until at most `Pending` groups, the youngest, still read shared memory.
template <int Pending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
template <int Pending>
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

// What this thread wrote to shared memory is there for TMA and wgmma, which read through another
// proxy.
__device__ __forceinline__ void proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void tma_prefetch_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// ---- registers move between warpgroups: all four warps of one must execute it ----

template <int Registers>
__device__ __forceinline__ void give_registers_back() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

// Four 8 x 8 matrices of 2-byte elements to shared memory: lanes 8 q .. 8 q + 7 give the addresses of the
// rows of matrix q, and lane t holds elements 2 t % 8 and the next of row t / 4; or of its columns, where
// they are transposed on the way.
template <bool Transposed = false>
__device__ __forceinline__ void store_matrices(unsigned row, unsigned m0, unsigned m1, unsigned m2,
                                               unsigned m3) {
  if constexpr (Transposed)
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(m0),
                 "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
  else
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(m0),
                 "r"(m1), "r"(m2), "r"(m3)
                 : "memory");
}

// ---- clusters: blocks that run together and reach each other's shared memory ----

__device__ __forceinline__ int cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Arrive at the same barrier of block `rank` of the cluster. It says that reads are done, and publishes
// nothing: a release to the cluster would be a fence of all memory, at twice the price of a whole step of
// products.
__device__ __forceinline__ void barrier_arrive_at(Barrier* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
// The same, at what peer_address says; or at home.
template <bool Peer>
__device__ __forceinline__ void barrier_arrive_there(unsigned barrier) {
  if (Peer) asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
  else asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
