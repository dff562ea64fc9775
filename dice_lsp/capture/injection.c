/* Records the kernel launches of a program that knows nothing of it.

   The CUDA driver loads this library into the program (CUDA_INJECTION64_PATH) and calls InitializeInjection, which
   subscribes to CUPTI's callbacks of the driver's launch functions. Before and after each chosen launch the memory that
   its arguments lead to is copied to the host and written to a log, so that what was recorded stays readable however
   the program ends. `recording.py` describes the log and reads it.

   No header of CUDA is needed: the few types and numbers that cross the interface stand below. They are part of the
   driver's and CUPTI's binary interface, so they do not change; a test compares them with the toolkit's headers. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The driver's interface. */

typedef int Status; /* CUresult */
typedef uint64_t DevicePointer;
typedef void *Handle; /* CUcontext, CUfunction, CUmodule, CUstream, CUevent, CUkernel, CUlibrary */

enum { STATUS_OK = 0, STATUS_NOT_READY = 600 };
enum { EVENT_WITHOUT_TIMING = 2, STREAM_NON_BLOCKING = 1, CAPTURE_RELAXED = 2, CAPTURE_ACTIVE = 1 };
enum { ATTRIBUTE_MEMORY_TYPE = 2, ATTRIBUTE_IS_MANAGED = 8, ATTRIBUTE_RANGE_START = 11, ATTRIBUTE_RANGE_SIZE = 12 };
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3 };
enum { LAUNCH_COOPERATIVE = 2, LAUNCH_CLUSTER = 4 };
#define STREAM_LEGACY ((Handle)1)
#define STREAM_PER_THREAD ((Handle)2)
#define EXTRA_BUFFER ((void *)1)
#define EXTRA_SIZE ((void *)2)

typedef struct {
    int id;
    char padding[4];
    union {
        char bytes[64];
        unsigned words[16];
        uint64_t alignment;
    } value;
} LaunchAttribute;

typedef struct {
    unsigned grid[3], block[3], smem_bytes;
    Handle stream;
    LaunchAttribute *attributes;
    unsigned attribute_count;
} LaunchConfig;

typedef struct {
    Handle function;
    unsigned grid[3], block[3], smem_bytes;
    Handle stream;
    void **parameters;
    void **extra; /* not there in the parameters of a cooperative launch */
} LaunchArguments;

typedef struct {
    const LaunchConfig *config;
    Handle function;
    void **parameters;
    void **extra;
} LaunchExArguments;

/* CUPTI's interface. */

enum { DOMAIN_DRIVER = 1, DOMAIN_RESOURCE = 3, RESOURCE_MODULE_LOADED = 6, SITE_ENTER = 0 };
enum {
    CB_LAUNCH_OLD = 115,
    CB_LAUNCH_GRID = 116,
    CB_LAUNCH_GRID_ASYNC = 117,
    CB_LAUNCH_KERNEL = 307,
    CB_LAUNCH_KERNEL_PTSZ = 442,
    CB_LAUNCH_COOPERATIVE = 477,
    CB_LAUNCH_COOPERATIVE_PTSZ = 478,
    CB_LAUNCH_MULTI_DEVICE = 480,
    CB_BEGIN_CAPTURE = 495,
    CB_BEGIN_CAPTURE_PTSZ = 496,
    CB_END_CAPTURE = 497,
    CB_END_CAPTURE_PTSZ = 498,
    CB_GRAPH_LAUNCH = 514,
    CB_GRAPH_LAUNCH_PTSZ = 515,
    CB_BEGIN_CAPTURE_V2 = 539,
    CB_BEGIN_CAPTURE_V2_PTSZ = 540,
    CB_LAUNCH_EX = 652,
    CB_LAUNCH_EX_PTSZ = 653,
    CB_BEGIN_CAPTURE_TO_GRAPH = 720,
    CB_BEGIN_CAPTURE_TO_GRAPH_PTSZ = 721,
};

typedef struct {
    int site;
    const char *function_name;
    const void *arguments;
    void *result;
    const char *symbol;
    Handle context;
    uint32_t context_number;
    uint64_t *correlation;
    uint32_t correlation_number;
} ApiCallback;

typedef struct {
    Handle context;
    Handle stream;
    void *descriptor;
} ResourceCallback;

typedef struct {
    uint32_t number;
    size_t cubin_bytes;
    const char *cubin;
} ModuleResource;

typedef void (*CallbackFunction)(void *user, int domain, uint32_t number, const void *data);

static struct {
    Status (*range)(DevicePointer *, size_t *, DevicePointer);
    Status (*attribute)(void *, int, DevicePointer);
    Status (*copy)(void *, DevicePointer, size_t, Handle);
    Status (*stream_create)(Handle *, unsigned);
    Status (*stream_destroy)(Handle);
    Status (*stream_wait)(Handle);
    Status (*stream_is_capturing)(Handle, int *);
    Status (*exchange_mode)(int *);
    Status (*event_create)(Handle *, unsigned);
    Status (*event_destroy)(Handle);
    Status (*event_record)(Handle, Handle);
    Status (*event_query)(Handle);
    Status (*context_record_event)(Handle, Handle);
    Status (*context_device)(int *);
    Status (*device_name)(char *, int, int);
    Status (*function_parameter)(Handle, size_t, size_t *, size_t *);
    Status (*kernel_parameter)(Handle, size_t, size_t *, size_t *);
    Status (*function_name)(const char **, Handle);
    Status (*function_module)(Handle *, Handle);
    Status (*kernel_library)(Handle *, Handle);
    Status (*module_global)(DevicePointer *, size_t *, Handle, const char *);
    Status (*library_global)(DevicePointer *, size_t *, Handle, const char *);
    Status (*version)(int *);
} driver;

/* What crosses to the reader: the records of the log, and counters in shared memory that outlive any end. */

enum { RECORD_PROCESS = 1, RECORD_CHUNK = 2, RECORD_KERNEL = 3, RECORD_LAUNCH = 4, RECORD_AFTER = 5, RECORD_TRACE = 6 };
#define RECORD_MAGIC 0x45434944u
#define CHUNK_BYTES ((size_t)1 << 20)
#define STAGE_BYTES ((size_t)8 << 20)
#define MAX_KERNELS 1024
#define MAX_PARAMETERS 1024
#define MAX_ALLOCATIONS 256
#define MAX_SYMBOLS 64
#define MAX_NAMES 4096
#define MAX_SHAPES 1024
#define SYMBOL_BYTES ((size_t)16 << 20)

enum { HEAD_ERRNO, HEAD_KERNELS, HEAD_GRAPH_LAUNCHES, HEAD_OTHER_LAUNCHES, HEAD_STATE, HEAD_CUPTI_STATUS, HEAD_WORDS = 8 };
enum { STATE_LOADED = 1, STATE_NO_CUPTI, STATE_REFUSED, STATE_READY };
enum { COUNT_SEEN, COUNT_RECORDED, COUNT_LIMIT, COUNT_GRAPH, COUNT_UNFINISHED, COUNT_FAILED, COUNT_BARE, COUNT_WORDS = 8 };

typedef struct {
    _Atomic uint64_t head[HEAD_WORDS];
    _Atomic uint64_t of[MAX_KERNELS][COUNT_WORDS];
} Counters;

typedef struct {
    uint64_t limit;
    _Atomic uint64_t used;
} Budget;

typedef struct {
    char *name;
    bool wanted;
    uint64_t seen, recorded, bare, most_threads, shape_count, repeats;
    uint64_t shapes[MAX_SHAPES];
} KernelState;

