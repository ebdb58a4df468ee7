// Fat binaries, kernels and variables as nvcc's code registers them, and launches.
#include "work.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  uint32_t magic, version;
  const char* content;
  void* filename;
} Wrapper;

typedef struct {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
} Configuration;

typedef struct {
  int id;
  AttributeValue value;
} Attribute;

typedef struct {
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;
  Attribute* attributes;
  unsigned count;
} LaunchConfig;

enum { MOST_NESTED = 32 };

API void** __cudaRegisterFatBinary(void* text) {
  const Wrapper* wrapper = text;
  uint64_t nbytes;
  memcpy(&nbytes, wrapper->content + 8, 8);
  ask("module", NULL, 0, wrapper->content, 16 + (uint32_t)nbytes);
  void** handle = malloc(sizeof *handle);
  *handle = (void*)answered[0];
  return handle;
}

API void __cudaRegisterFatBinaryEnd(void** handle) {}
API void __cudaUnregisterFatBinary(void** handle) {}
API char __cudaInitModule(void** handle) { return 1; }

API void __cudaRegisterFunction(void** handle, const char* host, char* device, const char* name, int limit,
                                void* tid, void* bid, void* block, void* grid, int* size) {
  ask("kernel", NUMBERS(U(*handle), U(host)), name, strlen(name));
}

API void __cudaRegisterVar(void** handle, char* host, char* address, const char* name, int ext, size_t nbytes,
                           int constant, int global) {
  ask("variable", NUMBERS(U(*handle), U(host), nbytes), name, strlen(name));
}

API void __cudaRegisterManagedVar(void** handle, void** host, char* address, const char* name, int ext,
                                  size_t nbytes, int constant, int global) {
  ask("managed_variable", NUMBERS(U(*handle), U(host), nbytes), name, strlen(name));
  *host = (void*)answered[0];
}

static __thread Configuration configurations[MOST_NESTED];
static __thread int depth;

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  if (depth == MOST_NESTED) {
    return done(NO_CONFIGURATION);
  }
  configurations[depth++] = (Configuration){grid, block, shared, stream};
  return SUCCESS;
}

API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (depth == 0) {
    return done(NO_CONFIGURATION);
  }
  const Configuration* last = &configurations[--depth];
  *grid = last->grid, *block = last->block, *shared = last->shared;
  *(cudaStream_t*)stream = last->stream;
  return SUCCESS;
}

static cudaError_t launch(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                          cudaStream_t stream, int cooperative, dim3 cluster, int overlaps) {
  Work work = {KERNEL};
  cudaError_t error = prepare_kernel(&work.kernel, kernel, grid, block, arguments, shared);
  if (error) {
    return done(error);
  }
  work.kernel.cooperative = cooperative, work.kernel.cluster = cluster, work.kernel.overlaps = overlaps;
  return submit(&work, stream);
}

static const dim3 ONE = {1, 1, 1};

API cudaError_t cudaLaunchKernel(const void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                                 cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared, stream, 0, ONE, 0);
}

API cudaError_t __cudaLaunchKernel(void* kernel, dim3 grid, dim3 block, void** arguments, size_t shared,
                                   cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared, stream, 0, ONE, 0);
}

API cudaError_t cudaLaunchCooperativeKernel(const void* kernel, dim3 grid, dim3 block, void** arguments,
                                            size_t shared, cudaStream_t stream) {
  return launch(kernel, grid, block, arguments, shared, stream, 1, ONE, 0);
}

typedef struct {
  dim3 cluster;
  int cooperative, overlaps;
} Chosen;

static Chosen chosen_by(const LaunchConfig* config) {
  Chosen chosen = {ONE, 0, 0};
  for (unsigned n = 0; n < config->count; n++) {
    const Attribute* attribute = &config->attributes[n];
    if (attribute->id == CLUSTER) {
      chosen.cluster = attribute->value.cluster;
    } else if (attribute->id == COOPERATIVE) {
      chosen.cooperative = attribute->value.number;
    } else if (attribute->id == OVERLAPS) {
      chosen.overlaps = attribute->value.number;
    }
  }
  return chosen;
}

const char* lacking_attribute(unsigned attribute) {
  switch (attribute) {
    case EARLY_EVENT:
      return "cudaLaunchAttributeProgrammaticEvent";
    case START_EVENT:
      return "cudaLaunchAttributeLaunchCompletionEvent";
    case UPDATED_BY_KERNELS:
      return "cudaLaunchAttributeDeviceUpdatableKernelNode";
    default:
      return NULL;
  }
}

