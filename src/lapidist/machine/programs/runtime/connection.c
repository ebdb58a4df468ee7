// The connection to the machine, and errors.
#include "stand_in.h"

#include <pthread.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

__thread uint64_t answered[MOST_NUMBERS];
__thread char* answered_bytes;
__thread uint32_t numbers_answered;
static __thread cudaError_t last_error;
static volatile cudaError_t fault;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int channel = -1;

static void end(const char* reason) {
  fprintf(stderr, "lapidist: the CUDA runtime's stand-in %s\n", reason);
  _exit(3);
}

// LAPIDIST_MACHINE names the channel, the file of the memory, where it begins, and its bytes.
static void connect_once(void) {
  if (channel >= 0) {
    return;
  }
  const char* text = getenv("LAPIDIST_MACHINE");
  int memory;
  unsigned long long start, nbytes;
  if (text == NULL || sscanf(text, "%d %d %llu %llu", &channel, &memory, &start, &nbytes) != 4) {
    end("works under `lapidist run` alone: start the program by it");
  }
  fcntl(channel, F_SETFD, FD_CLOEXEC);
  fcntl(memory, F_SETFD, FD_CLOEXEC);
  void* wanted = (void*)start;
  if (mmap(wanted, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE | MAP_NORESERVE, memory,
           0) != wanted) {
    end("found its addresses in use: is the program linked at a fixed address, or is `ulimit -v` set?");
  }
}

static void send_all(const void* bytes, size_t nbytes) {
  for (const char* next = bytes; nbytes > 0;) {
    ssize_t sent = write(channel, next, nbytes);
    if (sent <= 0) {
      end("lost the machine");
    }
    next += sent, nbytes -= sent;
  }
}

static void receive_all(void* bytes, size_t nbytes) {
  for (char* next = bytes; nbytes > 0;) {
    ssize_t received = read(channel, next, nbytes);
    if (received <= 0) {
      _exit(3);  // the machine has said why
    }
    next += received, nbytes -= received;
  }
}

cudaError_t ask(const char* name, const uint64_t* numbers, uint32_t count, const void* bytes,
                uint32_t nbytes) {
  struct {
    char name[24];
    uint32_t count, nbytes;
  } request = {{0}, count, nbytes};
  struct {
    int32_t error;
    uint32_t count, nbytes;
  } answer;
  if (fault && strncmp(name, "error_", 6) != 0) {
    return fault;
  }
  strncpy(request.name, name, sizeof request.name - 1);
  pthread_mutex_lock(&turn);
  connect_once();
  send_all(&request, sizeof request);
  send_all(numbers, 8 * (size_t)count);
  send_all(bytes, nbytes);
  receive_all(&answer, sizeof answer);
  receive_all(answered, 8 * (size_t)answer.count);
  numbers_answered = answer.count;
  answered_bytes = realloc(answered_bytes, answer.nbytes + 1);
  receive_all(answered_bytes, answer.nbytes);
  answered_bytes[answer.nbytes] = 0;
  pthread_mutex_unlock(&turn);
  return answer.error;
}

void fail_from_now_on(cudaError_t error) { fault = error; }
int has_failed(void) { return fault != SUCCESS; }

cudaError_t done(cudaError_t error) {
  if (fault) {
    error = fault;
  }
  if (error && error != NOT_READY) {
    last_error = error;
  }
  return error;
}

API cudaError_t cudaPeekAtLastError(void) { return fault ? fault : last_error; }

API cudaError_t cudaGetLastError(void) {
  cudaError_t error = cudaPeekAtLastError();
  last_error = SUCCESS;
  return error;
}

static const char* text_of(const char* kind, cudaError_t error) {
  static struct {
    const char *kind, *text;
    cudaError_t error;
  } texts[64];
  static int count;
  for (int n = 0; n < count; n++) {
    if (texts[n].error == error && texts[n].kind == kind) {
      return texts[n].text;
    }
  }
  ASK(kind, U(error));
  const char* text = strdup(answered_bytes);
  if (count < 64) {
    texts[count].kind = kind, texts[count].text = text, texts[count++].error = error;
  }
  return text;
}

API const char* cudaGetErrorString(cudaError_t error) { return text_of("error_text", error); }
API const char* cudaGetErrorName(cudaError_t error) { return text_of("error_name", error); }

// What the program calls and the stand-in lacks: functions of these names are made when it is built.
cudaError_t lacking(const char* name) {
  ask("lacking", NULL, 0, name, strlen(name));
  return done(NOT_SUPPORTED);
}
