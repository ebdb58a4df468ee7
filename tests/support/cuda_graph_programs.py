"""Programs of CUDA graphs and of copies in three dimensions, as host code of cuda_programs' kernels."""

# Captured, y = factor * x + 2 * y runs in stream a, then its sums in stream b, which joins by events. A word
# names what is left out, or what is done wrong.
CAPTURED = r"""
#include <string.h>
extern int cudaStreamBeginCapture(void *, int), cudaStreamEndCapture(void *, void *);
extern int cudaStreamIsCapturing(void *, int *), cudaStreamSynchronize(void *);
extern int cudaGraphInstantiate(void *, void *, unsigned long long), cudaGraphLaunch(void *, void *);
extern int cudaGraphExecUpdate(void *, void *, void *), cudaGraphGetNodes(void *, void *, size_t *);
extern int cudaGraphGetEdges(void *, void *, void *, void *, size_t *);
extern int cudaGraphDestroy(void *), cudaGraphExecDestroy(void *);
extern int cudaMemsetAsync(void *, int, size_t, void *);
extern int cudaGetLastError(void);

static float *x, *y, *sums, *out, host[128];
static void *a, *b, *ready, *met;
static int blocks = 2;
static const dim3 two = {2, 1, 1}, block = {64, 1, 1}, one = {1, 1, 1};

static int capture(void **graph, float factor, const char *word) {
    Args p = {factor, 128};
    int n = 128, status;
    CHECK(cudaStreamBeginCapture(a, 0));
    CHECK(cudaMemcpyAsync(x, host, sizeof host, 1, a));
    CHECK(cudaLaunchKernel(&saxpy, two, block, (void *[]){&p, &x, &y}, 0, a));
    CHECK(cudaEventRecord(ready, a));
    CHECK(cudaStreamWaitEvent(b, ready, 0));
    CHECK(cudaStreamIsCapturing(b, &status));
    CHECK(status != 1);
    CHECK(cudaLaunchKernel(&partial, two, block, (void *[]){&y, &sums, &n}, 0, b));
    if (strcmp(word, "race") == 0) CHECK(cudaMemsetAsync(y, 0, sizeof host, a));
    CHECK(cudaLaunchKernel(&total, one, one, (void *[]){&sums, &out, &blocks}, 0, b));
    CHECK(cudaEventRecord(met, b));
    if (strcmp(word, "unjoined") != 0) CHECK(cudaStreamWaitEvent(a, met, 0));
    if (strcmp(word, "waits") == 0) cudaStreamSynchronize(b);
    if (strcmp(word, "allocates") == 0) {
        void *more;
        CHECK(!cudaMalloc(&more, 4));
        CHECK(cudaGetLastError() != 900);
    }
    return cudaStreamEndCapture(a, graph);
}

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    void *graph, *other, *launchable;
    size_t nodes = 0, edges = 0;
    struct { int result; void *node, *from; } update;
    CHECK(cudaMalloc(&x, sizeof host));
    CHECK(cudaMalloc(&y, sizeof host));
    CHECK(cudaMalloc(&sums, 8));
    CHECK(cudaMallocManaged(&out, 4, 1));
    CHECK(cudaMemcpyToSymbol(factors, factors, 8, 0, 1));
    CHECK(cudaMemset(y, 0, sizeof host));
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamCreate(&b));
    CHECK(cudaEventCreate(&ready));
    CHECK(cudaEventCreate(&met));
    *out = -1;
    int error = capture(&graph, 1, word);
    printf("capture %d, out %g\n", error, *out);
    if (error) return 0;
    CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
    CHECK(cudaGraphGetEdges(graph, NULL, NULL, NULL, &edges));
    CHECK(cudaGraphInstantiate(&launchable, graph, 0));
    CHECK(cudaGraphDestroy(graph));
    for (int round = 1; round <= 2; round++) {
        for (int i = 0; i < 128; i++) host[i] = round;
        CHECK(cudaGraphLaunch(launchable, a));
        CHECK(cudaStreamSynchronize(a));
        printf("round %d: %g\n", round, *out);
    }
    CHECK(capture(&other, 10, word));
    CHECK(cudaGraphExecUpdate(launchable, other, &update));
    CHECK(cudaGraphLaunch(launchable, a));
    CHECK(cudaStreamSynchronize(a));
    printf("updated: %g, of %zu nodes and %zu edges\n", *out, nodes, edges);
    CHECK(cudaGraphExecDestroy(launchable));
    return 0;
}
"""