typedef struct {
    size_t offset, size;
    const unsigned char *data;
} ParameterState;

typedef struct {
    size_t start, bytes;
} Piece;

typedef struct {
    DevicePointer base;
    size_t size;
    const char *kind;
    bool complete, pointers;
    Piece *pieces;
    size_t piece_count;
    size_t *offsets;
    size_t offset_count;
} Allocation;

typedef struct {
    const char *name;
    DevicePointer at;
    size_t size;
    bool constant, pointers;
} Symbol;

typedef struct {
    uint64_t number, order;
    int kernel;
    Handle context, stream;
    Allocation allocations[MAX_ALLOCATIONS];
    size_t allocation_count;
    Symbol symbols[MAX_SYMBOLS];
    size_t symbol_count;
    bool contents;
} Launch;

typedef struct {
    char *text;
    size_t length, room;
    bool failed;
} Text;

static struct {
    bool ready;
    pid_t owner;
    int log;
    off_t log_bytes;
    char *kernel_names, *variable_names, *cupti_path;
    uint64_t launches, launch_bytes, launch_number;
    double wait_s;
    bool trace;
    Budget *budget;
    Counters *counters;
    KernelState *kernels[MAX_KERNELS];
    int kernel_count;
    char *symbol_names[MAX_NAMES];
    bool symbol_constant[MAX_NAMES];
    int symbol_name_count;
    unsigned char (*digests)[16];
    size_t digest_count, digest_room;
    unsigned char *stage, *packed;
    int (*compress)(unsigned char *, unsigned long *, const unsigned char *, unsigned long, int);
    _Atomic int captures_going_on;
} state = {.log = -1};

static pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
/* A recorded launch has the device to itself from its inputs to its outputs; all others share. */
static pthread_rwlock_t launch_lock = PTHREAD_RWLOCK_INITIALIZER;

static __thread int inside;
static __thread bool holds_lock;
static __thread Launch *pending;

/* BLAKE2b with 16 bytes of output (RFC 7693), so that the reader can prove what it reads with its own library. */

static const uint64_t blake_start[8] = {
    0x6a09e667f3bcc908u, 0xbb67ae8584caa73bu, 0x3c6ef372fe94f82bu, 0xa54ff53a5f1d36f1u,
    0x510e527fade682d1u, 0x9b05688c2b3e6c1fu, 0x1f83d9abfb41bd6bu, 0x5be0cd19137e2179u,
};
static const uint8_t blake_order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static inline uint64_t rotated(uint64_t x, int by) { return x >> by | x << (64 - by); }

