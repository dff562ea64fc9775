/* A driver without a GPU: enough of libcuda.so.1 for a program that launches kernels, which run on the host.

   It loads the injected library as the real one does and tells the fake CUPTI of each call. Device memory is the
   host's, at addresses of its own. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef void (*Tell)(int domain, uint32_t number, int site, const char *name, const void *arguments, int *result, const char *symbol);
typedef void (*Run)(void **arguments, const unsigned *grid, const unsigned *block, unsigned smem_bytes);
typedef struct {
    const char *name;
    int count;
    size_t offsets[8], sizes[8];
    Run run;
} Function;

static struct { char *base; size_t bytes; int kind; } memory[256];
static int memory_count, hanging, failed, captures, copies_refused;
static float coefficients[4] = {1, 2, 3, 4};

static Tell teller(void)
{
    static Tell tell;
    const char *path = getenv("DICE_CAPTURE_CUPTI");
    if (tell == NULL && path != NULL) {
        void *cupti = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
        if (cupti != NULL)
            *(void **)&tell = dlsym(cupti, "fake_tell");
    }
    return tell;
}

static void tell(uint32_t number, int site, const char *name, const void *arguments, int *result, const char *symbol)
{
    if (teller())
        teller()(1, number, site, name, arguments, result, symbol);
}

int cuInit(unsigned flags)
{
    static int done;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    if (getenv("FAKE_CUINIT"))
        return atoi(getenv("FAKE_CUINIT"));
    if (!done && path && *path) {
        int (*start)(void) = NULL;
        void *library = dlopen(path, RTLD_NOW);
        if (library)
            *(void **)&start = dlsym(library, "InitializeInjection");
        if (start)
            start();
    }
    done = 1;
    return (int)flags;
}

int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuDeviceGetName(char *name, int room, int device)
{
    snprintf(name, (size_t)room, "Fake \"GPU\" %d", device);
    return 0;
}

/* Memory. */

static int allocate(uint64_t *pointer, size_t bytes, int kind)
{
    char *base = calloc(bytes + 64, 1);
    memory[memory_count].base = base;
    memory[memory_count].bytes = bytes;
    memory[memory_count++].kind = kind;
    *pointer = (uint64_t)(uintptr_t)base;
    return 0;
}

static int found_at(uint64_t pointer)
{
    for (int i = 0; i < memory_count; i++)
        if (pointer >= (uint64_t)(uintptr_t)memory[i].base && pointer < (uint64_t)(uintptr_t)memory[i].base + memory[i].bytes)
            return i;
    return -1;
}

int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) { return allocate(pointer, bytes, 0); }
int cuMemAllocManaged(uint64_t *pointer, size_t bytes, unsigned flags) { return allocate(pointer, bytes, flags ? 1 : 0); }
int cuMemAllocHost_v2(uint64_t *pointer, size_t bytes) { return allocate(pointer, bytes, 2); }

int cuMemGetAddressRange_v2(uint64_t *base, size_t *bytes, uint64_t pointer)
{
    int at = found_at(pointer);
    if (at < 0 || memory[at].kind == 2)
        return 1;
    *base = (uint64_t)(uintptr_t)memory[at].base;
    *bytes = memory[at].bytes;
    return 0;
}

int cuPointerGetAttribute(void *data, int attribute, uint64_t pointer)
{
    int at = found_at(pointer);
    if (at < 0)
        return 1;
    if (attribute == 2)
        *(unsigned *)data = memory[at].kind == 2 ? 1 : 2;
    else if (attribute == 8)
        *(int *)data = memory[at].kind == 1;
    else if (attribute == 11)
        *(uint64_t *)data = (uint64_t)(uintptr_t)memory[at].base;
    else if (attribute == 12)
        *(size_t *)data = memory[at].bytes;
    else
        return 1;
    return 0;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    if (failed)
        return failed;
    if (copies_refused || captures)
        return 1;
    (void)stream;
    memcpy(to, (void *)(uintptr_t)from, bytes);
    /* A call of the recorder's own is told of, too, as the real driver does. */
    int result = 0;
    tell(307, 0, "cuLaunchKernel", NULL, &result, "must not be looked at");
    return 0;
}

/* Streams and events: a hanging kernel never lets one become ready. */

