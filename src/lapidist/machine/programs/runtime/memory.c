// Memory: what a program allocates, copies and fills.
#include "work.h"

#include <string.h>

static cudaError_t give(void** pointer, size_t nbytes, int kind) {
  cudaError_t error = ASK("allocate", nbytes, U(kind));
  *pointer = error ? NULL : (void*)answered[0];
  return done(error);
}

static cudaError_t give_now(void** pointer, size_t nbytes, int kind) {
  cudaError_t error = require_no_capture();
  return error ? done(error) : give(pointer, nbytes, kind);
}

static cudaError_t take_back(void* pointer) {
  cudaError_t error = pointer == NULL ? SUCCESS : require_no_capture();
  return done(error || pointer == NULL ? error : ASK("free", U(pointer), 0));
}

API cudaError_t cudaMalloc(void** pointer, size_t nbytes) { return give_now(pointer, nbytes, DEVICE); }
API cudaError_t cudaFree(void* pointer) { return take_back(pointer); }
API cudaError_t cudaMallocHost(void** pointer, size_t nbytes) { return give_now(pointer, nbytes, PINNED); }
API cudaError_t cudaHostAlloc(void** pointer, size_t nbytes, unsigned flags) {
  return give_now(pointer, nbytes, PINNED);
}
API cudaError_t cudaFreeHost(void* pointer) { return take_back(pointer); }

API cudaError_t cudaMallocManaged(void** pointer, size_t nbytes, unsigned flags) {
  return give_now(pointer, nbytes, MANAGED);
}

API cudaError_t cudaMallocPitch(void** pointer, size_t* pitch, size_t width, size_t height) {
  *pitch = (width + 511) / 512 * 512;
  return give_now(pointer, *pitch * height, DEVICE);
}

API cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned flags) {
  *device = host;
  return done(ASK("pointer", U(host)));
}

API cudaError_t cudaPointerGetAttributes(void* attributes, const void* pointer) {
  struct {
    int type, device;
    void *device_pointer, *host_pointer;
  }* content = attributes;
  int missing = ASK("pointer", U(pointer)) != SUCCESS;
  content->type = missing ? 0 : answered[0] == DEVICE ? 2 : answered[0] == PINNED ? 1 : 3;
  content->device = missing ? -2 : 0;
  content->device_pointer = missing ? NULL : (void*)pointer;
  content->host_pointer = content->type == 2 ? NULL : (void*)pointer;
  return done(SUCCESS);
}

API cudaError_t cudaMemGetInfo(size_t* unused, size_t* total) {
  cudaError_t error = ASK("room", 0);
  *unused = answered[0], *total = answered[1];
  return done(error);
}

// One that is not asynchronous goes through the default stream, and the program waits for it.
static cudaError_t copy(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                        size_t width, size_t height, int kind, cudaStream_t stream, int is_asynchronous) {
  if (width > target_pitch || width > source_pitch) {
    return done(INVALID_PITCH);
  }
  Place to = {target, target_pitch, 0}, from = {(char*)source, source_pitch, 0};
  Work work = {COPY, .copy = {to, from, width, height, 1, kind, is_asynchronous}};
  return submit(&work, stream);
}

API cudaError_t cudaMemcpy(void* target, const void* source, size_t nbytes, int kind) {
  return copy(target, nbytes, source, nbytes, nbytes, 1, kind, NULL, 0);
}

API cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t nbytes, int kind,
                                cudaStream_t stream) {
  return copy(target, nbytes, source, nbytes, nbytes, 1, kind, stream, 1);
}

API cudaError_t cudaMemcpy2D(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                             size_t width, size_t height, int kind) {
  return copy(target, target_pitch, source, source_pitch, width, height, kind, NULL, 0);
}

API cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source, size_t source_pitch,
                                  size_t width, size_t height, int kind, cudaStream_t stream) {
  return copy(target, target_pitch, source, source_pitch, width, height, kind, stream, 1);
}

API cudaError_t cudaMemcpyPeerAsync(void* target, int target_device, const void* source, int source_device,
                                    size_t nbytes, cudaStream_t stream) {
  cudaError_t error = cudaSetDevice(target_device ? target_device : source_device);
  return error ? error : copy(target, nbytes, source, nbytes, nbytes, 1, 3, stream, RETURNS_EARLY);
}

API cudaError_t cudaMemcpyPeer(void* target, int target_device, const void* source, int source_device,
                               size_t nbytes) {
  cudaError_t error = cudaSetDevice(target_device ? target_device : source_device);
  return error ? error : copy(target, nbytes, source, nbytes, nbytes, 1, 3, NULL, WAITED_FOR);
}

static cudaError_t fill(void* target, size_t pitch, int value, size_t width, size_t height,
                        cudaStream_t stream) {
  Work work = {FILL, .fill = {{target, pitch, 0}, (unsigned)value, 1, width, height, 1}};
  return submit(&work, stream);
}

API cudaError_t cudaMemset(void* target, int value, size_t nbytes) {
  return fill(target, nbytes, value, nbytes, 1, NULL);
}

API cudaError_t cudaMemsetAsync(void* target, int value, size_t nbytes, cudaStream_t stream) {
  return fill(target, nbytes, value, nbytes, 1, stream);
}