static inline void blake_mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y)
{
    v[a] += v[b] + x;
    v[d] = rotated(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = rotated(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = rotated(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotated(v[b] ^ v[c], 63);
}

static void blake_block(uint64_t h[8], const unsigned char block[128], uint64_t total, bool last)
{
    uint64_t v[16], m[16];
    memcpy(m, block, sizeof m); /* CUDA's hosts are little-endian */
    memcpy(v, h, 64);
    memcpy(v + 8, blake_start, 64);
    v[12] ^= total;
    if (last)
        v[14] = ~v[14];
    for (int round = 0; round < 12; round++) {
        const uint8_t *s = blake_order[round % 10];
        blake_mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
        blake_mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
        blake_mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
        blake_mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
        blake_mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
        blake_mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
        blake_mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
        blake_mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
    }
    for (int i = 0; i < 8; i++)
        h[i] ^= v[i] ^ v[i + 8];
}

static void digest_of(const unsigned char *data, size_t bytes, unsigned char digest[16])
{
    uint64_t h[8];
    size_t done = 0;
    unsigned char block[128];
    memcpy(h, blake_start, sizeof h);
    h[0] ^= 0x01010000u ^ 16u;
    while (bytes - done > sizeof block) {
        memcpy(block, data + done, sizeof block);
        done += sizeof block;
        blake_block(h, block, done, false);
    }
    memset(block, 0, sizeof block);
    memcpy(block, data + done, bytes - done);
    blake_block(h, block, bytes, true);
    memcpy(digest, h, 16);
}

/* Text that is built up piece by piece. */

static void say(Text *text, const char *format, ...)
{
    va_list list;
    for (int attempt = 0; attempt < 2 && !text->failed; attempt++) {
        size_t left = text->room - text->length;
        va_start(list, format);
        int length = vsnprintf(text->text ? text->text + text->length : NULL, text->text ? left : 0, format, list);
        va_end(list);
        if (length >= 0 && text->text && (size_t)length < left) {
            text->length += (size_t)length;
            return;
        }
        size_t room = 2 * text->room + (length > 0 ? (size_t)length : 0) + 256;
        char *grown = realloc(text->text, room);
        if (grown == NULL) {
            text->failed = true;
            return;
        }
        text->text = grown;
        text->room = room;
    }
}

static void say_string(Text *text, const char *string)
{
    say(text, "\"");
    for (const unsigned char *c = (const unsigned char *)string; *c; c++) {
        if (*c == '"' || *c == '\\')
            say(text, "\\%c", *c);
        else if (*c < 0x20 || *c >= 0x7f)
            say(text, "\\u%04x", *c);
        else
            say(text, "%c", *c);
    }
    say(text, "\"");
}

static void say_hex(Text *text, const unsigned char *data, size_t bytes)
{
    say(text, "\"");
    for (size_t i = 0; i < bytes; i++)
        say(text, "%02x", data[i]);
    say(text, "\"");
}

/* The log. A record is whole or, as the last one of a killed process, cut short, which the reader sees by its length. */

static bool write_record(uint32_t kind, const void *first, size_t first_bytes, const void *second, size_t second_bytes)
{
    struct { uint32_t magic, kind; uint64_t bytes; } head = {RECORD_MAGIC, kind, first_bytes + second_bytes};
    size_t total = sizeof head + head.bytes, done = 0;
    struct iovec parts[3] = {{&head, sizeof head}, {(void *)first, first_bytes}, {(void *)second, second_bytes}};
    bool written = false;
    pthread_mutex_lock(&log_lock);
    if (state.log >= 0 && state.counters->head[HEAD_ERRNO] == 0) {
        while (done < total) {
            struct iovec rest[3];
            int count = 0;
            size_t skip = done;
            for (int i = 0; i < 3; i++) {
                size_t cut = skip < parts[i].iov_len ? skip : parts[i].iov_len;
                skip -= cut;
                if (parts[i].iov_len > cut)
                    rest[count++] = (struct iovec){(char *)parts[i].iov_base + cut, parts[i].iov_len - cut};
            }
            ssize_t some = writev(state.log, rest, count);
            if (some < 0 && errno == EINTR)
                continue;
            if (some <= 0)
                break;
            done += (size_t)some;
        }
        written = done == total;
        if (written) {
            state.log_bytes += (off_t)total;
            state.budget->used += total;
        } else {
            state.counters->head[HEAD_ERRNO] = errno ? (uint64_t)errno : ENOSPC;
            if (ftruncate(state.log, state.log_bytes) != 0) {
                /* The reader stops at a record that is cut short. */
            }
        }
    }
    pthread_mutex_unlock(&log_lock);
    return written;
}

static bool write_text(uint32_t kind, Text *text)
{
    bool written = !text->failed && text->text && write_record(kind, text->text, text->length, NULL, 0);
    free(text->text);
    *text = (Text){0};
    return written;
}

/* Which chunks the log holds already: an open table of their digests. */

static bool remember(const unsigned char digest[16], bool *known)
{
    if (2 * (state.digest_count + 1) > state.digest_room) {
        size_t room = state.digest_room ? 2 * state.digest_room : 1024;
        unsigned char(*table)[16] = calloc(room, 16);
        if (table == NULL)
            return false;
        for (size_t i = 0; i < state.digest_room; i++) {
            static const unsigned char nothing[16];
            if (memcmp(state.digests[i], nothing, 16) == 0)
                continue;
            uint64_t at;
            memcpy(&at, state.digests[i], 8);
            while (memcmp(table[at % room], nothing, 16) != 0)
                at++;
            memcpy(table[at % room], state.digests[i], 16);
        }
        free(state.digests);
        state.digests = table;
        state.digest_room = room;
    }
    static const unsigned char nothing[16];
    uint64_t at;
    memcpy(&at, digest, 8);
    for (;; at++) {
        unsigned char *slot = state.digests[at % state.digest_room];
        *known = memcmp(slot, digest, 16) == 0;
        if (*known)
            return true;
        if (memcmp(slot, nothing, 16) == 0) {
            memcpy(slot, digest, 16);
            state.digest_count++;
            return true;
        }
    }
}

static bool write_chunk(const unsigned char *data, size_t bytes, unsigned char digest[16])
{
    struct { unsigned char digest[16]; uint64_t codec, bytes; } head;
    bool known;
    digest_of(data, bytes, digest);
    if (!remember(digest, &known))
        return false;
    if (known)
        return true;
    memcpy(head.digest, digest, 16);
    head.codec = 0;
    head.bytes = bytes;
    const unsigned char *stored = data;
    size_t stored_bytes = bytes;
    if (state.compress != NULL && bytes >= 64) {
        /* The mantissas of floats are noise: a sample says whether the rest is worth the time. */
        size_t sample = bytes < 32768 ? bytes : 32768;
        unsigned long packed_bytes = CHUNK_BYTES + CHUNK_BYTES / 8;
        bool worth = state.compress(state.packed, &packed_bytes, data, sample, 1) == 0 && packed_bytes * 10 < sample * 9;
        if (worth && sample < bytes) {
            packed_bytes = CHUNK_BYTES + CHUNK_BYTES / 8;
            worth = state.compress(state.packed, &packed_bytes, data, bytes, 1) == 0 && packed_bytes < bytes;
        }
        if (worth) {
            head.codec = 1;
            stored = state.packed;
            stored_bytes = packed_bytes;
        }
    }
    return write_record(RECORD_CHUNK, &head, sizeof head, stored, stored_bytes);
}

/* Time and waiting. */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static Status wait_for(Handle event, double until_s)
{
    long pause_ns = 20000;
    for (;;) {
        Status status = driver.event_query(event);
        if (status != STATUS_NOT_READY)
            return status;
        if (now_s() > until_s)
            return STATUS_NOT_READY;
        struct timespec pause = {0, pause_ns};
        nanosleep(&pause, NULL);
        pause_ns = pause_ns < 1000000 ? 2 * pause_ns : pause_ns;
    }
}

/* Waits until the device has done all that this context gave it, so that nobody else writes what is copied.

   A kernel may wait for the host or for one that is launched later, so the wait has an end: STATUS_NOT_READY. */
static Status settle(Handle context, Handle stream)
{
    /* Where something runs that does not end, nobody is to wait again and again for as long. */
    static double patience_s = -1;
    Handle event;
    double until_s = now_s() + (patience_s < 0 ? state.wait_s : patience_s);
    Status status = driver.event_create(&event, EVENT_WITHOUT_TIMING);
    if (status != STATUS_OK)
        return status;
    if (driver.context_record_event != NULL && driver.context_record_event(context, event) == STATUS_OK) {
        status = wait_for(event, until_s);
    } else {
        /* An older driver: what the launch itself waits for, and what waits for the default stream. */
        status = driver.event_record(event, stream);
        if (status == STATUS_OK)
            status = wait_for(event, until_s);
        if (status == STATUS_OK)
            status = driver.event_record(event, STREAM_LEGACY);
        if (status == STATUS_OK)
            status = wait_for(event, until_s);
    }
    driver.event_destroy(event);
    patience_s = status == STATUS_NOT_READY ? 0.25 : -1;
    return status;
}

/* Memory. */

static bool allocation_at(DevicePointer pointer, DevicePointer *base, size_t *size, const char **kind)
{
    unsigned type = 0;
    int managed = 0;
    if (pointer < 4096)
        return false;
    if (driver.range(base, size, pointer) != STATUS_OK || *size == 0) {
        DevicePointer start = 0;
        size_t bytes = 0;
        if (driver.attribute(&start, ATTRIBUTE_RANGE_START, pointer) != STATUS_OK || start == 0 ||
            driver.attribute(&bytes, ATTRIBUTE_RANGE_SIZE, pointer) != STATUS_OK || bytes == 0)
            return false;
        *base = start;
        *size = bytes;
    }
    if (pointer < *base || pointer - *base >= *size)
        return false;
    if (driver.attribute(&type, ATTRIBUTE_MEMORY_TYPE, pointer) != STATUS_OK)
        type = MEMORY_DEVICE;
    if (driver.attribute(&managed, ATTRIBUTE_IS_MANAGED, pointer) != STATUS_OK)
        managed = 0;
    *kind = managed ? "managed" : type == MEMORY_HOST ? "host" : type == MEMORY_ARRAY ? "array" : "device";
    return true;
}

static int compare_sizes(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* The allocation of this launch that a word leads into, or -1 for a word that is no pointer. */
static int add_pointer(Launch *launch, uint64_t word)
{
    DevicePointer base;
    size_t size;
    const char *kind;
    Allocation *found = NULL;
    for (size_t i = 0; i < launch->allocation_count && !found; i++)
        if (word >= launch->allocations[i].base && word - launch->allocations[i].base < launch->allocations[i].size)
            found = &launch->allocations[i];
    if (found == NULL) {
        if (launch->allocation_count == MAX_ALLOCATIONS || !allocation_at(word, &base, &size, &kind))
            return -1;
        found = &launch->allocations[launch->allocation_count++];
        *found = (Allocation){.base = base, .size = size, .kind = kind};
    }
    size_t offset = word - found->base;
    size_t *grown = realloc(found->offsets, (found->offset_count + 1) * sizeof *grown);
    if (grown != NULL) {
        found->offsets = grown;
        found->offsets[found->offset_count++] = offset;
    }
    return (int)(found - launch->allocations);
}

/* Decides which bytes of each allocation are recorded: all, or a share from each pointer on where they are too many. */
static size_t choose_pieces(Launch *launch)
{
    size_t all = 0, pointers = 0, chosen = 0;
    for (size_t i = 0; i < launch->allocation_count; i++) {
        all += launch->allocations[i].size;
        pointers += launch->allocations[i].offset_count;
    }
    size_t share = pointers ? state.launch_bytes / pointers : 0;
    for (size_t i = 0; i < launch->allocation_count; i++) {
        Allocation *of = &launch->allocations[i];
        of->complete = all <= state.launch_bytes || of->size <= share * of->offset_count;
        of->pieces = calloc(of->offset_count + 1, sizeof *of->pieces);
        if (of->pieces == NULL) {
            of->complete = false;
            continue;
        }
        if (of->complete) {
            of->pieces[of->piece_count++] = (Piece){0, of->size};
        } else {
            qsort(of->offsets, of->offset_count, sizeof *of->offsets, compare_sizes);
            for (size_t k = 0; k < of->offset_count; k++) {
                size_t start = of->offsets[k];
                size_t end = k + 1 < of->offset_count ? of->offsets[k + 1] : of->size;
                size_t bytes = end - start < share ? end - start : share;
                if (bytes)
                    of->pieces[of->piece_count++] = (Piece){start, bytes};
            }
        }
        for (size_t k = 0; k < of->piece_count; k++)
            chosen += of->pieces[k].bytes;
    }
    return chosen;
}

/* Writes `bytes` bytes of the device as chunks and says their digests; whether any of the first words is a pointer. */
static Status record_bytes(
    Text *text, DevicePointer from, size_t bytes, bool host, Handle stream, bool *pointers, bool *stored)
{
    Status status = STATUS_OK;
    for (size_t done = 0; done < bytes && status == STATUS_OK && *stored;) {
        size_t some = bytes - done < STAGE_BYTES ? bytes - done : STAGE_BYTES;
        if (host) {
            memcpy(state.stage, (const void *)(uintptr_t)(from + done), some);
        } else {
            status = driver.copy(state.stage, from + done, some, stream);
            if (status == STATUS_OK)
                status = driver.stream_wait(stream);
        }
        if (status != STATUS_OK)
            break;
        if (done == 0 && pointers != NULL && from % 8 == 0) {
            for (size_t i = 0; i + 8 <= some && i < 8192 && !*pointers; i += 8) {
                uint64_t word;
                DevicePointer base;
                size_t size;
                memcpy(&word, state.stage + i, 8);
                /* Where memory lies today: numbers that users store are almost never as large and as round. */
                if (word >> 32 && word >> 48 == 0)
                    *pointers = driver.range(&base, &size, word) == STATUS_OK && size > 0;
            }
        }
        for (size_t at = 0; at < some && *stored; at += CHUNK_BYTES) {
            unsigned char digest[16];
            size_t part = some - at < CHUNK_BYTES ? some - at : CHUNK_BYTES;
            *stored = write_chunk(state.stage + at, part, digest);
            if (done || at)
                say(text, ",");
            say_hex(text, digest, 16);
        }
        done += some;
    }
    return status;
}

/* Whether a mangled name has one of these names, separated by commas, as one of its parts. */
static bool is_named(const char *names, const char *symbol)
{
    while (names && *names) {
        size_t length = strcspn(names, ",");
        char mangled[600];
        if (length > 0 && length < 512) {
            snprintf(mangled, sizeof mangled, "%zu%.*s", length, (int)length, names);
            if ((strlen(symbol) == length && strncmp(symbol, names, length) == 0) || strstr(symbol, mangled) != NULL)
                return true;
        }
        names += length + (names[length] == ',');
    }
    return false;
}

/* Names of variables of device code, from the symbol tables of the modules that are loaded. */

static void add_symbol_name(const char *name, bool constant)
{
    if (name[0] == '\0' || name[0] == '$' || name[0] == '.' || strlen(name) > 1024)
        return;
    pthread_mutex_lock(&table_lock);
    int i = 0;
    while (i < state.symbol_name_count && strcmp(state.symbol_names[i], name) != 0)
        i++;
    if (i == state.symbol_name_count && i < MAX_NAMES && (state.symbol_names[i] = strdup(name)) != NULL) {
        state.symbol_constant[i] = false;
        state.symbol_name_count++;
    }
    if (i < state.symbol_name_count && constant)
        state.symbol_constant[i] = true;
    pthread_mutex_unlock(&table_lock);
}

static bool lies_within(uint64_t offset, uint64_t bytes, size_t total)
{
    return offset <= total && bytes <= total - offset;
}

static void read_symbol_names(const unsigned char *image, size_t bytes)
{
    Elf64_Ehdr head;
    if (image == NULL || bytes < sizeof head)
        return;
    memcpy(&head, image, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_shentsize != sizeof(Elf64_Shdr) || !lies_within(head.e_shoff, (uint64_t)head.e_shnum * sizeof(Elf64_Shdr), bytes) ||
        head.e_shstrndx >= head.e_shnum)
        return;
    Elf64_Shdr *sections = malloc((size_t)head.e_shnum * sizeof *sections + 1);
    if (sections == NULL)
        return;
    memcpy(sections, image + head.e_shoff, (size_t)head.e_shnum * sizeof *sections);
    Elf64_Shdr names = sections[head.e_shstrndx];
    for (unsigned i = 0; i < head.e_shnum; i++) {
        Elf64_Shdr table = sections[i];
        if (table.sh_type != SHT_SYMTAB || table.sh_link >= head.e_shnum || !lies_within(table.sh_offset, table.sh_size, bytes))
            continue;
        Elf64_Shdr strings = sections[table.sh_link];
        if (!lies_within(strings.sh_offset, strings.sh_size, bytes) || !lies_within(names.sh_offset, names.sh_size, bytes))
            continue;
        for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
            Elf64_Sym symbol;
            memcpy(&symbol, image + table.sh_offset + at, sizeof symbol);
            if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_size == 0 || symbol.st_shndx >= head.e_shnum ||
                symbol.st_name >= strings.sh_size || sections[symbol.st_shndx].sh_name >= names.sh_size)
                continue;
            const char *name = (const char *)image + strings.sh_offset + symbol.st_name;
            const char *section = (const char *)image + names.sh_offset + sections[symbol.st_shndx].sh_name;
            size_t room = names.sh_size - sections[symbol.st_shndx].sh_name;
            if (memchr(name, 0, strings.sh_size - symbol.st_name) == NULL || memchr(section, 0, room) == NULL)
                continue;
            bool constant = strncmp(section, ".nv.constant3", 13) == 0;
            if ((constant || strncmp(section, ".nv.global", 10) == 0) && is_named(state.variable_names, name))
                add_symbol_name(name, constant);
        }
    }
    free(sections);
}

static void find_symbols(Launch *launch, Handle function)
{
    Handle module = NULL, library = NULL;
    if (driver.function_module == NULL || driver.function_module(&module, function) != STATUS_OK)
        module = NULL;
    if (module == NULL && (driver.kernel_library == NULL || driver.kernel_library(&library, function) != STATUS_OK))
        library = NULL;
    size_t total = 0;
    int count = state.symbol_name_count;
    for (int i = 0; i < count && launch->symbol_count < MAX_SYMBOLS; i++) {
        DevicePointer at = 0;
        size_t bytes = 0;
        Status status = -1;
        if (module != NULL)
            status = driver.module_global(&at, &bytes, module, state.symbol_names[i]);
        else if (library != NULL && driver.library_global != NULL)
            status = driver.library_global(&at, &bytes, library, state.symbol_names[i]);
        if (status != STATUS_OK || bytes == 0 || total + bytes > SYMBOL_BYTES)
            continue;
        total += bytes;
        launch->symbols[launch->symbol_count++] = (Symbol){state.symbol_names[i], at, bytes, state.symbol_constant[i], false};
    }
}

/* Kernels and which of their launches are recorded. */

static int kernel_of(Handle function, const char *symbol)
{
    /* Names are long and much alike; that of a handle is looked at first. */
    static int latest[256];
    size_t slot = ((uintptr_t)function >> 4) % 256;
    int found = -1;
    pthread_mutex_lock(&table_lock);
    if (latest[slot] < state.kernel_count && strcmp(state.kernels[latest[slot]]->name, symbol) == 0)
        found = latest[slot];
    for (int i = 0; i < state.kernel_count && found < 0; i++)
        if (strcmp(state.kernels[i]->name, symbol) == 0)
            found = i;
    if (found < 0 && state.kernel_count < MAX_KERNELS) {
        KernelState *kernel = calloc(1, sizeof *kernel);
        if (kernel != NULL && (kernel->name = strdup(symbol)) != NULL) {
            kernel->wanted = state.kernel_names == NULL || is_named(state.kernel_names, symbol);
            found = state.kernel_count;
            state.kernels[state.kernel_count++] = kernel;
            state.counters->head[HEAD_KERNELS] = (uint64_t)state.kernel_count;
            Text text = {0};
            say(&text, "{\"kernel\":%d,\"wanted\":%s,\"symbol\":", found, kernel->wanted ? "true" : "false");
            say_string(&text, symbol);
            say(&text, "}");
            write_text(RECORD_KERNEL, &text);
        } else {
            free(kernel);
        }
    }
    if (found >= 0)
        latest[slot] = found;
    pthread_mutex_unlock(&table_lock);
    return found;
}

static uint64_t mixed(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Grid, block and every scalar. A word as large as an address is taken for one: where memory lies is no shape. */
static uint64_t shape_of(const LaunchArguments *of, const ParameterState *parameters, size_t count)
{
    uint64_t hash = mixed(1, of->smem_bytes);
    for (int i = 0; i < 3; i++)
        hash = mixed(mixed(hash, of->grid[i]), of->block[i]);
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0; at < parameters[i].size; at += 8) {
            size_t left = parameters[i].size - at;
            uint64_t word = 0;
            memcpy(&word, parameters[i].data + at, left < 8 ? left : 8);
            if (word >> 32 == 0)
                hash = mixed(hash, word);
        }
    return hash;
}

static bool is_power_of_two(uint64_t number) { return (number & (number - 1)) == 0; }

static bool has_enough(const KernelState *kernel)
{
    return kernel->recorded >= 2 * state.launches || kernel->bare >= 2 * state.launches;
}

/* Why this launch is recorded, or NULL. The future is not known: the first, each that is larger than all before, new
   shapes while there is room, then ever fewer. The reader keeps the best of them. */
static const char *reason_for(KernelState *kernel, const LaunchArguments *of, uint64_t shape)
{
    uint64_t threads = 1, most = 2 * state.launches;
    for (int i = 0; i < 3; i++)
        threads *= (uint64_t)of->grid[i] * of->block[i];
    bool known = false;
    for (uint64_t i = 0; i < kernel->shape_count && i < MAX_SHAPES && !known; i++)
        known = kernel->shapes[i] == shape;
    if (!known) {
        if (kernel->shape_count < MAX_SHAPES)
            kernel->shapes[kernel->shape_count] = shape;
        kernel->shape_count++;
    }
    bool larger = threads > kernel->most_threads + kernel->most_threads / 4;
    uint64_t recorded = kernel->recorded + kernel->bare;
    if (kernel->recorded == 0)
        return "first"; /* those before it, if any, could not be recorded with their memory */
    if (larger)
        return "larger";
    if (!known && (recorded < state.launches || (recorded < most - state.launches / 2 && is_power_of_two(kernel->shape_count))))
        return "shape";
    if (known && recorded < state.launches && kernel->repeats < state.launches / 2 && is_power_of_two(kernel->seen)) {
        kernel->repeats++;
        return "repeat";
    }
    return NULL;
}

static size_t parameters_of(
    const LaunchArguments *of, ParameterState *parameters, bool *readable)
{
    size_t count = 0;
    const unsigned char *buffer = NULL;
    size_t buffer_bytes = 0;
    *readable = driver.function_parameter != NULL || driver.kernel_parameter != NULL;
    for (void **extra = of->extra; extra && extra[0] && (extra[0] == EXTRA_BUFFER || extra[0] == EXTRA_SIZE); extra += 2) {
        if (extra[0] == EXTRA_BUFFER)
            buffer = extra[1];
        else
            buffer_bytes = *(size_t *)extra[1];
    }
    bool as_kernel = driver.function_parameter == NULL;
    while (*readable && count < MAX_PARAMETERS) {
        size_t offset, size;
        Status status = as_kernel ? driver.kernel_parameter(of->function, count, &offset, &size)
                                  : driver.function_parameter(of->function, count, &offset, &size);
        if (status != STATUS_OK && count == 0 && !as_kernel && driver.kernel_parameter != NULL) {
            /* A launch takes a handle of either kind. */
            as_kernel = true;
            continue;
        }
        if (status != STATUS_OK)
            break;
        const unsigned char *data = of->parameters ? of->parameters[count] : NULL;
        if (data == NULL && buffer != NULL && offset <= buffer_bytes && size <= buffer_bytes - offset)
            data = buffer + offset;
        if (data == NULL) {
            *readable = false;
            break;
        }
        parameters[count++] = (ParameterState){offset, size, data};
    }
    return count;
}

static void free_launch(Launch *launch)
{
    if (launch == NULL)
        return;
    for (size_t i = 0; i < launch->allocation_count; i++) {
        free(launch->allocations[i].pieces);
        free(launch->allocations[i].offsets);
    }
    free(launch);
}

/* The contents of all that a launch leads to, as two members of a JSON object. */
static Status record_contents(Text *text, Launch *launch, bool first, bool *stored)
{
    Handle stream;
    Status status = driver.stream_create(&stream, STREAM_NON_BLOCKING);
    if (status != STATUS_OK)
        return status;
    say(text, ",\"contents\":[");
    for (size_t i = 0; i < launch->allocation_count && status == STATUS_OK && *stored; i++) {
        Allocation *of = &launch->allocations[i];
        say(text, i ? ",[" : "[");
        for (size_t k = 0; k < of->piece_count && status == STATUS_OK && *stored; k++) {
            say(text, k ? ",[" : "[");
            status = record_bytes(
                text, of->base + of->pieces[k].start, of->pieces[k].bytes, strcmp(of->kind, "host") == 0, stream,
                first ? &of->pointers : NULL, stored);
            say(text, "]");
        }
        say(text, "]");
    }
    say(text, "],\"symbol_contents\":[");
    for (size_t i = 0; i < launch->symbol_count && status == STATUS_OK && *stored; i++) {
        say(text, i ? ",[" : "[");
        status = record_bytes(
            text, launch->symbols[i].at, launch->symbols[i].size, false, stream, first ? &launch->symbols[i].pointers : NULL,
            stored);
        say(text, "]");
    }
    say(text, "]");
    driver.stream_destroy(stream);
    return status;
}

static void say_allocations(Text *text, const Launch *launch)
{
    say(text, ",\"allocations\":[");
    for (size_t i = 0; i < launch->allocation_count; i++) {
        const Allocation *of = &launch->allocations[i];
        say(text, "%s{\"address\":%" PRIu64 ",\"bytes\":%zu,\"kind\":\"%s\",\"complete\":%s,\"pointers\":%s,\"pieces\":[", i ? "," : "",
            of->base, of->size, of->kind, of->complete ? "true" : "false", of->pointers ? "true" : "false");
        for (size_t k = 0; k < of->piece_count; k++)
            say(text, "%s[%zu,%zu]", k ? "," : "", of->pieces[k].start, of->pieces[k].bytes);
        say(text, "]}");
    }
    say(text, "],\"symbols\":[");
    for (size_t i = 0; i < launch->symbol_count; i++) {
        const Symbol *of = &launch->symbols[i];
        say(text, "%s{\"name\":", i ? "," : "");
        say_string(text, of->name);
        say(text, ",\"bytes\":%zu,\"constant\":%s,\"pointers\":%s}", of->size, of->constant ? "true" : "false",
            of->pointers ? "true" : "false");
    }
    say(text, "]");
}

static void record_launch(
    Launch *launch, const LaunchArguments *of, const ApiCallback *call, const ParameterState *parameters, size_t count,
    bool readable, const char *why, const unsigned cluster[3], bool cooperative, bool in_graph, bool contents)
{
    KernelState *kernel = state.kernels[launch->kernel];
    _Atomic uint64_t *counts = state.counters->of[launch->kernel];
    const char *missing = "";
    char device[256] = "";
    int ordinal = 0;
    Text text = {0}, held = {0};
    Status status = STATUS_OK;
    bool stored = true;

    if (driver.context_device(&ordinal) != STATUS_OK || driver.device_name(device, sizeof device, ordinal) != STATUS_OK)
        device[0] = '\0';
    for (size_t i = 0; i < count; i++)
        for (size_t at = 0; at + 8 <= parameters[i].size; at += 8) {
            uint64_t word;
            memcpy(&word, parameters[i].data + at, 8);
            add_pointer(launch, word);
        }
    find_symbols(launch, of->function);
    size_t bytes = choose_pieces(launch);
    if (!readable)
        missing = "parameters";
    else if (in_graph)
        missing = "graph";
    else if (!contents)
        missing = "capturing";
    else if (state.budget->used + 2 * bytes > state.budget->limit)
        missing = "limit";
    if (*missing == '\0') {
        status = settle(launch->context, launch->stream);
        if (status == STATUS_OK)
            status = record_contents(&held, launch, true, &stored);
        if (status == STATUS_NOT_READY)
            missing = "busy";
        else if (status != STATUS_OK)
            missing = "copy";
        else if (!stored)
            missing = "disk";
    }
    launch->contents = *missing == '\0';

    say(&text, "{\"launch\":%" PRIu64 ",\"kernel\":%d,\"order\":%" PRIu64 ",\"why\":\"%s\",\"missing\":\"%s\",\"missing_status\":%d",
        launch->number, launch->kernel, launch->order, why, missing, status);
    say(&text, ",\"grid\":[%u,%u,%u],\"block\":[%u,%u,%u],\"smem_bytes\":%u", of->grid[0], of->grid[1], of->grid[2],
        of->block[0], of->block[1], of->block[2], of->smem_bytes);
    say(&text, ",\"cluster\":[%u,%u,%u],\"cooperative\":%s", cluster[0], cluster[1], cluster[2],
        cooperative ? "true" : "false");
    say(&text, ",\"context\":%u,\"function\":", call->context_number);
    say_string(&text, call->function_name ? call->function_name : "");
    say(&text, ",\"device\":");
    say_string(&text, device);
    say(&text, ",\"parameters\":[");
    for (size_t i = 0; i < count; i++) {
        say(&text, "%s{\"offset\":%zu,\"size\":%zu,\"data\":", i ? "," : "", parameters[i].offset, parameters[i].size);
        say_hex(&text, parameters[i].data, parameters[i].size);
        say(&text, "}");
    }
    say(&text, "]");
    say_allocations(&text, launch);
    if (launch->contents && held.text)
        say(&text, "%s", held.text);
    say(&text, "}");
    free(held.text);
    write_text(RECORD_LAUNCH, &text);
    if (launch->contents) {
        kernel->recorded++;
        counts[COUNT_RECORDED]++;
    } else {
        kernel->bare++;
        counts[COUNT_BARE]++;
        if (strcmp(missing, "limit") == 0)
            counts[COUNT_LIMIT]++;
    }
}

/* Calls of ours are not the program's: they must not be seen again, nor end a stream capture of another thread. */
static int enter_own_calls(void)
{
    int mode = CAPTURE_RELAXED;
    inside++;
    if (driver.exchange_mode != NULL && driver.exchange_mode(&mode) != STATUS_OK)
        mode = -1;
    return mode;
}

static void leave_own_calls(int mode)
{
    if (driver.exchange_mode != NULL && mode >= 0)
        driver.exchange_mode(&mode);
    inside--;
}

static void take_launch_lock(bool alone)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)state.wait_s + 1;
    /* A launch may wait for one of another thread; then both go on, and nothing worse happens than a later launch that
       is recorded while another runs. */
    holds_lock = (alone ? pthread_rwlock_timedwrlock(&launch_lock, &until) : pthread_rwlock_timedrdlock(&launch_lock, &until)) == 0;
}

