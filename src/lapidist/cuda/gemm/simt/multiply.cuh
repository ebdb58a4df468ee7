// Multiplying: a thread's part in the products of a tile of gemm/simt.cu. Tiles come through registers, or past
// them: `multiply` is there once for each way.
#pragma once

#include "gemm/simt/config.cuh"

#if STAGES > 2
#include "gemm/simt/multiply_copied.cuh"
#else
#include "gemm/simt/multiply_moved.cuh"
#endif
