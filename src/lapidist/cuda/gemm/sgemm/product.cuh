// What producer and consumers of gemm/sgemm.cu share: the launch's parameters by name, and the ring of
// stages.
#pragma once

#include "config.cuh"
#include "gemm/sgemm/pipeline.cuh"
#include "share/groups.cuh"

// The launch's parameters. Tensor maps stay in parameter memory, where TMA needs them.
struct Product {
  int M, N, K;
  int batch;  // the inner extent
  Acc alpha, beta;
  const TensorMap &a_map, &b_map;
  const Source &a, &b;
  const T* C;
  T* D;
  i64 c_row, c_col, c_inner, c_outer, d_row, d_inner, d_outer;
  const Modes& modes;
  const Schedule& schedule;
  const Lists* lists;  // of C and D, of an array batch
  const Ragged& ragged;
  const fused::Operands* operands;  // of the caller's function
};

// A position in the ring of stages, with the parity of the barrier phase to wait for. Stages are empty at
// first, so the producer starts with parity 1, and consumers with 0.
struct Ring {
  int stage, parity;
  __device__ __forceinline__ void go_on() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};