static void leave_launch_lock(void)
{
    if (holds_lock)
        pthread_rwlock_unlock(&launch_lock);
    holds_lock = false;
}

static bool read_arguments(
    uint32_t number, const void *arguments, LaunchArguments *of, unsigned cluster[3], bool *cooperative)
{
    *cooperative = number == CB_LAUNCH_COOPERATIVE || number == CB_LAUNCH_COOPERATIVE_PTSZ;
    if (number == CB_LAUNCH_EX || number == CB_LAUNCH_EX_PTSZ) {
        LaunchExArguments given;
        memcpy(&given, arguments, sizeof given);
        if (given.config == NULL)
            return false;
        *of = (LaunchArguments){.function = given.function, .smem_bytes = given.config->smem_bytes,
            .stream = given.config->stream, .parameters = given.parameters, .extra = given.extra};
        memcpy(of->grid, given.config->grid, sizeof of->grid);
        memcpy(of->block, given.config->block, sizeof of->block);
        for (unsigned i = 0; given.config->attributes && i < given.config->attribute_count; i++) {
            const LaunchAttribute *attribute = &given.config->attributes[i];
            if (attribute->id == LAUNCH_CLUSTER)
                memcpy(cluster, attribute->value.words, 3 * sizeof *cluster);
            else if (attribute->id == LAUNCH_COOPERATIVE)
                *cooperative = attribute->value.words[0] != 0;
        }
    } else {
        memset(of, 0, sizeof *of);
        memcpy(of, arguments, *cooperative ? offsetof(LaunchArguments, extra) : sizeof *of);
    }
    bool per_thread = number == CB_LAUNCH_KERNEL_PTSZ || number == CB_LAUNCH_EX_PTSZ || number == CB_LAUNCH_COOPERATIVE_PTSZ;
    if (of->stream == NULL)
        of->stream = per_thread ? STREAM_PER_THREAD : STREAM_LEGACY;
    return true;
}