# Nodes by their parameters: bytes are set, x is copied in, y = 3 * x + 0, two sums run beside each other.
EXPLICIT = r"""
#include <string.h>
typedef struct { void *kernel; dim3 grid, block; unsigned shared; void **arguments, **extra; } Kernel;
typedef struct { void *start; size_t pitch, width, height; } Pitched;
typedef struct {
    void *from_array; size_t from_position[3]; Pitched from;
    void *to_array; size_t to_position[3]; Pitched to; size_t extent[3]; int kind;
} Copy;
typedef struct { void *start; size_t pitch; unsigned value, element; size_t width, height; } Fill;
typedef struct { void (*function)(void *); void *data; } Host;
extern int cudaGraphCreate(void *, unsigned), cudaGraphLaunch(void *, void *);
extern int cudaGraphAddKernelNode(void *, void *, void **, size_t, const Kernel *);
extern int cudaGraphAddMemcpyNode(void *, void *, void **, size_t, const Copy *);
extern int cudaGraphAddMemcpyNode1D(void *, void *, void **, size_t, void *, const void *, size_t, int);
extern int cudaGraphAddMemsetNode(void *, void *, void **, size_t, const Fill *);
extern int cudaGraphAddHostNode(void *, void *, void **, size_t, const Host *);
extern int cudaGraphAddChildGraphNode(void *, void *, void **, size_t, void *);
extern int cudaGraphAddDependencies(void *, void **, void **, const void *, size_t);
extern int cudaGraphInstantiate(void *, void *, unsigned long long);
extern int cudaGraphExecKernelNodeSetParams(void *, void *, const Kernel *);
extern int cudaGraphKernelNodeGetParams(void *, Kernel *), cudaGraphNodeGetType(void *, int *);
extern int cudaGraphNodeSetEnabled(void *, void *, unsigned);
extern int cudaMemcpy3D(const Copy *), cudaSetDevice(int);
extern int cudaMemcpyPeer(void *, int, const void *, int, size_t);
typedef struct { size_t width, height, depth; } Extent;
extern int cudaMalloc3D(Pitched *, Extent), cudaMemset3D(Pitched, int, Extent);

static void say(void *words) { printf("%s\n", (char *)words); }

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    float *x, *y, *sums, *result, host[128], planes[2][3][4], back[2][2][2];
    void *graph, *child, *launchable, *set, *in, *run, *sum, *said, *down, *nested;
    int n = 128, type;
    Args p = {3, 128};
    CHECK(cudaMalloc(&x, 512));
    CHECK(cudaMalloc(&y, 512));
    CHECK(cudaMalloc(&sums, 8));
    CHECK(cudaMallocManaged(&result, 8, 1));
    CHECK(cudaMemcpyToSymbol(factors, factors, 8, 0, 1));
    for (int i = 0; i < 128; i++) host[i] = 1;
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphCreate(&child, 0));
    CHECK(cudaGraphAddMemsetNode(&set, graph, NULL, 0, &(Fill){y, 0, 0x40000000, 4, 128, 1}));  // 2.f
    Copy copy = {.from = {host, 512, 512, 1}, .to = {x, 512, 512, 1}, .extent = {512, 1, 1}, .kind = 1};
    CHECK(cudaGraphAddMemcpyNode(&in, graph, NULL, 0, &copy));
    Kernel kernel = {&saxpy, {2, 1, 1}, {64, 1, 1}, 0, (void *[]){&p, &x, &y}, NULL};
    CHECK(cudaGraphAddKernelNode(&run, graph, &in, 1, &kernel));
    if (strcmp(word, "race") != 0) CHECK(cudaGraphAddDependencies(graph, &set, &run, NULL, 1));
    Kernel summing = {&partial, {2, 1, 1}, {64, 1, 1}, 0, (void *[]){&y, &sums, &n}, NULL};
    CHECK(cudaGraphAddKernelNode(&sum, child, NULL, 0, &summing));
    CHECK(cudaGraphAddChildGraphNode(&nested, graph, &run, 1, child));
    CHECK(cudaGraphAddMemcpyNode1D(&down, graph, &nested, 1, result, sums, 8, 2));
    CHECK(cudaGraphAddHostNode(&said, graph, &down, 1, &(Host){say, "summed"}));
    if (strcmp(word, "circle") == 0) {
        CHECK(cudaGraphAddDependencies(graph, &said, &in, NULL, 1));
        printf("circle %d\n", cudaGraphInstantiate(&launchable, graph, 0));
        return 0;
    }
    CHECK(cudaGraphInstantiate(&launchable, graph, 0));
    p.a = 100;  // parameters were taken when the node was made
    CHECK(cudaGraphLaunch(launchable, NULL));
    CHECK(cudaDeviceSynchronize());
    printf("%g %g\n", result[0], result[1]);
    CHECK(cudaGraphKernelNodeGetParams(run, &kernel));
    CHECK(((Args *)kernel.arguments[0])->a != 3);
    CHECK(cudaGraphNodeGetType(down, &type));
    kernel.arguments = (void *[]){&p, &x, &y};
    CHECK(cudaGraphExecKernelNodeSetParams(launchable, run, &kernel));
    CHECK(cudaGraphNodeSetEnabled(launchable, set, 0));
    CHECK(cudaGraphLaunch(launchable, NULL));
    CHECK(cudaDeviceSynchronize());
    printf("%g of type %d\n", result[0], type);
    for (int i = 0; i < 24; i++) planes[0][0][i] = i;
    Copy up = {.from = {planes, 16, 16, 3}, .to = {x, 32, 32, 4}, .extent = {16, 3, 2}, .kind = 1};
    CHECK(cudaMemcpy3D(&up));
    Copy part = {.from = {x, 32, 32, 4}, .from_position = {4, 1, 0}, .to = {back, 8, 8, 2}, .kind = 2};
    part.extent[0] = 8, part.extent[1] = 2, part.extent[2] = 2;
    CHECK(cudaMemcpy3D(&part));
    for (int i = 0; i < 8; i++) printf("%g ", back[0][0][i]);
    Extent extent = {8, 3, 2};
    CHECK(cudaMalloc3D(&up.to, extent));
    CHECK(cudaMemset3D(up.to, 7, extent));
    CHECK(cudaMemcpyPeer(back, 0, x, 0, 4) != 1);
    printf("\ndevice %d, %d", cudaSetDevice(1), cudaMemcpyPeer(x, 1, y, 0, 4));
    up.to_array = x;
    printf("\narray %d\n", cudaMemcpy3D(&up));
    return 0;
}
"""
