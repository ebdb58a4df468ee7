// A stand-in for the CUDA runtime: what a program asks is passed on to the machine, which runs in the process
// that started this one. Memory that CUDA gives lies at the same addresses in both.
//
// A request: name (24 bytes), numbers, bytes (4 bytes each); the numbers (8 bytes each); the bytes.
// An answer: cudaError_t, numbers, bytes (4 bytes each); the numbers; the bytes.
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef int cudaError_t;
typedef void* cudaStream_t;

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_CONFIGURATION = 52, NOT_READY = 600, NOT_SUPPORTED = 801 };

typedef struct {
  unsigned x, y, z;
} dim3;

#define API __attribute__((visibility("default")))
#define DRIVER API  // a function of the driver, not of the runtime
#define MOST_NUMBERS 512

// The numbers and bytes of the last answer to this thread.
extern __thread uint64_t answered[MOST_NUMBERS];
extern __thread char* answered_bytes;
extern __thread uint32_t numbers_answered;

// Ask the machine, and return its error.
cudaError_t ask(const char* name, const uint64_t* numbers, uint32_t count, const void* bytes,
                uint32_t nbytes);

#define U(value) ((uint64_t)(value))
#define NUMBERS(...) ((uint64_t[]){__VA_ARGS__}), sizeof((uint64_t[]){__VA_ARGS__}) / 8
#define ASK(name, ...) ask(name, NUMBERS(__VA_ARGS__), NULL, 0)

// Note an error as the thread's last one. After a fault every call fails, as on a card.
cudaError_t done(cudaError_t error);
void fail_from_now_on(cudaError_t error);
int has_failed(void);
cudaError_t cudaSetDevice(int device);
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
// Note that a call is lacking, by its name.
cudaError_t lacking(const char* name);