static void before_launch(uint32_t number, const ApiCallback *call)
{
    LaunchArguments of;
    unsigned cluster[3] = {1, 1, 1};
    bool cooperative, readable = false;
    if (!read_arguments(number, call->arguments, &of, cluster, &cooperative))
        return;
    const char *symbol = call->symbol;
    int mode = enter_own_calls();
    if ((symbol == NULL || *symbol == '\0') && driver.function_name != NULL)
        if (driver.function_name(&symbol, of.function) != STATUS_OK)
            symbol = NULL;
    int id = symbol ? kernel_of(of.function, symbol) : -1;
    if (id < 0) {
        state.counters->head[HEAD_OTHER_LAUNCHES]++;
        leave_own_calls(mode);
        take_launch_lock(false);
        return;
    }
    state.counters->of[id][COUNT_SEEN]++;
    KernelState *kernel = state.kernels[id];
    if (!kernel->wanted) {
        leave_own_calls(mode);
        take_launch_lock(false);
        return;
    }
    static __thread ParameterState parameters[MAX_PARAMETERS];
    size_t count = has_enough(kernel) ? 0 : parameters_of(&of, parameters, &readable);
    pthread_mutex_lock(&table_lock);
    uint64_t order = ++kernel->seen;
    const char *why = has_enough(kernel) ? NULL : reason_for(kernel, &of, shape_of(&of, parameters, count));
    if (why != NULL) {
        uint64_t threads = 1;
        for (int i = 0; i < 3; i++)
            threads *= (uint64_t)of.grid[i] * of.block[i];
        kernel->most_threads = threads > kernel->most_threads ? threads : kernel->most_threads;
    }
    pthread_mutex_unlock(&table_lock);
    int capturing = 0;
    if (state.captures_going_on > 0 && driver.stream_is_capturing != NULL)
        if (driver.stream_is_capturing(of.stream, &capturing) != STATUS_OK)
            capturing = 0;
    bool in_graph = capturing == CAPTURE_ACTIVE;
    if (in_graph)
        state.counters->of[id][COUNT_GRAPH]++;
    Launch *launch = why ? calloc(1, sizeof *launch) : NULL;
    leave_own_calls(mode);
    take_launch_lock(launch != NULL);
    if (launch == NULL)
        return;
    if (!holds_lock) {
        free_launch(launch);
        return;
    }
    mode = enter_own_calls();
    launch->number = state.launch_number++;
    launch->kernel = id;
    launch->order = order;
    launch->context = call->context;
    launch->stream = of.stream;
    record_launch(
        launch, &of, call, parameters, count, readable, why, cluster, cooperative, in_graph, state.captures_going_on <= 0);
    leave_own_calls(mode);
    pending = launch;
}

