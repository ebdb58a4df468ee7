// What the roles of gemm/sgemm.cu share: the parameters of the launch by name, and a place in the ring of
// stages.
#pragma once

#include "gemm/sgemm/pipeline.cuh"

// The launch: what is multiplied, where it lies and where D goes. Maps stay where the launch put them.
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
  const Lists* lists;               // of C and D, of an array batch
  const fused::Operands* operands;  // of the caller's function
};

// A barrier is in one of two phases, and its parity says which to wait for. Stages are empty from the start:
// who fills them begins with 1, who reads them with 0.
struct Ring {
  int stage, parity;
  __device__ __forceinline__ void go_on() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
};
