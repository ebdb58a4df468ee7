// The main loop of gemm/simt.cu: a thread's part of a tile. Tiles pass through registers, or are copied by
// cp.async: each way has its own `multiply`.
#pragma once

#include "config.cuh"
#include "gemm/simt/constants.cuh"

#if COPIED && __CUDA_ARCH__ >= 800
#include "gemm/simt/multiply_copied.cuh"
#else
#include "gemm/simt/multiply_moved.cuh"
#endif