API cudaError_t cudaMemset2D(void* target, size_t pitch, int value, size_t width, size_t height) {
  return fill(target, pitch, value, width, height, NULL);
}

API cudaError_t cudaMemset2DAsync(void* target, size_t pitch, int value, size_t width, size_t height,
                                  cudaStream_t stream) {
  return fill(target, pitch, value, width, height, stream);
}

typedef struct {
  void* start;
  size_t pitch, width, height;
} Pitched;

typedef struct {
  size_t width, height, depth;
} Extent;

API cudaError_t cudaMalloc3D(Pitched* pitched, Extent extent) {
  *pitched = (Pitched){NULL, 0, extent.width, extent.height};
  return cudaMallocPitch(&pitched->start, &pitched->pitch, extent.width, extent.height * extent.depth);
}

API cudaError_t cudaMemset3DAsync(Pitched pitched, int value, Extent extent, cudaStream_t stream) {
  Place place = {pitched.start, pitched.pitch, pitched.pitch * pitched.height};
  Work work = {FILL, .fill = {place, (unsigned)value, 1, extent.width, extent.height, extent.depth}};
  return submit(&work, stream);
}

API cudaError_t cudaMemset3D(Pitched pitched, int value, Extent extent) {
  return cudaMemset3DAsync(pitched, value, extent, NULL);
}

API cudaError_t cudaGetSymbolAddress(void** pointer, const void* symbol) {
  cudaError_t error = ASK("symbol", U(symbol));
  *pointer = error ? NULL : (void*)answered[0];
  return done(error);
}

API cudaError_t cudaGetSymbolSize(size_t* nbytes, const void* symbol) {
  cudaError_t error = ASK("symbol", U(symbol));
  *nbytes = error ? 0 : answered[1];
  return done(error);
}

API cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* source, size_t nbytes, size_t offset,
                                   int kind) {
  char* place;
  cudaError_t error = cudaGetSymbolAddress((void**)&place, symbol);
  return error ? error : cudaMemcpy(place + offset, source, nbytes, kind);
}

API cudaError_t cudaMemcpyFromSymbol(void* target, const void* symbol, size_t nbytes, size_t offset,
                                     int kind) {
  char* place;
  cudaError_t error = cudaGetSymbolAddress((void**)&place, symbol);
  return error ? error : cudaMemcpy(target, place + offset, nbytes, kind);
}

API cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* source, size_t nbytes, size_t offset,
                                        int kind, cudaStream_t stream) {
  char* place;
  cudaError_t error = cudaGetSymbolAddress((void**)&place, symbol);
  return error ? error : cudaMemcpyAsync(place + offset, source, nbytes, kind, stream);
}

API cudaError_t cudaMemcpyFromSymbolAsync(void* target, const void* symbol, size_t nbytes, size_t offset,
                                          int kind, cudaStream_t stream) {
  char* place;
  cudaError_t error = cudaGetSymbolAddress((void**)&place, symbol);
  return error ? error : cudaMemcpyAsync(target, place + offset, nbytes, kind, stream);
}

// Copies take any memory of the program's; kernels reach none that the machine does not share.
API cudaError_t cudaHostRegister(void* pointer, size_t nbytes, unsigned flags) {
  return done(ASK("register_host", U(pointer)));
}

// Hints, which change nothing here.
API cudaError_t cudaHostUnregister(void* pointer) { return done(SUCCESS); }
API cudaError_t cudaMemPrefetchAsync(void) { return done(SUCCESS); }
API cudaError_t cudaMemAdvise(void) { return done(SUCCESS); }
API cudaError_t cudaMemPrefetchAsync_v2(void) { return done(SUCCESS); }
API cudaError_t cudaMemPrefetchBatchAsync(void) { return done(SUCCESS); }
API cudaError_t cudaMemAdvise_v2(void) { return done(SUCCESS); }
API cudaError_t cudaStreamAttachMemAsync(void) { return done(SUCCESS); }

API cudaError_t cudaHostGetFlags(unsigned* flags, void* pointer) {
  *flags = 2;  // cudaHostAllocMapped: kernels reach all that cudaHostAlloc gives
  return done(ASK("pointer", U(pointer)));
}

static cudaError_t copy_each(void* const* targets, const void* const* sources, const size_t* sizes,
                             size_t count, cudaStream_t stream) {
  cudaError_t error = SUCCESS;
  for (size_t n = 0; n < count && !error; n++) {
    error = copy(targets[n], sizes[n], sources[n], sizes[n], sizes[n], 1, 4, stream, RETURNS_EARLY);
  }
  return error;
}

#if RUNTIME_VERSION >= 13000
API cudaError_t cudaMemcpyBatchAsync(void* const* targets, const void* const* sources, const size_t* sizes,
                                     size_t count, const void* attributes, const size_t* indices,
                                     size_t attribute_count, cudaStream_t stream) {
  return copy_each(targets, sources, sizes, count, stream);
}
#else
API cudaError_t cudaMemcpyBatchAsync(void* const* targets, const void* const* sources, const size_t* sizes,
                                     size_t count, const void* attributes, const size_t* indices,
                                     size_t attribute_count, size_t* failed, cudaStream_t stream) {
  *failed = SIZE_MAX;
  return copy_each(targets, sources, sizes, count, stream);
}
#endif
