// Kernels, copies and fills, done now. The machine says where parameters lie and whether a copy is right; copies
// are made here.
#include "work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cudaError_t prepare_kernel(KernelWork* work, const void* kernel, dim3 grid, dim3 block, void** arguments,
                           size_t shared) {
  cudaError_t error = ASK("parameters", U(kernel));
  if (error) {
    return error;
  }
  *work = (KernelWork){kernel, grid, block, {1, 1, 1}, shared};
  work->count = numbers_answered / 2;
  work->arguments = calloc(work->count + 1, sizeof(void*));
  for (uint32_t n = 0; n < work->count; n++) {
    work->nbytes = answered[2 * n] + answered[2 * n + 1];
  }
  work->bytes = calloc(1, work->nbytes + 1);
  for (uint32_t n = 0; n < work->count; n++) {
    work->arguments[n] = work->bytes + answered[2 * n];
    memcpy(work->arguments[n], arguments[n], answered[2 * n + 1]);
  }
  return SUCCESS;
}

// The machine's answer is the fault that a card would report from then on.
static cudaError_t run_kernel(const KernelWork* work, cudaStream_t stream) {
  dim3 grid = work->grid, block = work->block, cluster = work->cluster;
  fflush(stdout);  // before what the kernel prints
  cudaError_t error =
      ask("launch",
          NUMBERS(U(work->kernel), grid.x, grid.y, grid.z, block.x, block.y, block.z, work->shared, U(stream),
                  U(work->cooperative), cluster.x, cluster.y, cluster.z, U(work->overlaps)),
          work->bytes, work->nbytes);
  if (!error && answered[0]) {
    fail_from_now_on(answered[0]);
  }
  return error;
}

static char* row_of(const Place* place, size_t row, size_t plane) {
  return place->start + row * place->pitch + plane * place->slice;
}

static cudaError_t run_copy(const CopyWork* work, cudaStream_t stream) {
  const Place *target = &work->target, *source = &work->source;
  cudaError_t error = ASK("copy", U(target->start), target->pitch, target->slice, U(source->start),
                          source->pitch, source->slice, work->width, work->height, work->depth, U(work->kind),
                          U(stream), U(work->is_asynchronous));
  for (size_t plane = 0; !error && plane < work->depth; plane++) {
    for (size_t row = 0; row < work->height; row++) {
      memmove(row_of(target, row, plane), row_of(source, row, plane), work->width);
    }
  }
  return error;
}

static cudaError_t run_fill(const FillWork* work, cudaStream_t stream) {
  const Place* target = &work->target;
  cudaError_t error = ASK("fill", U(target->start), target->pitch, target->slice, work->width * work->element,
                          work->height, work->depth, U(stream));
  for (size_t plane = 0; !error && plane < work->depth; plane++) {
    for (size_t row = 0; row < work->height; row++) {
      char* place = row_of(target, row, plane);
      if (work->element == 1) {
        memset(place, work->value, work->width);
      }
      for (size_t n = 0; work->element > 1 && n < work->width; n++) {
        memcpy(place + n * work->element, &work->value, work->element);
      }
    }
  }
  return error;
}

cudaError_t perform(const Work* work, cudaStream_t stream) {
  switch (work->kind) {
    case KERNEL:
      return run_kernel(&work->kernel, stream);
    case COPY:
      return run_copy(&work->copy, stream);
    case FILL:
      return run_fill(&work->fill, stream);
    case HOST:
      work->host.function(work->host.data);
      return SUCCESS;
    case WAIT:
      return stream_waits(stream, work->event);
    case RECORD:
      return record_event(work->event, stream);
    case ALLOCATE:
      return ASK("revive", U(work->memory.address));
    case RELEASE:
      return ASK("free", U(work->memory.address), 1);
    default:
      return SUCCESS;
  }
}

// What is wrong with a piece of work, whoever does it.
static cudaError_t fault_of(const Work* work) {
  const CopyWork* copy = &work->copy;
  const FillWork* fill = &work->fill;
  int is_wide = work->kind == COPY && (copy->height > 1 || copy->depth > 1) &&
                (copy->width > copy->target.pitch || copy->width > copy->source.pitch);
  int is_odd = work->kind == FILL && fill->element != 1 && fill->element != 2 && fill->element != 4;
  return is_wide ? INVALID_PITCH : is_odd ? INVALID_VALUE : SUCCESS;
}

cudaError_t submit(Work* work, cudaStream_t handle) {
  Stream* stream = stream_of(handle);
  cudaError_t error = fault_of(work);
  if (!error && stream->capture != NULL) {
    return done(capture_work(stream, work));
  }
  if (!error) {
    error = require_no_implicit_wait(handle);
  }
  if (!error) {
    int had_failed = has_failed();
    error = perform(work, handle);
    if (!had_failed && has_failed()) {
      drop_work(work);
      return SUCCESS;  // the fault shows in the calls behind it
    }
  }
  drop_work(work);
  return done(error);
}

Work plain_copy(void* target, const void* source, size_t nbytes, int kind, int is_asynchronous) {
  Place to = {target, nbytes, nbytes}, from = {(char*)source, nbytes, nbytes};
  return (Work){COPY, .copy = {to, from, nbytes, 1, 1, kind, is_asynchronous}};
}

Work symbol_copy(void* address, const void* symbol, size_t nbytes, size_t offset, int kind, int is_to_symbol,
                 cudaError_t* error) {
  *error = ASK("symbol", U(symbol));
  char* place = *error ? NULL : (char*)answered[0] + offset;
  return is_to_symbol ? plain_copy(place, address, nbytes, kind, 1)
                      : plain_copy(address, place, nbytes, kind, 1);
}

Work copied_work(const Work* work) {
  Work copy = *work;
  if (work->kind == KERNEL) {
    const KernelWork* from = &work->kernel;
    KernelWork* to = &copy.kernel;
    to->bytes = malloc(from->nbytes + 1);
    memcpy(to->bytes, from->bytes, from->nbytes);
    to->arguments = calloc(from->count + 1, sizeof(void*));
    for (uint32_t n = 0; n < from->count; n++) {
      to->arguments[n] = to->bytes + ((char*)from->arguments[n] - from->bytes);
    }
  }
  return copy;
}

void drop_work(Work* work) {
  if (work->kind == KERNEL) {
    free(work->kernel.bytes);
    free(work->kernel.arguments);
  }
}