static void after_launch(const ApiCallback *call)
{
    Launch *launch = pending;
    pending = NULL;
    if (launch != NULL) {
        int mode = enter_own_calls();
        _Atomic uint64_t *counts = state.counters->of[launch->kernel];
        Status status = call->result ? *(const Status *)call->result : STATUS_OK;
        bool launched = status == STATUS_OK, stored = true;
        Text text = {0}, held = {0};
        if (launched && launch->contents) {
            status = settle(launch->context, launch->stream);
            if (status == STATUS_OK)
                status = record_contents(&held, launch, false, &stored);
        }
        if (status == STATUS_NOT_READY)
            counts[COUNT_UNFINISHED]++;
        else if (status != STATUS_OK)
            counts[COUNT_FAILED]++;
        say(&text, "{\"launch\":%" PRIu64 ",\"status\":%d,\"launched\":%s,\"stored\":%s", launch->number, status,
            launched ? "true" : "false", stored ? "true" : "false");
        if (launched && launch->contents && status == STATUS_OK && stored && held.text)
            say(&text, "%s", held.text);
        say(&text, "}");
        free(held.text);
        write_text(RECORD_AFTER, &text);
        leave_own_calls(mode);
        free_launch(launch);
    }
    leave_launch_lock();
}

static void on_api_call(uint32_t number, const ApiCallback *call)
{
    bool enters = call->site == SITE_ENTER;
    bool worked = !enters && call->result && *(const Status *)call->result == STATUS_OK;
    switch (number) {
    case CB_LAUNCH_KERNEL:
    case CB_LAUNCH_KERNEL_PTSZ:
    case CB_LAUNCH_COOPERATIVE:
    case CB_LAUNCH_COOPERATIVE_PTSZ:
    case CB_LAUNCH_EX:
    case CB_LAUNCH_EX_PTSZ:
        if (enters)
            before_launch(number, call);
        else
            after_launch(call);
        break;
    case CB_BEGIN_CAPTURE:
    case CB_BEGIN_CAPTURE_PTSZ:
    case CB_BEGIN_CAPTURE_V2:
    case CB_BEGIN_CAPTURE_V2_PTSZ:
    case CB_BEGIN_CAPTURE_TO_GRAPH:
    case CB_BEGIN_CAPTURE_TO_GRAPH_PTSZ:
        state.captures_going_on += worked;
        break;
    case CB_END_CAPTURE:
    case CB_END_CAPTURE_PTSZ:
        if (!enters && state.captures_going_on > 0)
            state.captures_going_on--;
        break;
    case CB_GRAPH_LAUNCH:
    case CB_GRAPH_LAUNCH_PTSZ:
        state.counters->head[HEAD_GRAPH_LAUNCHES] += enters;
        break;
    case CB_LAUNCH_OLD:
    case CB_LAUNCH_GRID:
    case CB_LAUNCH_GRID_ASYNC:
    case CB_LAUNCH_MULTI_DEVICE:
        state.counters->head[HEAD_OTHER_LAUNCHES] += enters;
        break;
    }
}

