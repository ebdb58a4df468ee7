// The functions of the driver that programs of the runtime call beside it: most make tensor maps.
#include <stdint.h>
#include <string.h>

#include "stand_in.h"

enum { NOT_FOUND = 1 };  // cudaDriverEntryPointSymbolNotFound

DRIVER int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* address, const uint64_t* shape,
                                  const uint64_t* strides, const uint32_t* box, const uint32_t* steps,
                                  int interleave, int swizzle, int promotion, int fill) {
  uint64_t numbers[32] = {U(type), rank, U(address), U(interleave), U(swizzle), U(promotion), U(fill)};
  if (rank < 1 || rank > 5) {
    return INVALID_VALUE;
  }
  for (unsigned n = 0; n < rank; n++) {
    numbers[7 + n] = shape[n], numbers[12 + n] = n + 1 < rank ? strides[n] : 0;
    numbers[17 + n] = box[n], numbers[22 + n] = steps[n];
  }
  cudaError_t error = ask("tensor_map", numbers, 27, NULL, 0);
  if (!error) {
    memcpy(map, answered_bytes, answered[0]);
  }
  return error;
}

// The driver's errors have the numbers of the runtime's.
DRIVER int cuGetErrorString(int error, const char** text) {
  *text = cudaGetErrorString(error);
  return SUCCESS;
}

DRIVER int cuGetErrorName(int error, const char** name) {
  *name = cudaGetErrorName(error);
  return SUCCESS;
}

DRIVER int cuInit(unsigned flags) { return flags ? INVALID_VALUE : SUCCESS; }

DRIVER int cuDriverGetVersion(int* version) {
  *version = RUNTIME_VERSION;
  return SUCCESS;
}

API cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned version,
                                                 uint64_t flags, int* status) {
  static const struct {
    const char* name;
    void* function;
  } known[] = {{"cuTensorMapEncodeTiled", (void*)cuTensorMapEncodeTiled},
               {"cuGetErrorString", (void*)cuGetErrorString},
               {"cuGetErrorName", (void*)cuGetErrorName},
               {"cuInit", (void*)cuInit},
               {"cuDriverGetVersion", (void*)cuDriverGetVersion}};
  *function = NULL;
  for (unsigned n = 0; n < sizeof known / sizeof *known; n++) {
    *function = strcmp(name, known[n].name) ? *function : known[n].function;
  }
  if (status != NULL) {
    *status = *function ? SUCCESS : NOT_FOUND;
  }
  if (*function == NULL) {
    ask("lacking", NULL, 0, name, strlen(name));
  }
  return done(SUCCESS);
}

API cudaError_t cudaGetDriverEntryPoint(const char* name, void** function, uint64_t flags, int* status) {
  return cudaGetDriverEntryPointByVersion(name, function, 0, flags, status);
}
