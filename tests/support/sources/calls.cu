// Calls through pointers and tables, virtual functions, functions that call themselves, and malloc.
struct Shape {
  __device__ virtual int area(int side) = 0;
  __device__ virtual ~Shape() {}
};
struct Square : Shape {
  int factor;
  __device__ explicit Square(int factor) : factor(factor) {}
  __device__ int area(int side) override { return factor * side * side; }
};
struct Line : Shape {
  __device__ int area(int side) override { return side; }
};

using Operation = int (*)(int, int);
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ Operation operations[2] = {plus, times};

extern "C" __global__ void pointers(const int* in, int* out) {
  int t = threadIdx.x;
  Operation chosen = in[t] & 2 ? plus : times;
  out[t] = operations[in[t] & 1](t, 3) + 100 * chosen(t, 2);
}

extern "C" __global__ void lost(const int* in, int* out) {
  int t = threadIdx.x;
  out[t] = operations[0](in[t], t);
}

extern "C" __global__ void virtuals(const int* in, int* out) {
  int t = threadIdx.x;
  Shape* shape = in[t] & 1 ? static_cast<Shape*>(new Square(in[t])) : new Line();
  out[t] = shape->area(t);
  delete shape;
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

__device__ __noinline__ int odd(int n, int* trail);
__device__ __noinline__ int even(int n, int* trail) {
  int here[2] = {n, 7 * n};
  int answer = n == 0 ? 1 : odd(n - 1, trail);
  *trail += here[n & 1];  // of this call, not of the one inside
  return answer;
}
__device__ __noinline__ int odd(int n, int* trail) { return n == 0 ? 0 : even(n - 1, trail); }

__device__ __noinline__ int endless(int n) { return n < 0 ? n : endless(n + 1) + n; }

extern "C" __global__ void recursive(const int* in, int* out) {
  int t = threadIdx.x, trail = 0;
  int answer = even(in[t], &trail);
  out[t] = fibonacci(in[t]) + 1000 * answer + 10000 * trail;
}

extern "C" __global__ void deep(const int* in, int* out) { out[threadIdx.x] = endless(in[threadIdx.x]); }

extern "C" __global__ void pieces(const int* in, int* out, int past, int again, int late) {
  int t = threadIdx.x, sum = 0;
  int* piece = static_cast<int*>(malloc(16 * sizeof(int)));
  for (int i = 0; i < 16 + past; ++i) piece[i] = in[t] + i;
  for (int i = 0; i < 16; ++i) sum += piece[(i * 7 + in[t]) & 15];
  free(piece);
  if (again) free(piece);
  out[t] = sum + (late ? piece[0] : 0);
}

extern "C" __global__ void large(const int* in, int* out) {
  out[threadIdx.x] = malloc(static_cast<size_t>(in[threadIdx.x]) << 20) != nullptr;
}