static void on_callback(void *user, int domain, uint32_t number, const void *data)
{
    (void)user;
    if (!state.ready || getpid() != state.owner)
        return;
    /* Modules are loaded late, perhaps by a call of ours. */
    if (domain == DOMAIN_RESOURCE && number == RESOURCE_MODULE_LOADED) {
        const ResourceCallback *resource = data;
        const ModuleResource *module = resource->descriptor;
        if (module != NULL)
            read_symbol_names((const unsigned char *)module->cubin, module->cubin_bytes);
    }
    if (inside)
        return;
    if (state.trace) {
        Text text = {0};
        const ApiCallback *call = data;
        bool api = domain == DOMAIN_DRIVER;
        say(&text, "{\"domain\":%d,\"number\":%u,\"site\":%d,\"function\":", domain, number, api ? call->site : 0);
        say_string(&text, api && call->function_name ? call->function_name : "");
        say(&text, ",\"symbol\":");
        say_string(&text, api && call->symbol ? call->symbol : "");
        say(&text, "}");
        write_text(RECORD_TRACE, &text);
    }
    if (domain == DOMAIN_DRIVER)
        on_api_call(number, data);
}

/* The beginning. */

static void *mapped(const char *path, size_t bytes, bool create)
{
    int file = open(path, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0600);
    if (file < 0)
        return NULL;
    void *at = MAP_FAILED;
    if (!create || ftruncate(file, (off_t)bytes) == 0)
        at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at == MAP_FAILED ? NULL : at;
}

static uint64_t number_from(const char *variable, uint64_t otherwise)
{
    const char *value = getenv(variable);
    return value && *value ? strtoull(value, NULL, 10) : otherwise;
}

/* A file of the folder, as names separated by commas; they are too many for the environment. NULL without one. */
static char *contents_of(const char *name)
{
    char path[4096];
    char *text = NULL;
    long bytes;
    snprintf(path, sizeof path, "%s/%s", getenv("DICE_CAPTURE_FOLDER"), name);
    FILE *file = fopen(path, "rbe");
    if (file == NULL)
        return NULL;
    if (fseek(file, 0, SEEK_END) == 0 && (bytes = ftell(file)) >= 0 && fseek(file, 0, SEEK_SET) == 0 &&
        (text = malloc((size_t)bytes + 1)) != NULL)
        text[fread(text, 1, (size_t)bytes, file)] = '\0';
    fclose(file);
    return text;
}

static bool open_log(void)
{
    char path[4096], counters[4096];
    const char *folder = getenv("DICE_CAPTURE_FOLDER");
    struct timespec now;
    if (folder == NULL || *folder == '\0')
        return false;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(path, sizeof path, "%s/budget", folder);
    state.budget = mapped(path, sizeof *state.budget, false);
    int length = snprintf(
        path, sizeof path, "%s/%lld.%09ld-%ld.log", folder, (long long)now.tv_sec, now.tv_nsec, (long)getpid());
    if (state.budget == NULL || length < 0 || (size_t)length + 8 >= sizeof path)
        return false;
    snprintf(counters, sizeof counters, "%.*s.counts", length - 4, path);
    state.counters = mapped(counters, sizeof *state.counters, true);
    if (state.counters == NULL)
        return false;
    state.log = open(path, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (state.log < 0)
        return false;
    if (write(state.log, "DICECAP1", 8) == 8)
        state.log_bytes = 8;
    return state.log_bytes == 8;
}

static bool find_driver(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library == NULL)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL)
        return false;
