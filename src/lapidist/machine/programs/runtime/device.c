// The device, and the one function of its driver that kernels need.
#include "work.h"

#include <string.h>

API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = *greatest = 0;
  return done(SUCCESS);
}

API cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return done(SUCCESS);
}

API cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return done(SUCCESS);
}

// The machine notes which device was asked for, if it is not the one that there is.
API cudaError_t cudaSetDevice(int device) {
  return done(device == 0 ? SUCCESS : ASK("no_device", U(device)));
}
API cudaError_t cudaSetDeviceFlags(unsigned flags) { return done(SUCCESS); }
API cudaError_t cudaInitDevice(int device, unsigned flags, unsigned more) { return cudaSetDevice(device); }
API cudaError_t cudaDeviceReset(void) { return done(SUCCESS); }
API cudaError_t cudaDeviceSetCacheConfig(int config) { return done(SUCCESS); }
API cudaError_t cudaDeviceSetSharedMemConfig(int config) { return done(SUCCESS); }
API cudaError_t cudaProfilerStart(void) { return done(SUCCESS); }
API cudaError_t cudaProfilerStop(void) { return done(SUCCESS); }

API cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  *can = 0;
  return done(device || peer ? ASK("no_device", U(device ? device : peer)) : SUCCESS);
}

API cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  return cudaSetDevice(peer ? peer : 1);
}
API cudaError_t cudaDeviceDisablePeerAccess(int peer) { return cudaSetDevice(peer ? peer : 1); }

API cudaError_t cudaChooseDevice(int* device, const void* properties) {
  *device = 0;
  return done(SUCCESS);
}

API cudaError_t cudaSetValidDevices(int* devices, int count) { return cudaSetDevice(count ? devices[0] : 0); }

API cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  *flags = 0;
  return done(SUCCESS);
}

API cudaError_t cudaDeviceGetCacheConfig(int* config) {
  *config = 0;
  return done(SUCCESS);
}

API cudaError_t cudaDeviceSynchronize(void);

// Bytes of a thread's stack, of printf's buffer and of the heap; depth and launches of kernels by kernels; bytes
// that L2 fetches, and keeps. They are kept, and limit nothing.
static size_t limits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0};
enum { HEAP = 2, LIMITS = sizeof limits / sizeof *limits, UNSUPPORTED_LIMIT = 215 };

API cudaError_t cudaDeviceSetLimit(unsigned limit, size_t value) {
  if (limit >= LIMITS) {
    return done(UNSUPPORTED_LIMIT);
  }
  limits[limit] = value;
  return done(limit == HEAP ? ASK("heap_limit", value) : SUCCESS);
}

API cudaError_t cudaDeviceGetLimit(size_t* value, unsigned limit) {
  *value = limit < LIMITS ? limits[limit] : 0;
  return done(limit < LIMITS ? SUCCESS : UNSUPPORTED_LIMIT);
}

// Names of CUDA 12 and older.
API cudaError_t cudaThreadSetLimit(unsigned limit, size_t value) { return cudaDeviceSetLimit(limit, value); }
API cudaError_t cudaThreadGetLimit(size_t* value, unsigned limit) { return cudaDeviceGetLimit(value, limit); }
API cudaError_t cudaThreadSynchronize(void) { return cudaDeviceSynchronize(); }
API cudaError_t cudaThreadExit(void) { return done(SUCCESS); }
API cudaError_t cudaThreadSetCacheConfig(int config) { return done(SUCCESS); }
API cudaError_t cudaThreadGetCacheConfig(int* config) { return cudaDeviceGetCacheConfig(config); }
API cudaError_t cudaSetDoubleForDevice(double* number) { return done(SUCCESS); }
API cudaError_t cudaSetDoubleForHost(double* number) { return done(SUCCESS); }

API cudaError_t cudaDeviceGetSharedMemConfig(int* config) {
  *config = 1;  // banks of four bytes
  return done(SUCCESS);
}

static const char BUS[] = "0000:00:00.0";

API cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
  strncpy(text, BUS, length > 0 ? length : 0);
  return length < (int)sizeof BUS ? done(INVALID_VALUE) : cudaSetDevice(device);
}

API cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* text) {
  *device = 0;
  return done(strstr(text, "00:00.0") ? SUCCESS : INVALID_VALUE);
}

API cudaError_t cudaGetDeviceProperties(void* properties, int device) {
  cudaError_t error = ASK("properties", U(device));
  if (!error) {
    memcpy(properties, answered_bytes, answered[0]);
  }
  return done(error);
}

API cudaError_t cudaGetDeviceProperties_v2(void* properties, int device) {
  return cudaGetDeviceProperties(properties, device);
}

API cudaError_t cudaDeviceGetAttribute(int* value, int attribute, int device) {
  cudaError_t error = ASK("attribute", U(attribute), U(device));
  *value = error ? 0 : (int)answered[0];
  return done(error);
}

API cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = RUNTIME_VERSION;
  return done(SUCCESS);
}

API cudaError_t cudaDriverGetVersion(int* version) { return cudaRuntimeGetVersion(version); }