int cuStreamCreate(void **stream, unsigned flags) { *stream = malloc(1 + flags); return 0; }
int cuStreamDestroy_v2(void *stream) { free(stream); return 0; }
int cuStreamSynchronize(void *stream) { (void)stream; return failed; }
int cuStreamIsCapturing(void *stream, int *status) { *status = captures && stream == (void *)7; return 0; }
int cuThreadExchangeStreamCaptureMode(int *mode) { static __thread int now; int old = now; now = *mode; *mode = old; return 0; }
int cuEventCreate(void **event, unsigned flags) { *event = malloc(1 + flags); return 0; }
int cuEventDestroy_v2(void *event) { free(event); return 0; }
int cuEventRecord(void *event, void *stream) { (void)event; (void)stream; return failed; }
int cuEventQuery(void *event) { (void)event; return failed ? failed : hanging ? 600 : 0; }
int cuCtxRecordEvent(void *context, void *event) { (void)context; (void)event; return failed ? failed : getenv("FAKE_OLD_DRIVER") ? 801 : 0; }

int cuStreamBeginCapture_v2(void *stream, int mode)
{
    int result = 0;
    struct { void *stream; int mode; } arguments = {stream, mode};
    tell(539, 0, "cuStreamBeginCapture_v2", &arguments, &result, NULL);
    captures++;
    tell(539, 1, "cuStreamBeginCapture_v2", &arguments, &result, NULL);
    return 0;
}

int cuStreamEndCapture(void *stream, void **graph)
{
    int result = 0;
    struct { void *stream; void **graph; } arguments = {stream, graph};
    tell(497, 0, "cuStreamEndCapture", &arguments, &result, NULL);
    captures--;
    tell(497, 1, "cuStreamEndCapture", &arguments, &result, NULL);
    return 0;
}

int cuGraphLaunch(void *graph, void *stream)
{
    int result = 0;
    struct { void *graph, *stream; } arguments = {graph, stream};
    tell(514, 0, "cuGraphLaunch", &arguments, &result, NULL);
    tell(514, 1, "cuGraphLaunch", &arguments, &result, NULL);
    return 0;
}

/* Kernels. */

static void run_scale(void **a, const unsigned *grid, const unsigned *block, unsigned smem)
{
    int n = *(int *)a[0];
    float factor = *(float *)a[1];
    float *x = *(float **)a[2], *y = *(float **)a[3];
    (void)smem;
    for (int i = 0; i < n && (unsigned)i < grid[0] * block[0]; i++)
        y[i] = factor * x[i];
}

static void run_bump(void **a, const unsigned *grid, const unsigned *block, unsigned smem)
{
    int *x = *(int **)a[0];
    (void)block;
    (void)smem;
    for (unsigned i = 0; i < grid[0]; i++)
        x[i] += 1;
}

struct View { int n; float *data; double weight; };

static void run_view(void **a, const unsigned *grid, const unsigned *block, unsigned smem)
{
    struct View view = *(struct View *)a[0];
    (void)grid;
    (void)block;
    (void)smem;
    for (int i = 0; i < view.n; i++)
        view.data[i] = (float)(view.data[i] * view.weight) + coefficients[i % 4];
}

static void run_hang(void **a, const unsigned *grid, const unsigned *block, unsigned smem)
{
    (void)a, (void)grid, (void)block, (void)smem;
    hanging = 1;
}

static void run_fault(void **a, const unsigned *grid, const unsigned *block, unsigned smem)
{
    (void)a, (void)grid, (void)block, (void)smem;
    failed = 700;
}

static void run_nothing(void **a, const unsigned *grid, const unsigned *block, unsigned smem)
{
    (void)a, (void)grid, (void)block, (void)smem;
}

static Function functions[] = {
    {"_Z5scaleifPKfPf", 4, {0, 4, 8, 16}, {4, 4, 8, 8}, run_scale},
    {"_ZN4ours4bumpILi4EEEvPi", 1, {0}, {8}, run_bump},
    {"_Z5apply4View", 1, {0}, {24}, run_view},
    {"_Z4hangPi", 1, {0}, {8}, run_hang},
    {"_Z5faultPi", 1, {0}, {8}, run_fault},
    {"_Z7libraryi", 1, {0}, {4}, run_nothing},
    {"empty", 0, {0}, {0}, run_nothing},
};

