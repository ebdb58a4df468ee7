"""A program of memory in the order of streams: graphs that allocate, pools, attributes. Host code of
cuda_programs' kernels."""

MEMORY = r"""
#include <string.h>
typedef struct { int kind, number; } Location;
typedef struct {
    int type, shared;
    Location location;
    void *security;
    size_t most;
    char more[56];
} Properties;
typedef struct { Properties pool; const void *access; size_t count, nbytes; void *address; } Allocation;
typedef struct { void *kernel; dim3 grid, block; unsigned shared; void **arguments, **extra; } Kernel;
typedef struct { int type, reserved[3]; long long room[29], more; } Node;
typedef union { dim3 cluster; int number; char room[64]; } Value;
typedef struct { Location who; int flags; } Access;
extern int cudaGraphCreate(void *, unsigned), cudaGraphLaunch(void *, void *);
extern int cudaGraphAddMemAllocNode(void *, void *, void **, size_t, Allocation *);
extern int cudaGraphAddMemFreeNode(void *, void *, void **, size_t, void *);
extern int cudaGraphAddDependencies(void *, void **, void **, const void *, size_t);
extern int cudaGraphMemAllocNodeGetParams(void *, Allocation *);
extern int cudaGraphMemFreeNodeGetParams(void *, void *);
extern int cudaGraphAddNode(void *, void *, void **, const void *, size_t, Node *);
extern int cudaGraphAddKernelNode(void *, void *, void **, size_t, const Kernel *);
extern int cudaGraphKernelNodeSetAttribute(void *, int, const Value *);
extern int cudaGraphKernelNodeGetAttribute(void *, int, Value *);
extern int cudaGraphKernelNodeCopyAttributes(void *, void *);
extern int cudaGraphInstantiate(void *, void *, unsigned long long);
extern int cudaDeviceGetGraphMemAttribute(int, int, uint64_t *), cudaDeviceGraphMemTrim(int);
extern int cudaDeviceSetGraphMemAttribute(int, int, uint64_t *);
extern int cudaStreamBeginCapture(void *, int), cudaStreamEndCapture(void *, void *);
extern int cudaStreamDestroy(void *), cudaStreamSynchronize(void *);
extern int cudaStreamSetAttribute(void *, int, const Value *), cudaStreamGetAttribute(void *, int, Value *);
extern int cudaStreamCopyAttributes(void *, void *), cudaStreamGetPriority(void *, int *);
extern int cudaMallocAsync(void *, size_t, void *), cudaFreeAsync(void *, void *);
extern int cudaMemsetAsync(void *, int, size_t, void *);
extern int cudaMallocFromPoolAsync(void *, size_t, void *, void *);
extern int cudaMemPoolCreate(void *, const Properties *), cudaMemPoolDestroy(void *);
extern int cudaMemPoolSetAttribute(void *, int, void *), cudaMemPoolGetAttribute(void *, int, void *);
extern int cudaMemPoolSetAccess(void *, const Access *, size_t);
extern int cudaMemPoolGetAccess(int *, void *, const Location *);
extern int cudaDeviceGetMemPool(void *, int), cudaDeviceSetMemPool(int, void *);
extern int cudaDeviceGetDefaultMemPool(void *, int), cudaMemGetMemPool(void *, const Location *, int);
extern int cudaDeviceSetLimit(int, size_t), cudaDeviceGetLimit(size_t *, int);
extern int cudaFuncGetName(const char **, const void *);
extern int cudaFuncGetParamInfo(const void *, size_t, size_t *, size_t *);
extern int cudaOccupancyAvailableDynamicSMemPerBlock(size_t *, const void *, int, int);
extern int cudaDeviceGetPCIBusId(char *, int, int), cudaDeviceGetByPCIBusId(int *, const char *);
extern int cudaMemcpyBatchAsync(void **, const void **, size_t *, size_t, void *, size_t *, size_t, void *);

static int in_a_graph(const char *word) {
    float *x, *out;
    int n = 64, device;
    uint64_t used, peak, none = 0;
    void *graph, *launchable, *first, *set, *sum, *last, *other;
    Allocation wanted = {.pool = {1, 0, {1, 0}}, .nbytes = 256}, same;
    CHECK(cudaMallocManaged(&out, 4, 1));
    CHECK(cudaGraphCreate(&graph, 0));
    CHECK(cudaGraphAddMemAllocNode(&first, graph, NULL, 0, &wanted));
    x = wanted.address;
    if (strcmp(word, "early") == 0) CHECK(cudaMemset(x, 0, 256));
    Node fill = {.type = 2};
    memcpy(fill.room, &(struct { void *start; size_t pitch; unsigned value, element; size_t width, height; }){
        x, 0, 0x3f800000, 4, n, 1}, 40);
    CHECK(cudaGraphAddNode(&set, graph, &first, NULL, 1, &fill));
    Kernel kernel = {&partial, {1, 1, 1}, {64, 1, 1}, 0, (void *[]){&x, &out, &n}, NULL};
    CHECK(cudaGraphAddKernelNode(&sum, graph, strcmp(word, "unordered") ? &set : &first, 1, &kernel));
    CHECK(cudaGraphMemAllocNodeGetParams(first, &same));
    if (same.address != x || same.nbytes != 256 || same.pool.location.kind != 1) return 3;
    Value value = {.number = 1};
    CHECK(cudaGraphKernelNodeSetAttribute(sum, 2, &value));
    CHECK(cudaGraphAddKernelNode(&other, graph, &sum, 1, &kernel));
    void **end = strcmp(word, "late") == 0 ? &sum : &other;
    if (strcmp(word, "kept") != 0) CHECK(cudaGraphAddMemFreeNode(&last, graph, end, 1, x));
    if (end == &sum) CHECK(cudaGraphAddDependencies(graph, &last, &other, NULL, 1));
    CHECK(cudaGraphKernelNodeCopyAttributes(other, sum));
    CHECK(cudaGraphKernelNodeGetAttribute(other, 2, &value));
    if (value.number != 1) return 4;
    if (strcmp(word, "kept") != 0) {
        CHECK(cudaGraphMemFreeNodeGetParams(last, &same.address));
        if (same.address != x) return 5;
    }
    CHECK(cudaGraphInstantiate(&launchable, graph, strcmp(word, "again") == 0));
    for (int round = 0; round < 2; round++) {
        int error = cudaGraphLaunch(launchable, NULL);
        if (error) printf("launch %d: %d\n", round, error);
    }
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaDeviceGetGraphMemAttribute(0, 0, &used));
    CHECK(cudaDeviceGetGraphMemAttribute(0, 1, &peak));
    printf("%g, %d of %d bytes\n", *out, (int)used, (int)peak);
    CHECK(cudaDeviceGraphMemTrim(0));
    CHECK(cudaDeviceSetGraphMemAttribute(0, 1, &none));
    CHECK(cudaDeviceGetGraphMemAttribute(0, 1, &peak));
    return (int)(peak - used);
}

static int in_a_capture(void) {
    float *x, *out;
    int n = 64;
    void *a, *b, *begun, *met, *graph, *launchable;
    CHECK(cudaMallocManaged(&out, 4, 1));
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamCreate(&b));
    CHECK(cudaEventCreate(&begun));
    CHECK(cudaEventCreate(&met));
    CHECK(cudaStreamBeginCapture(a, 0));
    CHECK(cudaMallocAsync(&x, 256, a));
    CHECK(cudaMemsetAsync(x, 0, 256, a));
    CHECK(cudaEventRecord(begun, a));
    CHECK(cudaStreamWaitEvent(b, begun, 0));
    CHECK(cudaLaunchKernel(&partial, (dim3){1, 1, 1}, (dim3){64, 1, 1}, (void *[]){&x, &out, &n}, 0, b));
    CHECK(cudaEventRecord(met, b));
    CHECK(cudaStreamWaitEvent(a, met, 0));
    CHECK(cudaFreeAsync(x, a));
    CHECK(cudaStreamDestroy(b));
    CHECK(cudaStreamEndCapture(a, &graph));
    CHECK(cudaGraphInstantiate(&launchable, graph, 0));
    for (int round = 0; round < 2; round++) CHECK(cudaGraphLaunch(launchable, a));
    CHECK(cudaStreamSynchronize(a));
    printf("captured: %g\n", *out);
    return 0;
}

static int questions(void) {
    void *pool, *now, *a, *b;
    float *x, back[2], there[2] = {3, 4};
    uint64_t most = 4096, answer = 0;
    size_t nbytes, offset;
    int flags = 0, device = 9, priority;
    const char *name;
    char bus[16];
    CHECK(cudaMemPoolCreate(&pool, &(Properties){1, 0, {1, 0}}));
    CHECK(cudaMemPoolSetAttribute(pool, 4, &most));
    CHECK(cudaMemPoolGetAttribute(pool, 4, &answer));
    CHECK(cudaMemPoolSetAccess(pool, &(Access){{1, 0}, 3}, 1));
    CHECK(cudaMemPoolGetAccess(&flags, pool, &(Location){1, 0}));
    CHECK(cudaDeviceSetMemPool(0, pool));
    CHECK(cudaDeviceGetMemPool(&now, 0));
    printf("pool %d, access %d, chosen %d", (int)answer, flags, now == pool);
    CHECK(cudaMallocFromPoolAsync(&x, 8, pool, NULL));
    void *targets[] = {x, x + 1};
    const void *sources[] = {there, there + 1};
    CHECK(cudaMemcpyBatchAsync(targets, sources, (size_t[]){4, 4}, 2, NULL, NULL, 0, NULL));
    CHECK(cudaMemcpyAsync(back, x, 8, 2, NULL));
    CHECK(cudaFreeAsync(x, NULL));
    CHECK(cudaMemPoolDestroy(pool));
    CHECK(cudaMemGetMemPool(&now, &(Location){1, 0}, 1));
    CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
    printf(" %d; %g %g; held %d\n", now == pool, back[0], back[1], cudaMemPoolGetAttribute(pool, 7, &answer));
    CHECK(cudaStreamCreate(&a));
    CHECK(cudaStreamCreate(&b));
    CHECK(cudaStreamSetAttribute(a, 8, &(Value){.number = -2}));
    CHECK(cudaStreamCopyAttributes(b, a));
    CHECK(cudaStreamGetPriority(b, &priority));
    CHECK(cudaDeviceSetLimit(1, 1 << 21));
    CHECK(cudaDeviceGetLimit(&nbytes, 1));
    printf("priority %d, limit %d, %d", priority, (int)nbytes, cudaDeviceSetLimit(99, 1));
    CHECK(cudaFuncGetName(&name, &partial));
    CHECK(cudaFuncGetParamInfo(&partial, 2, &offset, &nbytes));
    printf("; %s: %d at %d, ", name, (int)nbytes, (int)offset);
    printf("%d", cudaFuncGetParamInfo(&partial, 3, &offset, 0));
    CHECK(cudaOccupancyAvailableDynamicSMemPerBlock(&nbytes, &partial, 2, 64));
    CHECK(cudaDeviceGetPCIBusId(bus, sizeof bus, 0));
    CHECK(cudaDeviceGetByPCIBusId(&device, bus));
    printf("; %d bytes, device %d\n", (int)nbytes, device);
    return 0;
}

int main(int argc, char **argv) {
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "captured") == 0) return in_a_capture();
    return strcmp(word, "questions") == 0 ? questions() : in_a_graph(word);
}
"""