API cudaError_t cudaLaunchKernelExC(const LaunchConfig* config, const void* kernel, void** arguments) {
  for (unsigned n = 0; n < config->count; n++) {
    const char* name = lacking_attribute((unsigned)config->attributes[n].id);
    if (name != NULL) {
      return lacking(name);
    }
  }
  Chosen chosen = chosen_by(config);
  return launch(kernel, config->grid, config->block, arguments, config->shared, config->stream,
                chosen.cooperative, chosen.cluster, chosen.overlaps);
}

API cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* kernel,
                                               const LaunchConfig* config) {
  dim3 size = chosen_by(config).cluster, block = config->block;
  cudaError_t error =
      ASK("clusters", U(kernel), size.x * size.y * size.z, block.x * block.y * block.z, config->shared);
  *clusters = error ? 0 : (int)answered[0];
  return done(error);
}

// Kernels are known by the address of their host function.
API cudaError_t __cudaGetKernel(void** kernel, const void* host) {
  *kernel = (void*)host;
  return SUCCESS;
}

API cudaError_t cudaGetKernel(void** kernel, const void* host) { return __cudaGetKernel(kernel, host); }

API cudaError_t cudaGetFuncBySymbol(void** function, const void* host) {
  return __cudaGetKernel(function, host);
}

API cudaError_t cudaFuncSetAttribute(const void* kernel, int attribute, int value) {
  return done(ASK("set_kernel_attribute", U(kernel), U(attribute), U(value)));
}

API cudaError_t cudaKernelSetAttributeForDevice(const void* kernel, int attribute, int value, int device) {
  cudaError_t error = cudaSetDevice(device);
  return error ? error : cudaFuncSetAttribute(kernel, attribute, value);
}

API cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  cudaError_t error = ASK("kernel_name", U(kernel));
  *name = error ? NULL : strdup(answered_bytes);
  return done(error);
}

API cudaError_t cudaFuncGetParamInfo(const void* kernel, size_t number, size_t* offset, size_t* nbytes) {
  cudaError_t error = ASK("parameters", U(kernel));
  if (error || number >= numbers_answered / 2) {
    return done(error ? error : INVALID_VALUE);
  }
  *offset = answered[2 * number];
  if (nbytes != NULL) {
    *nbytes = answered[2 * number + 1];
  }
  return done(SUCCESS);
}

API cudaError_t cudaFuncSetCacheConfig(const void* kernel, int config) { return done(SUCCESS); }
API cudaError_t cudaFuncSetSharedMemConfig(const void* kernel, int config) { return done(SUCCESS); }

API cudaError_t cudaFuncGetAttributes(void* attributes, const void* kernel) {
  cudaError_t error = ASK("kernel_attributes", U(kernel));
  if (!error) {
    size_t* sizes = attributes;  // static shared, constant, local
    int* numbers = (int*)(sizes + 3);
    memset(attributes, 0, 3 * sizeof *sizes + 7 * sizeof *numbers);
    for (int n = 0; n < 3; n++) {
      sizes[n] = answered[n];
    }
    for (int n = 0; n < 7; n++) {
      numbers[n] = (int)answered[3 + n];
    }
  }
  return done(error);
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* kernel,
                                                                       int threads, size_t shared,
                                                                       unsigned flags) {
  cudaError_t error = ASK("occupancy", U(kernel), U(threads), shared);
  *blocks = error ? 0 : (int)answered[0];
  return done(error);
}

// The most blocks of a cluster, up to the eight that every chip takes.
API cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void* kernel,
                                                     const LaunchConfig* config) {
  dim3 block = config->block;
  cudaError_t error = SUCCESS;
  for (*size = 8; *size > 1 && !error; *size /= 2) {
    error = ASK("clusters", U(kernel), U(*size), block.x * block.y * block.z, config->shared);
    if (!error && answered[0] > 0) {
      break;
    }
  }
  return done(error);
}

// What is left of an SM's shared memory for each of so many blocks.
API cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* nbytes, const void* kernel, int blocks,
                                                          int threads) {
  cudaError_t error = ASK("dynamic_shared", U(kernel), U(blocks), U(threads));
  *nbytes = error ? 0 : answered[0];
  return done(error);
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                              size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}