#define FIND(member, name) *(void **)&driver.member = dlsym(library, name)
    FIND(range, "cuMemGetAddressRange_v2");
    FIND(attribute, "cuPointerGetAttribute");
    FIND(copy, "cuMemcpyDtoHAsync_v2");
    FIND(stream_create, "cuStreamCreate");
    FIND(stream_destroy, "cuStreamDestroy_v2");
    FIND(stream_wait, "cuStreamSynchronize");
    FIND(stream_is_capturing, "cuStreamIsCapturing");
    FIND(exchange_mode, "cuThreadExchangeStreamCaptureMode");
    FIND(event_create, "cuEventCreate");
    FIND(event_destroy, "cuEventDestroy_v2");
    FIND(event_record, "cuEventRecord");
    FIND(event_query, "cuEventQuery");
    FIND(context_record_event, "cuCtxRecordEvent");
    FIND(context_device, "cuCtxGetDevice");
    FIND(device_name, "cuDeviceGetName");
    FIND(function_parameter, "cuFuncGetParamInfo");
    FIND(kernel_parameter, "cuKernelGetParamInfo");
    FIND(function_name, "cuFuncGetName");
    FIND(function_module, "cuFuncGetModule");
    FIND(kernel_library, "cuKernelGetLibrary");
    FIND(module_global, "cuModuleGetGlobal_v2");
    FIND(library_global, "cuLibraryGetGlobal");
    FIND(version, "cuDriverGetVersion");
#undef FIND
    return driver.range && driver.attribute && driver.copy && driver.stream_create && driver.stream_destroy &&
           driver.stream_wait && driver.event_create && driver.event_destroy && driver.event_record && driver.event_query &&
           driver.context_device && driver.device_name && driver.module_global;
}

static void write_process(const char *problem, const char *detail)
{
    Text text = {0};
    char name[4096];
    int version = 0;
    ssize_t length = readlink("/proc/self/exe", name, sizeof name - 1);
    name[length > 0 ? length : 0] = '\0';
    if (driver.version != NULL && driver.version(&version) != STATUS_OK)
        version = 0;
    say(&text, "{\"pid\":%ld,\"driver_cuda\":%d,\"parameters_told\":%s,\"program\":", (long)getpid(), version,
        driver.function_parameter || driver.kernel_parameter ? "true" : "false");
    say_string(&text, name);
    say(&text, ",\"problem\":");
    say_string(&text, problem);
    say(&text, ",\"detail\":");
    say_string(&text, detail ? detail : "");
    say(&text, "}");
    write_text(RECORD_PROCESS, &text);
}

static const uint32_t driver_callbacks[] = {
    CB_LAUNCH_OLD, CB_LAUNCH_GRID, CB_LAUNCH_GRID_ASYNC, CB_LAUNCH_KERNEL, CB_LAUNCH_KERNEL_PTSZ, CB_LAUNCH_COOPERATIVE,
    CB_LAUNCH_COOPERATIVE_PTSZ, CB_LAUNCH_MULTI_DEVICE, CB_BEGIN_CAPTURE, CB_BEGIN_CAPTURE_PTSZ, CB_END_CAPTURE,
    CB_END_CAPTURE_PTSZ, CB_GRAPH_LAUNCH, CB_GRAPH_LAUNCH_PTSZ, CB_BEGIN_CAPTURE_V2, CB_BEGIN_CAPTURE_V2_PTSZ, CB_LAUNCH_EX,
    CB_LAUNCH_EX_PTSZ, CB_BEGIN_CAPTURE_TO_GRAPH, CB_BEGIN_CAPTURE_TO_GRAPH_PTSZ,
};

static void subscribe(void)
{
    Status (*start)(void **, CallbackFunction, void *);
    Status (*enable)(uint32_t, void *, int, uint32_t);
    Status (*enable_domain)(uint32_t, void *, int);
    Status (*describe)(Status, const char **);
    void *subscriber = NULL;
    const char *words = "";
    void *cupti = state.cupti_path ? dlopen(state.cupti_path, RTLD_NOW) : NULL;
    if (cupti == NULL) {
        state.counters->head[HEAD_STATE] = STATE_NO_CUPTI;
        write_process("cupti", state.cupti_path ? dlerror() : "no path");
        return;
    }
    *(void **)&start = dlsym(cupti, "cuptiSubscribe");
    *(void **)&enable = dlsym(cupti, "cuptiEnableCallback");
    *(void **)&enable_domain = dlsym(cupti, "cuptiEnableDomain");
    *(void **)&describe = dlsym(cupti, "cuptiGetResultString");
    Status status = start && enable ? start(&subscriber, on_callback, NULL) : -1;
    if (status == STATUS_OK) {
        for (size_t i = 0; i < sizeof driver_callbacks / sizeof *driver_callbacks; i++) {
            /* An older CUPTI does not know the newest functions; a program for it cannot call them. */
            Status enabled = enable(1, subscriber, DOMAIN_DRIVER, driver_callbacks[i]);
            if (driver_callbacks[i] == CB_LAUNCH_KERNEL && enabled != STATUS_OK)
                status = enabled;
        }
        enable(1, subscriber, DOMAIN_RESOURCE, RESOURCE_MODULE_LOADED);
        if (state.trace && enable_domain)
            enable_domain(1, subscriber, DOMAIN_DRIVER);
    }
    if (status != STATUS_OK) {
        state.counters->head[HEAD_STATE] = STATE_REFUSED;
        state.counters->head[HEAD_CUPTI_STATUS] = (uint64_t)status;
        if (describe != NULL)
            describe(status, &words);
        write_process("refused", words);
        return;
    }
    state.counters->head[HEAD_STATE] = STATE_READY;
    write_process("", "");
    state.ready = true;
}

/* Called by the driver when it is initialised, once in a process. */
__attribute__((visibility("default"))) int InitializeInjection(void)
{
    static bool done;
    if (done)
        return 1;
    done = true;
    state.owner = getpid();
    if (!open_log())
        return 1;
    state.counters->head[HEAD_STATE] = STATE_LOADED;
    state.kernel_names = contents_of("kernels");
    state.variable_names = contents_of("variables");
    state.cupti_path = getenv("DICE_CAPTURE_CUPTI") ? strdup(getenv("DICE_CAPTURE_CUPTI")) : NULL;
    state.launches = number_from("DICE_CAPTURE_LAUNCHES", 8);
    state.launches = state.launches ? state.launches : 1;
    state.launch_bytes = number_from("DICE_CAPTURE_LAUNCH_BYTES", (uint64_t)128 << 20);
    state.wait_s = (double)number_from("DICE_CAPTURE_WAIT_S", 10);
    state.trace = number_from("DICE_CAPTURE_TRACE", 0) != 0;
    state.stage = malloc(STAGE_BYTES);
    state.packed = malloc(CHUNK_BYTES + CHUNK_BYTES / 8);
    void *zlib = dlopen("libz.so.1", RTLD_NOW);
    if (zlib != NULL)
        *(void **)&state.compress = dlsym(zlib, "compress2");
    if (state.stage == NULL || state.packed == NULL || !find_driver()) {
        write_process("driver", "libcuda.so.1 lacks a function");
        return 1;
    }
    /* Those that are not in a namespace are found even where no symbol table is shown. */
    for (const char *names = state.variable_names; names && *names;) {
        char name[512];
        size_t length = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", length < sizeof name ? (int)length : 0, names);
        add_symbol_name(name, false);
        names += length + (names[length] == ',');
    }
    subscribe();
    return 1;
}