int cuModuleLoad(void **module, const char *path)
{
    FILE *file = fopen(path, "rb");
    static char image[1 << 20];
    *module = (void *)1;
    if (file && teller()) {
        struct { uint32_t number; size_t bytes; const char *image; } resource = {1, fread(image, 1, sizeof image, file), image};
        struct { void *context, *stream; void *descriptor; } data = {NULL, NULL, &resource};
        teller()(3, 6, 0, NULL, &data, NULL, NULL);
    }
    if (file)
        fclose(file);
    return 0;
}

int cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0) {
            *function = &functions[i];
            return 0;
        }
    return 500;
}

int cuModuleGetGlobal_v2(uint64_t *pointer, size_t *bytes, void *module, const char *name)
{
    if (module != (void *)1 || strcmp(name, "_ZN4ours12coefficientsE") != 0)
        return 500;
    *pointer = (uint64_t)(uintptr_t)coefficients;
    *bytes = sizeof coefficients;
    return 0;
}

int cuFuncGetModule(void **module, void *function) { (void)function; *module = (void *)1; return 0; }
int cuFuncGetName(const char **name, void *function) { *name = ((Function *)function)->name; return 0; }

int cuFuncGetParamInfo(void *function, size_t index, size_t *offset, size_t *size)
{
    Function *of = function;
    if (getenv("FAKE_KERNEL_HANDLES"))
        return 400;
    if (index >= (size_t)of->count)
        return 1;
    *offset = of->offsets[index];
    *size = of->sizes[index];
    return 0;
}

int cuKernelGetParamInfo(void *function, size_t index, size_t *offset, size_t *size)
{
    Function *of = function;
    if (index >= (size_t)of->count)
        return 1;
    *offset = of->offsets[index];
    *size = of->sizes[index];
    return 0;
}

static pthread_mutex_t running = PTHREAD_MUTEX_INITIALIZER;

static int run(Function *function, const unsigned *grid, const unsigned *block, unsigned smem, void **parameters, void **extra, void *stream)
{
    void *from_buffer[8];
    if (block[0] * block[1] * block[2] > 1024)
        return 1;
    if (parameters == NULL && extra != NULL) {
        for (int i = 0; i < function->count; i++)
            from_buffer[i] = (char *)extra[1] + function->offsets[i];
        parameters = from_buffer;
    }
    pthread_mutex_lock(&running);
    if (stream != (void *)7)
        function->run(parameters, grid, block, smem);
    pthread_mutex_unlock(&running);
    return 0;
}

int cuLaunchKernel(
    void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem, void *stream,
    void **parameters, void **extra)
{
    struct { void *f; unsigned sizes[6], smem; void *stream; void **parameters, **extra; } arguments = {
        function, {gx, gy, gz, bx, by, bz}, smem, stream, parameters, extra};
    int result = 0;
    tell(307, 0, "cuLaunchKernel", &arguments, &result, ((Function *)function)->name);
    result = run(function, arguments.sizes, arguments.sizes + 3, smem, parameters, extra, stream);
    tell(307, 1, "cuLaunchKernel", &arguments, &result, ((Function *)function)->name);
    return result;
}

int cuLaunchCooperativeKernel(
    void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem, void *stream,
    void **parameters)
{
    struct { void *f; unsigned sizes[6], smem; void *stream; void **parameters; } arguments = {
        function, {gx, gy, gz, bx, by, bz}, smem, stream, parameters};
    int result = 0;
    tell(477, 0, "cuLaunchCooperativeKernel", &arguments, &result, ((Function *)function)->name);
    result = run(function, arguments.sizes, arguments.sizes + 3, smem, parameters, NULL, stream);
    tell(477, 1, "cuLaunchCooperativeKernel", &arguments, &result, ((Function *)function)->name);
    return result;
}

typedef struct { int id; char padding[4]; unsigned value[16]; } Attribute;
typedef struct { unsigned sizes[6], smem; void *stream; Attribute *attributes; unsigned count; } Config;

int cuLaunchKernelEx(const Config *config, void *function, void **parameters, void **extra)
{
    struct { const Config *config; void *f; void **parameters, **extra; } arguments = {config, function, parameters, extra};
    int result = 0;
    /* No name, as of a kernel that CUPTI does not know. */
    tell(652, 0, "cuLaunchKernelEx", &arguments, &result, NULL);
    result = run(function, config->sizes, config->sizes + 3, config->smem, parameters, extra, config->stream);
    tell(652, 1, "cuLaunchKernelEx", &arguments, &result, NULL);
    return result;
}

void fake_refuse_copies(int refuse) { copies_refused = refuse; }
void fake_go_on(void) { hanging = 0; }
