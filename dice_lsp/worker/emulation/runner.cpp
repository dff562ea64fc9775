// Runs one compiled kernel on this machine's processor: loads the shared object, gives every thread of a block a fiber,
// keeps each buffer between unmapped pages and reports on standard output what happened.
//
//   runner SHARED_OBJECT JOB_FD STACK_BYTES
//
// The job is a file that both sides map: a header, records of device variables, launches and arguments, then the buffers'
// bytes, which are updated in place. The answer is one line per launch (fields between tabs); the first line that is not
// `ran` is the last.
//
// The kernel's text is not trusted. A system-call filter is put on before the shared object is loaded (its initialisers
// could run code), and a much narrower one before its entry is called.

#include "interface.h"

#include <cerrno>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <new>

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#if defined(__linux__)
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

namespace {

struct JobHeader {
    uint32_t magic, launches, variables, function;  // `function`: a function of the host instead of a kernel
};

// A device variable: where it lies from the shared object's start, and its size.
struct JobVariable {
    uint64_t offset, size;
};

struct JobLaunch {
    uint32_t grid[3], block[3];
    uint32_t smem_bytes, order, guard, arguments;
    uint32_t shift_bytes;  // how far past a multiple of 16 the buffers begin
    uint32_t pointers, settings, unused;
    uint64_t seed, deadline_us;
};

// Of kind 'p' a buffer that is passed, 'h' one that others point into, 'a' an address, else as in `dice_emu_arg`. Those that
// are passed come first.
struct JobArgument {
    uint64_t size, offset;
    uint32_t kind, flags, itemsize, align;
};

// An address among the bytes of a by-value argument: where in it, and where in which buffer it points.
struct JobPointer {
    uint32_t argument, offset, buffer, unused;
    uint64_t byte_offset;
};

// What a device variable holds when a launch begins: the variable's number, and where in the job the bytes lie.
struct JobSetting {
    uint32_t variable, size;
    uint64_t offset;
};

constexpr uint32_t job_magic = 0x33454344;
enum { order_ascending, order_descending, order_random };
enum { guard_right, guard_left };
enum { flag_writable = 1, flag_integer = 2 };

constexpr int max_threads = 1024;
constexpr int max_arguments = 256;
constexpr size_t max_value_bytes = 4096;  // of all parameters together, before CUDA 12.1
constexpr uint64_t patience = 8;
constexpr unsigned char canary = 0xC3;
constexpr unsigned char poison = 0xFF;

int status_fd = 1;
dice_emu_module_info* module_info = nullptr;
uintptr_t module_base = 0;
bool in_kernel = false;
uintptr_t last_access = 0;  // where the kernel last asked for memory, for stops inside this program or a library

void write_all(const char* text, size_t length) {
    while (length > 0) {
        ssize_t n = write(status_fd, text, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;
        text += n;
        length -= static_cast<size_t>(n);
    }
}

void say(const char* format, ...) __attribute__((format(printf, 1, 2)));
void say(const char* format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (n > static_cast<int>(sizeof text) - 1) n = sizeof text - 1;
    write_all(text, static_cast<size_t>(n));
}

// Ends the line of an answer with the thread that was running and the place in the shared object, then ends the process.
[[noreturn]] void finish(uintptr_t pc) {
    dice_emu_uint3 b{}, t{};
    if (module_info && in_kernel) {
        b = *module_info->block_idx;
        t = *module_info->thread_idx;
        if (pc < module_base || pc >= reinterpret_cast<uintptr_t>(module_info->shared_end)) pc = last_access;
    }
    say("\t%u,%u,%u\t%u,%u,%u\t%lu\n", b.x, b.y, b.z, t.x, t.y, t.z, static_cast<unsigned long>(pc - module_base));
    _exit(0);
}

#if defined(__x86_64__) && !defined(DICE_EMU_UCONTEXT)
extern "C" void dice_emu_switch(void** save, void* load);
asm(R"(
.text
.globl dice_emu_switch
.type dice_emu_switch, @function
dice_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size dice_emu_switch, .-dice_emu_switch
)");

void* first_frame(char* top, void (*start)()) {
    // As after a call: the stack pointer is 8 below a multiple of 16 when `start` begins.
    void** sp = reinterpret_cast<void**>(top) - 2;
    *sp = reinterpret_cast<void*>(start);
    sp -= 6;
    memset(sp, 0, 6 * sizeof(void*));
    return sp;
}
#define DICE_EMU_OWN_SWITCH 1
#elif defined(__aarch64__) && !defined(DICE_EMU_UCONTEXT)
extern "C" void dice_emu_switch(void** save, void* load);
asm(R"(
.text
.globl dice_emu_switch
.type dice_emu_switch, %function
dice_emu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size dice_emu_switch, .-dice_emu_switch
)");

void* first_frame(char* top, void (*start)()) {
    char* sp = top - 160;
    memset(sp, 0, 160);
    reinterpret_cast<void**>(sp)[11] = reinterpret_cast<void*>(start);
    return sp;
}
#define DICE_EMU_OWN_SWITCH 1
#else
// Any other processor: the C library's contexts, which also save the signal mask and are therefore slower.
void dice_emu_switch(void** save, void* load) {
    ucontext_t here;
    *save = &here;
    swapcontext(&here, static_cast<ucontext_t*>(load));
}
#endif

struct Fiber {
    void* sp = nullptr;
    char* low = nullptr;  // lowest mapped byte of the guard below the stack
    char* stack = nullptr;
    size_t stack_bytes = 0;
#if !defined(DICE_EMU_OWN_SWITCH)
    ucontext_t first;
#endif
};

constexpr size_t stack_guard = 64 << 10;
size_t stack_bytes = 256 << 10;
Fiber fibers[max_threads + 1];
int fiber_count = 0;
int idle[max_threads + 1];
int idle_count = 0;
int running_fiber = -1;
void* scheduler_sp = nullptr;

// A thread's rank is its linear index; its position is its place in the order in which threads are run.

struct WarpWait {
    unsigned long long value, result;
    unsigned kind, mask, param;
    int line;
};

int threads = 0;
int alive = 0;
int current = 0;                       // position of the running thread
uint16_t rank_at[max_threads];         // position -> rank
uint16_t position_of[max_threads];     // rank -> position
dice_emu_uint3 index_of[max_threads];  // rank -> threadIdx
uint64_t ready[max_threads / 64];      // by position
bool started[max_threads];
int16_t fiber_of[max_threads];
WarpWait wait_of[max_threads];         // by rank
uint32_t exists[max_threads / 32], left[max_threads / 32], waiting[max_threads / 32];
int barrier_line[max_threads];         // by rank, 0 when not at a barrier
int barrier_kind[max_threads];
int at_barrier = 0, barrier_true = 0;
int barrier_answer[4];
const dice_emu_arg* entry_arguments = nullptr;

// Time, for telling what is ordered: barriers passed by the block, and the __syncwarp that the lanes of a warp have passed
// together. Shuffles and votes order no memory.
uint32_t block_serial = 0;  // blocks run so far, from 1
uint32_t block_epoch = 0;
uint32_t warp_time[max_threads / 32];     // counts every __syncwarp
uint32_t warp_met[max_threads / 32];      // the last one of all lanes
uint32_t heard[max_threads][32];          // what a lane knows of the others since one of some lanes only
bool some_met[max_threads / 32];          // whether there was one in this block

// Between threads that no barrier orders, memory is ordered by fences and what is passed on after them: time goes on with
// every fence. An atomic or volatile write hands on, with its place, the time of its block's last fence (and whatever its
// thread has been told itself); who reads the place so knows what was written until then.
struct Told {
    uint32_t grid = 0, block = 0;  // by __threadfence, and by __threadfence_block within the block
};
uint32_t fence_time = 1;
Told last_fence;            // of the running block
Told told[max_threads];     // by rank
// A ticket: the place that a thread has polled last and when it was written, and the same once the thread has fenced. It
// may then write the place in its turn.
struct Ticket {
    uintptr_t address = 0;
    uint32_t time = 0;
};
Ticket polled[max_threads], taken[max_threads];
bool any_told = false;
bool watching = false;
bool in_atomic = false;
const char* watched = "all";  // `part` when the watch ended before the launch did

Told later(const Told& a, const Told& b) { return {a.grid > b.grid ? a.grid : b.grid, a.block > b.block ? a.block : b.block}; }

// The lanes of a group have passed a __syncwarp together.
void meet(int warp, uint32_t group);

void settle();  // ends the check of the running thread's last conflicting write

void set_ready(int position) { ready[position >> 6] |= 1ull << (position & 63); }
void clear_ready(int position) { ready[position >> 6] &= ~(1ull << (position & 63)); }

[[noreturn]] void stop(const char* hazard, int line, const char* format, ...) __attribute__((format(printf, 3, 4)));
[[noreturn]] void stop(const char* hazard, int line, const char* format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (char* c = text; *c; ++c)
        if (*c == '\t' || *c == '\n') *c = ' ';
    say("stop\t%s\t%s\t%d", hazard, text, line);
    finish(0);
}

void become(int position) {
    current = position;
    *module_info->thread_idx = index_of[rank_at[position]];
}

int find_ready(int from) {
    int words = (threads + 63) >> 6;
    int first = from >> 6;
    uint64_t bits = first < words ? ready[first] & (~0ull << (from & 63)) : 0;
    for (int w = first; w < words;) {
        if (bits) return (w << 6) + __builtin_ctzll(bits);
        if (++w < words) bits = ready[w];
    }
    return -1;
}

// Computes the results of a warp operation for the lanes of `group` and makes them ready to run.
void complete(int warp, uint32_t group) {
    WarpWait* lanes = &wait_of[warp * 32];
    int first = __builtin_ctz(group);
    unsigned kind = lanes[first].kind;
    unsigned long long all = 0;
    switch (kind) {
    case dice_emu_ballot:
        for (uint32_t g = group; g; g &= g - 1) {
            int lane = __builtin_ctz(g);
            if (lanes[lane].value) all |= 1ull << lane;
        }
        break;
    case dice_emu_match_all:
        all = group;
        for (uint32_t g = group; g; g &= g - 1)
            if (lanes[__builtin_ctz(g)].value != lanes[first].value) all = 0;
        break;
    case dice_emu_active:
        all = group;
        break;
    case dice_emu_syncwarp:
    case dice_emu_match_any:
    case dice_emu_shfl_idx:
    case dice_emu_shfl_up:
    case dice_emu_shfl_down:
    case dice_emu_shfl_xor:
        break;
    default: {
        uint32_t total = static_cast<uint32_t>(lanes[first].value);
        for (uint32_t g = group & (group - 1); g; g &= g - 1) {
            uint32_t v = static_cast<uint32_t>(lanes[__builtin_ctz(g)].value);
            int32_t a = static_cast<int32_t>(total), b = static_cast<int32_t>(v);
            switch (kind) {
            case dice_emu_reduce_add: total += v; break;
            case dice_emu_reduce_min_signed: total = static_cast<uint32_t>(b < a ? b : a); break;
            case dice_emu_reduce_max_signed: total = static_cast<uint32_t>(b > a ? b : a); break;
            case dice_emu_reduce_min: total = v < total ? v : total; break;
            case dice_emu_reduce_max: total = v > total ? v : total; break;
            case dice_emu_reduce_and: total &= v; break;
            case dice_emu_reduce_or: total |= v; break;
            case dice_emu_reduce_xor: total ^= v; break;
            default: break;
            }
        }
        all = total;
    }
    }
    for (uint32_t g = group; g; g &= g - 1) {
        int lane = __builtin_ctz(g);
        WarpWait& me = lanes[lane];
        int width = static_cast<int>(me.param >> 8 & 63), argument = static_cast<int>(me.param & 255);
        int segment = width ? lane & ~(width - 1) : 0;
        int source = lane;
        switch (kind) {
        case dice_emu_shfl_idx: source = segment + (argument & (width - 1)); break;
        case dice_emu_shfl_up: source = lane - argument < segment ? lane : lane - argument; break;
        case dice_emu_shfl_down: source = lane + argument >= segment + width ? lane : lane + argument; break;
        case dice_emu_shfl_xor: source = (lane ^ argument) >= segment + width ? lane : lane ^ argument; break;
        case dice_emu_match_any: {
            unsigned long long same = 0;
            for (uint32_t h = group; h; h &= h - 1)
                if (lanes[__builtin_ctz(h)].value == me.value) same |= 1ull << __builtin_ctz(h);
            me.result = same;
            continue;
        }
        default: me.result = all; continue;
        }
        // What a lane that does not take part would give is undefined on a GPU: the poison makes it show.
        me.result = group >> source & 1 ? lanes[source].value : ~0ull;
    }
    waiting[warp] &= ~group;
    if (kind == dice_emu_syncwarp) meet(warp, group);
    for (uint32_t g = group; g; g &= g - 1) set_ready(position_of[warp * 32 + __builtin_ctz(g)]);
}

void meet(int warp, uint32_t group) {
    uint32_t time = ++warp_time[warp];
    if (group == (exists[warp] & ~left[warp])) {
        warp_met[warp] = time;
    } else {
        uint32_t common[32] = {};
        for (uint32_t g = group; g; g &= g - 1) {
            const uint32_t* own = heard[warp * 32 + __builtin_ctz(g)];
            for (int lane = 0; lane < 32; ++lane) common[lane] = own[lane] > common[lane] ? own[lane] : common[lane];
        }
        for (uint32_t g = group; g; g &= g - 1) common[__builtin_ctz(g)] = time;
        for (uint32_t g = group; g; g &= g - 1) memcpy(heard[warp * 32 + __builtin_ctz(g)], common, sizeof common);
        some_met[warp] = true;
    }
    if (!any_told) return;
    Told all;
    for (uint32_t g = group; g; g &= g - 1) all = later(all, told[warp * 32 + __builtin_ctz(g)]);
    for (uint32_t g = group; g; g &= g - 1) told[warp * 32 + __builtin_ctz(g)] = all;
}

// The lanes that an operation of `lane` waits for, if they have all come; else 0.
uint32_t gathered(int warp, int lane) {
    const WarpWait* lanes = &wait_of[warp * 32];
    uint32_t need = lanes[lane].mask & exists[warp] & ~left[warp];
    if ((waiting[warp] & need) != need) return 0;
    for (uint32_t g = need; g; g &= g - 1) {
        const WarpWait& other = lanes[__builtin_ctz(g)];
        if (other.kind != lanes[lane].kind || other.mask != lanes[lane].mask) return 0;
    }
    return need;
}

// Nobody can run. Lets go whoever may go on; false when the block is done. A block that can never go on is a fault.
bool release() {
    if (alive == 0) return false;
    // __activemask and coalesced_threads take in the lanes that came to the same line before the warp had to stop.
    bool some = false;
    for (int w = 0; w * 32 < threads; ++w) {
        uint32_t pending = waiting[w];
        for (uint32_t g = pending; g; g &= g - 1) {
            WarpWait& first = wait_of[w * 32 + __builtin_ctz(g)];
            if (first.kind != dice_emu_active) continue;
            uint32_t group = 0;
            for (uint32_t h = pending; h; h &= h - 1) {
                WarpWait& other = wait_of[w * 32 + __builtin_ctz(h)];
                if (other.kind == dice_emu_active && other.line == first.line) group |= 1u << __builtin_ctz(h);
            }
            complete(w, group);
            some = true;
            break;
        }
    }
    if (some) return true;
    int at_line = 0, other_line = 0, here = 0, warp_line = 0, in_warp = 0;
    for (int r = 0; r < threads; ++r) {
        if (barrier_line[r]) {
            if (!at_line) at_line = barrier_line[r];
            if (barrier_line[r] != at_line && !other_line) other_line = barrier_line[r];
            ++here;
        } else if (waiting[r >> 5] >> (r & 31) & 1) {
            if (!in_warp++) warp_line = wait_of[r].line;
        }
    }
    // From Volta on a barrier waits for the threads that have not exited, so an early return before one is harmless. In a
    // kernel without a return a thread is gone only because it went round the barrier, which is undefined.
    if (here && here == (module_info->returns_early ? alive : threads) && !other_line) {
        barrier_answer[0] = 0;
        barrier_answer[1] = barrier_true;
        barrier_answer[2] = barrier_true == here;
        barrier_answer[3] = barrier_true > 0;
        at_barrier = barrier_true = 0;
        ++block_epoch;
        if (any_told) {
            Told all;
            for (int r = 0; r < threads; ++r) all = later(all, told[r]);
            for (int r = 0; r < threads; ++r) told[r] = all;
        }
        for (int r = 0; r < threads; ++r) {
            if (!barrier_line[r]) continue;
            barrier_line[r] = 0;
            set_ready(position_of[r]);
        }
        current = -1;
        return true;
    }
    if (other_line) stop("divergent_barrier", at_line, "threads of a block wait at different barriers, lines %d and %d", at_line, other_line);
    if (here && in_warp) stop("deadlock", at_line, "%d threads wait at a barrier, %d in a warp operation of line %d", here, in_warp, warp_line);
    if (here) stop("divergent_barrier", at_line, "%d of %d threads wait at a barrier that the others never reach", here, threads);
    stop("deadlock", warp_line, "%d threads wait in a warp operation that lanes of its mask never reach", in_warp);
}

// The next thread to run: the first ready one after the running one, in a circle.
int pick() {
    for (;;) {
        int p = find_ready(current + 1);
        if (p < 0 && current >= 0) p = find_ready(0);
        if (p >= 0) return p;
        if (!release()) return -1;
    }
}

void fiber_main() {
    for (;;) {
        int me = current;
        started[me] = true;
        fiber_of[me] = static_cast<int16_t>(running_fiber);
        module_info->entry(entry_arguments);
        settle();
        int rank = rank_at[me], warp = rank >> 5;
        clear_ready(me);
        --alive;
        left[warp] |= 1u << (rank & 31);
        for (uint32_t g = waiting[warp]; g; g &= g - 1) {
            int lane = __builtin_ctz(g);
            if (!(waiting[warp] >> lane & 1) || wait_of[warp * 32 + lane].kind == dice_emu_active) continue;
            uint32_t group = gathered(warp, lane);
            if (group) complete(warp, group);
        }
        int next = pick();
        int self = running_fiber;
        if (next < 0) {
            idle[idle_count++] = self;
            dice_emu_switch(&fibers[self].sp, scheduler_sp);
        } else {
            become(next);
            if (!started[next]) continue;
            idle[idle_count++] = self;
            running_fiber = fiber_of[next];
            dice_emu_switch(&fibers[self].sp, fibers[running_fiber].sp);
        }
    }
}

int take_fiber() {
    if (idle_count > 0) return idle[--idle_count];
    Fiber& f = fibers[fiber_count];
    char* base = static_cast<char*>(mmap(nullptr, stack_guard + stack_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (base == MAP_FAILED || mprotect(base + stack_guard, stack_bytes, PROT_READ | PROT_WRITE) != 0)
        stop("unsupported", 0, "not enough memory for the stacks of a block");
    f.low = base;
    f.stack = base + stack_guard;
    f.stack_bytes = stack_bytes;
#if defined(DICE_EMU_OWN_SWITCH)
    f.sp = first_frame(f.stack + stack_bytes, fiber_main);
#else
    getcontext(&f.first);
    f.first.uc_stack.ss_sp = f.stack;
    f.first.uc_stack.ss_size = stack_bytes;
    f.first.uc_link = nullptr;
    makecontext(&f.first, fiber_main, 0);
    f.sp = &f.first;
#endif
    return fiber_count++;
}

// The running thread waits: another one runs until somebody makes it ready again.
void suspend() {
    settle();
    int me = current;
    clear_ready(me);
    int next = pick();
    become(next);
    if (next == me) return;
    int self = running_fiber;
    running_fiber = started[next] ? fiber_of[next] : take_fiber();
    dice_emu_switch(&fibers[self].sp, fibers[running_fiber].sp);
}

uint64_t mix(uint64_t& state) {
    uint64_t z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

void run_block(const JobLaunch& launch, uint64_t number) {
    if (launch.order == order_random) {
        uint64_t state = launch.seed * 0x2545f4914f6cdd1dull + number;
        for (int p = threads - 1; p > 0; --p) {
            int q = static_cast<int>(mix(state) % static_cast<uint64_t>(p + 1));
            uint16_t t = rank_at[p];
            rank_at[p] = rank_at[q];
            rank_at[q] = t;
        }
        for (int p = 0; p < threads; ++p) position_of[rank_at[p]] = static_cast<uint16_t>(p);
    }
    alive = threads;
    at_barrier = barrier_true = 0;
    for (int w = 0; w * 64 < threads; ++w) ready[w] = threads - w * 64 >= 64 ? ~0ull : (1ull << (threads - w * 64)) - 1;
    memset(started, 0, static_cast<size_t>(threads));
    memset(left, 0, sizeof left);
    memset(waiting, 0, sizeof waiting);
    ++block_serial;
    block_epoch = 0;
    memset(warp_time, 0, sizeof warp_time);
    memset(warp_met, 0, sizeof warp_met);
    for (int w = 0; w * 32 < threads; ++w)
        if (some_met[w]) memset(heard[w * 32], 0, sizeof heard[0] * 32);
    memset(some_met, 0, sizeof some_met);
    last_fence = Told{};
    if (any_told) memset(static_cast<void*>(told), 0, sizeof told);
    memset(static_cast<void*>(polled), 0, sizeof(Ticket) * static_cast<size_t>(threads));
    memset(static_cast<void*>(taken), 0, sizeof(Ticket) * static_cast<size_t>(threads));
    any_told = false;
    become(0);
    running_fiber = take_fiber();
    dice_emu_switch(&scheduler_sp, fibers[running_fiber].sp);
}

struct Buffer {
    char *base = nullptr, *pages = nullptr, *data = nullptr;
    size_t total = 0, page_bytes = 0, size = 0, guard = 0, itemsize = 1;
    int argument = 0;
    bool writable = true, integer = false;
};

Buffer buffers[max_arguments];
int buffer_count = 0;
Buffer dynamic_shared;
size_t page = 4096;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

// Maps `size` bytes between inaccessible pages, the end (or the start) of the data at a page's edge, or as near to it as a
// start `shift` bytes past a multiple of 16 lets it be.
void place(Buffer& b, size_t size, size_t align, bool right, size_t shift = 0) {
    b.size = size;
    b.page_bytes = round_up(size + shift ? size + shift : 1, page);
    if (shift) align = 16;
    size_t wide = round_up(size, page);
    b.guard = wide < (16u << 20) ? 16u << 20 : wide > (256u << 20) ? 256u << 20 : wide;
    b.total = b.page_bytes + 2 * b.guard;
    b.base = static_cast<char*>(mmap(nullptr, b.total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    if (b.base == MAP_FAILED) stop("unsupported", 0, "not enough memory for the buffers of a launch");
    b.pages = b.base + b.guard;
    if (mprotect(b.pages, b.page_bytes, PROT_READ | PROT_WRITE) != 0) stop("unsupported", 0, "not enough memory for the buffers of a launch");
    size_t slack = b.page_bytes - size;
    b.data = b.pages + shift + (right ? (slack - shift) / align * align : 0);
    memset(b.pages, canary, static_cast<size_t>(b.data - b.pages));
    memset(b.data + size, canary, static_cast<size_t>(b.pages + b.page_bytes - (b.data + size)));
}

long element_of(const Buffer& b, const char* address) {
    long d = static_cast<long>(address - b.data), n = static_cast<long>(b.itemsize);
    return d >= 0 ? d / n : -((-d + n - 1) / n);
}

// The first byte around the data that was written although nothing owns it, or null.
const char* spoiled(const Buffer& b) {
    for (const char* c = b.data; c-- > b.pages;)
        if (static_cast<unsigned char>(*c) != canary) return c;
    for (const char* c = b.data + b.size; c < b.pages + b.page_bytes; ++c)
        if (static_cast<unsigned char>(*c) != canary) return c;
    return nullptr;
}

// What a kernel takes by malloc or new: the first allocations lie before an inaccessible page, all have canaries around
// them, and what was freed stays inaccessible for a while. As on a GPU by default there are 8 MB.

struct Allocation {
    char *base = nullptr, *data = nullptr;
    size_t total = 0, size = 0;
    bool guarded = false, freed = false;
};
constexpr size_t heap_bytes = 8 << 20, heap_margin = 64;
constexpr int max_allocations = 1 << 16, max_guarded = 4096;
Allocation* heap = nullptr;
int heap_count = 0, heap_guarded = 0;
size_t heap_used = 0;
bool own_heap = false;  // for kernels; a function of the host has the C library's

// Where memory around an allocation was written, in bytes from its start; 0 when nowhere, since no such byte is outside.
long heap_spoiled(const Allocation& a) {
    const char *low = a.guarded ? a.base : a.data - heap_margin, *high = a.guarded ? a.base + a.total - page : a.data + a.size + heap_margin;
    for (const char* c = a.data; c-- > low;)
        if (static_cast<unsigned char>(*c) != canary) return static_cast<long>(c - a.data);
    for (const char* c = a.data + a.size; c < high; ++c)
        if (static_cast<unsigned char>(*c) != canary) return static_cast<long>(c - a.data);
    return 0;
}

[[noreturn]] void heap_overrun(const Allocation& a, long byte) {
    stop("out_of_bounds", 0, "byte %ld of %zu bytes from malloc or new", byte, a.size);
}

void* heap_take(size_t size, size_t align) {
    if (size == 0) size = 1;
    if (align < 16) align = 16;
    if (heap_count == max_allocations || heap_used + size > heap_bytes) return nullptr;
    Allocation a;
    a.size = size;
    a.guarded = heap_guarded < max_guarded && align <= page;
    if (a.guarded) {
        size_t pages = round_up(size, page);
        a.total = pages + page;
        a.base = static_cast<char*>(mmap(nullptr, a.total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        if (a.base == MAP_FAILED || mprotect(a.base, pages, PROT_READ | PROT_WRITE) != 0) return nullptr;
        a.data = a.base + (pages - size) / align * align;
        memset(a.base, canary, pages);
        ++heap_guarded;
    } else {
        size_t before = round_up(heap_margin, align);
        a.total = before + size + heap_margin + align;
        a.base = static_cast<char*>(malloc(a.total));
        if (!a.base) return nullptr;
        a.data = reinterpret_cast<char*>(round_up(reinterpret_cast<uintptr_t>(a.base) + before, align));
        memset(a.data - heap_margin, canary, size + 2 * heap_margin);
    }
    memset(a.data, poison, size);
    heap_used += size;
    heap[heap_count++] = a;
    return a.data;
}

void heap_give(void* address) {
    if (!address) return;
    for (int i = heap_count; i-- > 0;) {
        Allocation& a = heap[i];
        if (a.data != address) continue;
        if (a.freed) stop("fault", 0, "memory is freed twice");
        if (long byte = heap_spoiled(a)) heap_overrun(a, byte);
        heap_used -= a.size;
        if (a.guarded) {
            mprotect(a.base, a.total, PROT_NONE);
            a.freed = true;
            return;
        }
        free(a.base);
        a = heap[--heap_count];
        return;
    }
    stop("fault", 0, "what is freed does not come from malloc or new");
}

// At the end of a launch: what a kernel still holds is looked at, and everything is given back.
void heap_end() {
    for (int i = 0; i < heap_count; ++i) {
        Allocation& a = heap[i];
        if (long byte = a.freed ? 0 : heap_spoiled(a)) heap_overrun(a, byte);
        if (a.guarded)
            munmap(a.base, a.total);
        else
            free(a.base);
    }
    heap_count = heap_guarded = 0;
    heap_used = 0;
}

// The compiler calls the functions below (-fsanitize=thread) before every access to memory. Running one thread after the
// other hides a lost update, so each word remembers who wrote it, and when: two threads that nothing orders must not both
// write it with different values, nor may one read what the other writes. A write of the value that is there already harms
// nobody. Atomics do not race with volatile accesses, nor do volatile reads, which poll; but two volatile writes lose an
// update as two plain ones do.
//
// In global memory only what is read after it was written is looked at, since the next run has the opposite order; and
// there a read may look at what atomics or volatile writes change (a first guess before a loop of atomicCAS).

struct Mark {
    uint32_t block = 0, epoch = 0, warp_time = 0, fence_time = 0;
    uint32_t lanes = 0;  // of `warp`
    uint16_t rank = 0;   // several_threads when more than one
    uint8_t warp = 0;    // several_warps when they are of more than one
    uint8_t bytes = 0;   // which of the word's bytes, low 4 bits; bit 7: atomic or volatile; bit 6: volatile only
};
constexpr uint16_t several_threads = 0xffff;
constexpr uint8_t several_warps = 0xff, atomic_bit = 0x80, volatile_bit = 0x40;
constexpr uint64_t watched_accesses = 1u << 18;  // some 15 ms; a race shows in the first blocks or hardly at all

// What an atomic or volatile write of a word has handed on.
struct Release {
    Told told;
    uint32_t block = 0;
};

struct Region {
    char* begin = nullptr;
    size_t size = 0;
    Mark *writes = nullptr, *reads = nullptr;  // one per word; reads for shared memory only
    Release* releases = nullptr;
    void* memory = nullptr;
    size_t memory_bytes = 0;
    int argument = -1;                         // of a buffer; -1 shared, -2 device variables
    size_t itemsize = 1;
    bool integer = false;
};
Region regions[max_arguments + 3];
int region_count = 0;
int last_region = 0;
uint64_t accesses_left = 0;
bool read_unordered[max_arguments];  // integers that were read although another thread wrote them, by argument

struct Pending {
    const char* address = nullptr;
    size_t size = 0;
    char before[16];
    const Region* region = nullptr;
    uint16_t other = 0;
    bool other_block = false;
    uintptr_t pc = 0;
} pending;

void watch(char* begin, size_t size, int argument, size_t itemsize, bool integer) {
    if (size == 0) return;
    size_t words = size / 4 + 2, marks = argument == -1 ? 2 * words : words;
    size_t bytes = marks * sizeof(Mark) + words * sizeof(Release);
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        accesses_left = 0;
        return;
    }
    Region& r = regions[region_count++];
    r = Region{};
    r.begin = begin;
    r.size = size;
    r.memory = memory;
    r.memory_bytes = bytes;
    r.writes = static_cast<Mark*>(memory);
    if (argument == -1) r.reads = r.writes + words;
    r.releases = reinterpret_cast<Release*>(r.writes + marks);
    r.argument = argument;
    r.itemsize = itemsize;
    r.integer = integer;
}

void unwatch() {
    for (int i = 0; i < region_count; ++i) munmap(regions[i].memory, regions[i].memory_bytes);
    region_count = last_region = 0;
    watching = false;
}

[[noreturn]] void race(const Region& r, const char* address, const char* how, uint16_t other, bool other_block, uintptr_t pc) {
    long element = static_cast<long>(address - r.begin) / static_cast<long>(r.itemsize);
    char who[64];
    if (other_block)
        snprintf(who, sizeof who, "another block");
    else if (other == several_threads)
        snprintf(who, sizeof who, "other threads");
    else
        snprintf(who, sizeof who, "thread (%u,%u,%u)", index_of[other].x, index_of[other].y, index_of[other].z);
    say("race\t%d\t%ld\t%s\t%s", r.argument, element, how, who);
    finish(pc);
}

void settle() {
    if (!pending.address) return;
    const char* address = pending.address;
    pending.address = nullptr;
    if (memcmp(address, pending.before, pending.size) != 0)
        race(*pending.region, address, "write", pending.other, pending.other_block, pending.pc);
}

// Whether the running thread is unordered with who left the mark.
inline bool unordered(const Mark& m, uint16_t rank, uint8_t warp, uint8_t bytes, bool shared, bool both_write = false) {
    if (!m.block || !(m.bytes & bytes & 15)) return false;
    if ((m.bytes & bytes & atomic_bit) && !(both_write && (m.bytes & bytes & volatile_bit))) return false;
    if (m.block != block_serial) return !shared && m.fence_time > told[rank].grid;
    if (m.epoch != block_epoch || m.rank == rank) return false;
    if (m.fence_time <= told[rank].grid || m.fence_time <= told[rank].block) return false;
    if (m.warp != warp) return true;
    if (m.warp_time < warp_met[warp]) return false;
    if (!some_met[warp]) return true;
    for (uint32_t others = m.lanes & ~(1u << (rank & 31)); others; others &= others - 1)
        if (m.warp_time >= heard[rank][__builtin_ctz(others)]) return true;
    return false;
}

// An atomic or volatile access: what the place was last given is known to who reads it.
void acquire(const Release& given, const Mark& written, uintptr_t address, uint16_t rank) {
    if (written.block) polled[rank] = Ticket{address, written.fence_time};
    if (!given.block) return;
    told[rank] = later(told[rank], Told{given.told.grid, given.block == block_serial ? given.told.block : 0});
    any_told = true;
}

void hand_on(Release& given, uint16_t rank) {
    Told own = later(last_fence, told[rank]);
    given.told = later(own, Told{given.told.grid, given.block == block_serial ? given.told.block : 0});
    given.block = block_serial;
}

void access(uintptr_t address, size_t size, bool write, bool is_atomic, uintptr_t pc) {
    last_access = pc;
    if (!watching) return;
    settle();
    if (address - reinterpret_cast<uintptr_t>(regions[last_region].begin) >= regions[last_region].size) {
        int found = -1;
        for (int i = 0; i < region_count; ++i)
            if (address - reinterpret_cast<uintptr_t>(regions[i].begin) < regions[i].size) found = i;
        if (found < 0) return;
        last_region = found;
    }
    Region& r = regions[last_region];
    bool shared = r.argument == -1;
    if ((shared || write) && accesses_left-- == 0) {
        watching = false;
        watched = "part";
        return;
    }
    uint16_t rank = rank_at[current];
    uint8_t warp = static_cast<uint8_t>(rank >> 5);
    // Words of the region's memory are counted from an address that is a multiple of 4.
    uintptr_t base = reinterpret_cast<uintptr_t>(r.begin) & ~uintptr_t{3};
    for (uintptr_t a = address & ~uintptr_t{3}; a < address + size; a += 4) {
        size_t low = address > a ? address - a : 0, high = address + size - a < 4 ? address + size - a : 4;
        uint8_t bytes = static_cast<uint8_t>(((1u << high) - (1u << low)) | (is_atomic ? atomic_bit : 0u) | (is_atomic && !in_atomic ? volatile_bit : 0u));
        size_t word = (a - base) >> 2;
        Mark& w = r.writes[word];
        if (write) {
            const Mark* conflict = unordered(w, rank, warp, bytes, shared, true) ? &w : nullptr;
            if (conflict && is_atomic && taken[rank].address == a && w.fence_time <= taken[rank].time) conflict = nullptr;
            if (!conflict && shared && unordered(r.reads[word], rank, warp, bytes, shared)) conflict = &r.reads[word];
            if (conflict && !pending.address && address + size <= reinterpret_cast<uintptr_t>(r.begin) + r.size) {
                pending.address = reinterpret_cast<const char*>(address);
                pending.size = size < 16 ? size : 16;
                memcpy(pending.before, pending.address, pending.size);
                pending.region = &r;
                pending.other = conflict->rank;
                pending.other_block = conflict->block != block_serial;
                pending.pc = pc;
            }
            if (is_atomic) hand_on(r.releases[word], rank);
            Mark mark{block_serial, block_epoch, warp_time[warp], fence_time, 1u << (rank & 31), rank, warp, bytes};
            if (is_atomic && !(w.bytes & atomic_bit) && w.block == block_serial && w.epoch == block_epoch && w.rank == rank) {
                // A thread's plain write stays one, and of its time, although an atomic of its own follows.
                mark.bytes &= static_cast<uint8_t>(~atomic_bit);
                mark.warp_time = w.warp_time;
                mark.fence_time = w.fence_time;
            }
            if (conflict == &w) {
                // If this write changes nothing it harms nobody, but what it stands upon is still somebody else's.
                mark.rank = several_threads;
                if (w.warp != warp || w.block != block_serial) mark.warp = several_warps;
                mark.lanes |= w.lanes;
                if (!(w.bytes & atomic_bit)) mark.bytes &= static_cast<uint8_t>(~atomic_bit);
                mark.bytes |= w.bytes & 15;
            }
            w = mark;
            continue;
        }
        if (is_atomic) acquire(r.releases[word], w, a, rank);
        if (!shared) {
            // An atomic may meet what it finds, and a volatile read may poll for a thread of its block.
            if (in_atomic || (w.bytes & atomic_bit) || (is_atomic && w.block == block_serial)) continue;
            if (!unordered(w, rank, warp, bytes, false)) continue;
            // Plainly read, marks of a graph's nodes and the like may be read early or late if the results stay the same.
            if (!r.integer || is_atomic) race(r, reinterpret_cast<const char*>(address), "read", w.rank, w.block != block_serial, pc);
            read_unordered[r.argument] = true;
            continue;
        }
        if (unordered(w, rank, warp, bytes, true)) race(r, reinterpret_cast<const char*>(address), "read", w.rank, false, pc);
        Mark& m = r.reads[word];
        bool old = m.block != block_serial || m.epoch != block_epoch || (m.warp == warp && m.warp_time < warp_met[warp]);
        if (old)
            m = Mark{block_serial, block_epoch, warp_time[warp], fence_time, 1u << (rank & 31), rank, warp, bytes};
        else {
            if (m.rank != rank) m.rank = several_threads;
            if (m.warp != warp) m.warp = several_warps;
            if (!is_atomic) m.bytes &= static_cast<uint8_t>(~atomic_bit);
            m.bytes |= bytes & 15;
            m.warp_time = warp_time[warp];
            m.fence_time = fence_time;
            m.lanes |= 1u << (rank & 31);
        }
    }
}

void on_fault(int signal, siginfo_t* info, void* context) {
    uintptr_t pc = 0;
    char access = '?';
#if defined(__x86_64__)
    const ucontext_t* uc = static_cast<ucontext_t*>(context);
    pc = static_cast<uintptr_t>(uc->uc_mcontext.gregs[REG_RIP]);
    access = uc->uc_mcontext.gregs[REG_ERR] & 2 ? 'w' : 'r';
#elif defined(__aarch64__)
    pc = static_cast<uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.pc);
#else
    (void)context;
#endif
    if (signal == SIGALRM || signal == SIGPROF) {
        say("timeout");
        finish(pc);
    }
    if (signal == SIGSYS) {
        say("syscall\t%d", info->si_syscall);
        finish(pc);
    }
    if (signal == SIGFPE) {
        say("stop\tfault\tinteger division by zero\t0");
        finish(pc);
    }
    if (signal == SIGILL || signal == SIGTRAP || signal == SIGABRT) {
        say("stop\tfault\t%s\t0", signal == SIGABRT ? "abort was called" : "an illegal instruction");
        finish(pc);
    }
    const char* address = static_cast<const char*>(info->si_addr);
    if (signal == SIGSEGV && info->si_code == SI_KERNEL && address == nullptr) {
        // The processor refuses aligned vector moves and addresses beyond its range in the same way.
        say("stop\tfault\ta misaligned or impossible address\t0");
        finish(pc);
    }
    for (int i = 0; i < buffer_count; ++i) {
        const Buffer& b = buffers[i];
        if (address < b.base || address >= b.base + b.total) continue;
        if (address >= b.data && address < b.data + b.size)
            say("readonly\t%d\t%ld", b.argument, element_of(b, address));
        else
            say("oob\t%d\t%ld\t%c", b.argument, element_of(b, address), access);
        finish(pc);
    }
    if (dynamic_shared.base && address >= dynamic_shared.base && address < dynamic_shared.base + dynamic_shared.total) {
        say("stop\tshared_memory\tbyte %ld of %zu bytes of dynamic shared memory\t0", static_cast<long>(address - dynamic_shared.data), dynamic_shared.size);
        finish(pc);
    }
    for (int i = 0; i < heap_count; ++i) {
        const Allocation& a = heap[i];
        if (!a.guarded || address < a.base || address >= a.base + a.total) continue;
        if (a.freed)
            say("stop\tfault\tmemory is used after it was freed\t0");
        else
            say("stop\tout_of_bounds\tbyte %ld of %zu bytes from malloc or new\t0", static_cast<long>(address - a.data), a.size);
        finish(pc);
    }
    for (int i = 0; i < fiber_count; ++i)
        if (address >= fibers[i].low && address < fibers[i].stack) {
            say("stop\tfault\tstack overflow: more than %zu KiB of local memory in a thread\t0", stack_bytes >> 10);
            finish(pc);
        }
    if (reinterpret_cast<uintptr_t>(address) < 65536)
        say("stop\tfault\ta null pointer\t0");
    else if (module_info && address >= module_info->shared_end && address < module_info->shared_end + (1 << 20) && module_info->shared_end > module_info->shared_begin)
        say("stop\tshared_memory\tpast the end of static shared memory\t0");
    else
        say("stop\tfault\tan address far from every buffer\t0");
    finish(pc);
}

void install_handlers() {
    static char alternate[64 << 10];
    stack_t st{};
    st.ss_sp = alternate;
    st.ss_size = sizeof alternate;
    sigaltstack(&st, nullptr);
    struct sigaction sa {};
    sa.sa_sigaction = on_fault;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigfillset(&sa.sa_mask);
    for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGALRM, SIGPROF}) sigaction(s, &sa, nullptr);
}

#if defined(__linux__) && (defined(__x86_64__) || defined(__aarch64__))
#if defined(__x86_64__)
constexpr uint32_t audit_arch = AUDIT_ARCH_X86_64;
#else
constexpr uint32_t audit_arch = AUDIT_ARCH_AARCH64;
#endif

struct Filter {
    sock_filter code[160];
    unsigned short length = 0;
    void add(uint16_t op, uint32_t k, uint8_t jt = 0, uint8_t jf = 0) { code[length++] = sock_filter{op, jt, jf, k}; }
    void load(size_t offset) { add(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(offset)); }
    void answer(uint32_t what) { add(BPF_RET | BPF_K, what); }
    void allow(int number) {
        add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1);
        answer(SECCOMP_RET_ALLOW);
    }
    // Allows a call when `argument & bits` is zero.
    void allow_without(int number, int argument, uint32_t bits) {
        add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 4);
        load(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(argument));
        add(BPF_JMP | BPF_JSET | BPF_K, bits, 1, 0);
        answer(SECCOMP_RET_ALLOW);
        answer(SECCOMP_RET_TRAP);
    }
};

bool confine(bool loading) {
    Filter f;
    f.load(offsetof(seccomp_data, arch));
    f.add(BPF_JMP | BPF_JEQ | BPF_K, audit_arch, 1, 0);
    f.answer(SECCOMP_RET_KILL_PROCESS);
    f.load(offsetof(seccomp_data, nr));
#if defined(__x86_64__)
    f.add(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1);
    f.answer(SECCOMP_RET_KILL_PROCESS);
#endif
    for (int n : {SYS_munmap, SYS_mremap, SYS_brk, SYS_madvise, SYS_exit, SYS_exit_group, SYS_rt_sigreturn, SYS_sigaltstack, SYS_clock_gettime,
                  SYS_futex, SYS_setitimer, SYS_sched_yield, SYS_gettimeofday, SYS_getpid, SYS_gettid})
        f.allow(n);
#if !defined(DICE_EMU_OWN_SWITCH)
    f.allow(SYS_rt_sigprocmask);  // swapcontext keeps the signal mask
#endif
    // Answers go to one descriptor; what a kernel prints to the others is dropped.
    f.add(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 4);
    f.load(offsetof(seccomp_data, args));
    f.add(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(status_fd), 0, 1);
    f.answer(SECCOMP_RET_ALLOW);
    f.answer(SECCOMP_RET_ERRNO | EBADF);
    if (loading) {
        for (int n : {SYS_read, SYS_pread64, SYS_close, SYS_fstat, SYS_newfstatat, SYS_lseek, SYS_readlinkat, SYS_faccessat, SYS_getcwd,
                      SYS_rt_sigprocmask, SYS_prctl, SYS_seccomp, SYS_mmap, SYS_mprotect, SYS_getrandom, SYS_statx})
            f.allow(n);
#if defined(__x86_64__)
        for (int n : {SYS_stat, SYS_lstat, SYS_access, SYS_readlink}) f.allow(n);
#endif
        f.allow_without(SYS_openat, 2, O_WRONLY | O_RDWR | O_CREAT | O_TRUNC | O_APPEND);
    } else {
        f.allow_without(SYS_mmap, 2, PROT_EXEC);
        f.allow_without(SYS_mprotect, 2, PROT_EXEC);
        f.add(BPF_JMP | BPF_JEQ | BPF_K, SYS_fstat, 0, 1);
        f.answer(SECCOMP_RET_ERRNO | EBADF);
        f.add(BPF_JMP | BPF_JEQ | BPF_K, SYS_newfstatat, 0, 1);
        f.answer(SECCOMP_RET_ERRNO | EBADF);
    }
    f.answer(SECCOMP_RET_TRAP);
    sock_fprog program{f.length, f.code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}
#else
bool confine(bool) { return false; }
#endif

uint64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<uint64_t>(t.tv_sec) * 1000000000ull + static_cast<uint64_t>(t.tv_nsec);
}

// The deadline is one of the processor's time: on a busy machine a right kernel must not be too slow. Whatever waits
// without using the processor ends at some multiple of it.
void set_timer(uint64_t us) {
    for (int which : {ITIMER_PROF, ITIMER_REAL}) {
        uint64_t after = which == ITIMER_PROF ? us : patience * us;
        itimerval v{};
        v.it_value.tv_sec = static_cast<time_t>(after / 1000000);
        v.it_value.tv_usec = static_cast<suseconds_t>(after % 1000000);
        setitimer(which, &v, nullptr);
    }
}

void die(const char* why) {
    say("unable\t%s\n", why);
    _exit(0);
}

JobVariable* variables = nullptr;
uint32_t variable_count = 0;

// The numbers of the device variables that hold something else than before the launch, or -1 when none of them tells it.
void say_changed(const char* before) {
    const char *begin = module_info->device_begin, *end = module_info->device_end;
    if (begin == end || memcmp(begin, before, static_cast<size_t>(end - begin)) == 0) return;
    bool named = false;
    for (uint32_t i = 0; i < variable_count; ++i) {
        const char* at = reinterpret_cast<const char*>(module_base + variables[i].offset);
        if (at < begin || at >= end || variables[i].size > static_cast<size_t>(end - at)) continue;
        if (memcmp(at, before + (at - begin), variables[i].size) == 0) continue;
        say("%s%u", named ? "," : "", i);
        named = true;
    }
    if (!named) say("-1");
}

// `device_copy` is what the device variables hold at first, and has room for what this launch sets.
void run_launch(const JobLaunch& launch, const JobArgument* arguments, const JobPointer* pointers, const JobSetting* settings,
                int job_fd, size_t job_bytes, char* device_copy) {
    static dice_emu_arg values[max_arguments];
    static unsigned char scalars[max_arguments][max_value_bytes] __attribute__((aligned(64)));
    char* job = static_cast<char*>(mmap(nullptr, job_bytes, PROT_READ, MAP_SHARED, job_fd, 0));
    if (job == MAP_FAILED) die("the job could not be mapped");
    buffer_count = 0;
    for (uint32_t i = 0; i < launch.arguments; ++i) {
        const JobArgument& a = arguments[i];
        values[i].kind = a.kind;
        if (a.kind == 'p' || a.kind == 'h') {
            Buffer& b = buffers[buffer_count++];
            b.argument = static_cast<int>(i);
            b.itemsize = a.itemsize;
            b.writable = (a.flags & flag_writable) != 0;
            b.integer = (a.flags & flag_integer) != 0;
            place(b, a.size, a.align, launch.guard == guard_right, launch.shift_bytes & 15);
            memcpy(b.data, job + a.offset, a.size);
            if (!b.writable) mprotect(b.pages, b.page_bytes, PROT_READ);
            values[i].data = b.data;
            values[i].size = a.itemsize;
        } else {
            if (a.size > sizeof scalars[i]) die("an argument is larger than 4096 bytes");
            memcpy(scalars[i], job + a.offset, a.size);
            values[i].data = scalars[i];
            values[i].size = static_cast<unsigned>(a.size);
        }
    }
    for (uint32_t i = 0; i < launch.pointers; ++i) {
        const JobPointer& p = pointers[i];
        const char* address = static_cast<const char*>(values[p.buffer].data) + p.byte_offset;
        memcpy(scalars[p.argument] + p.offset, &address, sizeof address);
    }
    for (uint32_t i = 0; i < launch.arguments; ++i)
        if (values[i].kind == 'a') memcpy(&values[i].data, scalars[i], sizeof values[i].data);
    dice_emu_module_info& m = *module_info;
    for (uint32_t i = 0; i < launch.settings; ++i) {
        const JobVariable& v = variables[settings[i].variable];
        long at = reinterpret_cast<const char*>(module_base + v.offset) - m.device_begin;
        if (at < 0 || at + settings[i].size > m.device_end - m.device_begin) die("a variable is not among those of the device");
        memcpy(device_copy + at, job + settings[i].offset, settings[i].size);
    }
    munmap(job, job_bytes);

    memcpy(m.device_begin, device_copy, static_cast<size_t>(m.device_end - m.device_begin));
    place(dynamic_shared, launch.smem_bytes, 16, true);
    *m.dynamic_shared = dynamic_shared.data;
    *m.dynamic_bytes = launch.smem_bytes;
    *m.grid_dim = {launch.grid[0], launch.grid[1], launch.grid[2]};
    *m.block_dim = {launch.block[0], launch.block[1], launch.block[2]};
    entry_arguments = values;

    threads = static_cast<int>(launch.block[0] * launch.block[1] * launch.block[2]);
    memset(exists, 0, sizeof exists);
    for (int r = 0; r < threads; ++r) {
        unsigned u = static_cast<unsigned>(r);
        index_of[r] = {u % launch.block[0], u / launch.block[0] % launch.block[1], u / launch.block[0] / launch.block[1]};
        int position = launch.order == order_descending ? threads - 1 - r : r;
        rank_at[position] = static_cast<uint16_t>(r);
        position_of[r] = static_cast<uint16_t>(position);
        exists[r >> 5] |= 1u << (r & 31);
        barrier_line[r] = 0;
    }
    uint64_t blocks = static_cast<uint64_t>(launch.grid[0]) * launch.grid[1] * launch.grid[2];
    uint32_t* shuffled = nullptr;
    uint64_t rotation = 0;
    if (launch.order == order_random) {
        uint64_t state = ~launch.seed;
        if (blocks <= 1u << 22) {
            shuffled = static_cast<uint32_t*>(malloc(blocks * sizeof(uint32_t)));
            for (uint64_t i = 0; i < blocks; ++i) shuffled[i] = static_cast<uint32_t>(i);
            for (uint64_t i = blocks - 1; i > 0; --i) {
                uint64_t j = mix(state) % (i + 1);
                uint32_t t = shuffled[i];
                shuffled[i] = shuffled[j];
                shuffled[j] = t;
            }
        } else {
            rotation = mix(state) % blocks;
        }
    }

    accesses_left = watched_accesses;
    for (int i = 0; i < buffer_count; ++i)
        if (buffers[i].writable) watch(buffers[i].data, buffers[i].size, buffers[i].argument, buffers[i].itemsize, buffers[i].integer);
    watch(m.shared_begin, static_cast<size_t>(m.shared_end - m.shared_begin), -1, 1, false);
    watch(dynamic_shared.data, dynamic_shared.size, -1, 1, false);
    watch(m.device_begin, static_cast<size_t>(m.device_end - m.device_begin), -2, 1, false);
    block_serial = 0;
    watching = region_count > 0;
    fence_time = 1;
    memset(read_unordered, 0, sizeof read_unordered);
    watched = "all";

    set_timer(launch.deadline_us);
    uint64_t begun = now_ns();
    in_kernel = true;
    for (uint64_t i = 0; i < blocks; ++i) {
        uint64_t b = launch.order == order_descending ? blocks - 1 - i : shuffled ? shuffled[i] : (i + rotation) % blocks;
        *m.block_idx = {static_cast<unsigned>(b % launch.grid[0]), static_cast<unsigned>(b / launch.grid[0] % launch.grid[1]),
                        static_cast<unsigned>(b / launch.grid[0] / launch.grid[1])};
        // On a GPU the contents are whatever the last block left; here reading before writing gives NaN or -1.
        memset(m.shared_begin, poison, static_cast<size_t>(m.shared_end - m.shared_begin));
        memset(dynamic_shared.data, poison, dynamic_shared.size);
        run_block(launch, b);
    }
    heap_end();
    in_kernel = false;
    uint64_t elapsed = now_ns() - begun;
    set_timer(0);
    unwatch();
    free(shuffled);

    if (const char* c = spoiled(dynamic_shared)) {
        say("stop\tshared_memory\tbyte %ld of %zu bytes of dynamic shared memory\t0", static_cast<long>(c - dynamic_shared.data), dynamic_shared.size);
        finish(0);
    }
    for (int i = 0; i < buffer_count; ++i)
        if (const char* c = spoiled(buffers[i])) {
            say("oob\t%d\t%ld\tw", buffers[i].argument, element_of(buffers[i], c));
            finish(0);
        }
    job = static_cast<char*>(mmap(nullptr, job_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, job_fd, 0));
    if (job == MAP_FAILED) die("the job could not be mapped");
    for (int i = 0; i < buffer_count; ++i) {
        Buffer& b = buffers[i];
        if (b.writable) memcpy(job + arguments[b.argument].offset, b.data, b.size);
        munmap(b.base, b.total);
    }
    munmap(job, job_bytes);
    buffer_count = 0;
    munmap(dynamic_shared.base, dynamic_shared.total);
    dynamic_shared.base = nullptr;
    say("ran\t%llu\t%s\t", static_cast<unsigned long long>(elapsed), watched);
    say_changed(device_copy);
    say("\t");
    bool first = true;
    for (int i = 0; i < max_arguments; ++i)
        if (read_unordered[i]) {
            say("%s%d", first ? "" : ",", i);
            first = false;
        }
    say("\n");
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) void dice_emu_fence(int whole_grid) {
    if (!watching) return;
    settle();
    taken[rank_at[current]] = polled[rank_at[current]];
    last_fence.block = fence_time;
    if (whole_grid) last_fence.grid = fence_time;
    ++fence_time;
}

__attribute__((visibility("default"))) int dice_emu_barrier(int line, int kind, int predicate) {
    if (!in_kernel) return 0;
    int rank = rank_at[current];
    barrier_line[rank] = line > 0 ? line : 1;
    barrier_kind[rank] = kind;
    ++at_barrier;
    if (predicate) ++barrier_true;
    suspend();
    return barrier_answer[kind];
}

__attribute__((visibility("default"))) unsigned dice_emu_lane(void) { return rank_at[current] & 31u; }

__attribute__((visibility("default"))) unsigned long long dice_emu_warp(int kind, unsigned mask, unsigned long long value, unsigned param, int line) {
    int rank = rank_at[current], warp = rank >> 5, lane = rank & 31;
    if (kind == dice_emu_active) mask = 1u << lane;
    if (!(mask >> lane & 1)) stop("fault", line, "a warp operation's mask %#x does not name the calling lane %d", mask, lane);
    WarpWait& me = wait_of[rank];
    me = WarpWait{value, 0, static_cast<unsigned>(kind), mask, param, line};
    waiting[warp] |= 1u << lane;
    if (kind == dice_emu_active) {
        suspend();
        return me.result;
    }
    if (uint32_t group = gathered(warp, lane))
        complete(warp, group);
    else
        suspend();
    return me.result;
}

__attribute__((visibility("default"))) void dice_emu_stop(const char* status, const char* what, int line) { stop(status, line, "%s", what); }

// Lets the other threads go first: for waits that poll.
__attribute__((visibility("default"))) void dice_emu_yield(void) {
    settle();
    int me = current;
    int next = find_ready(me + 1);
    if (next < 0) next = find_ready(0);
    if (next == me) return;
    become(next);
    int self = running_fiber;
    running_fiber = started[next] ? fiber_of[next] : take_fiber();
    dice_emu_switch(&fibers[self].sp, fibers[running_fiber].sp);
}

__attribute__((visibility("default"))) void dice_emu_atomic(int on) { in_atomic = on != 0; }

__attribute__((visibility("default"))) unsigned long long dice_emu_clock(void) { return now_ns(); }

// A thread that polls for what another one does lets the others run now and then, always before it reads, so that the
// read and the write of an atomic stay together.
static void poll() {
    static int polls = 0, position = -1;
    if (!in_kernel) return;
    if (position != current) polls = 0;
    position = current;
    if (++polls < 2000) return;
    polls = 0;
    bool inside = in_atomic;
    in_atomic = false;
    dice_emu_yield();
    in_atomic = inside;
}

#define DICE_EMU_ACCESS(name, size, write, atomic)                                                                     \
    __attribute__((visibility("default"))) void name(uintptr_t address) {                                              \
        if (atomic && !write) poll();                                                                                  \
        access(address, size, write, atomic, reinterpret_cast<uintptr_t>(__builtin_return_address(0)));                \
    }
#define DICE_EMU_ACCESSES(size)                                                                                        \
    DICE_EMU_ACCESS(__tsan_read##size, size, false, false)                                                             \
    DICE_EMU_ACCESS(__tsan_write##size, size, true, false)                                                             \
    DICE_EMU_ACCESS(__tsan_unaligned_read##size, size, false, false)                                                   \
    DICE_EMU_ACCESS(__tsan_unaligned_write##size, size, true, false)                                                   \
    DICE_EMU_ACCESS(__tsan_volatile_read##size, size, false, true)                                                     \
    DICE_EMU_ACCESS(__tsan_volatile_write##size, size, true, true)                                                     \
    DICE_EMU_ACCESS(__tsan_unaligned_volatile_read##size, size, false, true)                                           \
    DICE_EMU_ACCESS(__tsan_unaligned_volatile_write##size, size, true, true)                                           \
    DICE_EMU_ACCESS(__tsan_read_write##size, size, true, false)                                                        \
    DICE_EMU_ACCESS(__tsan_unaligned_read_write##size, size, true, false)
DICE_EMU_ACCESSES(1)
DICE_EMU_ACCESSES(2)
DICE_EMU_ACCESSES(4)
DICE_EMU_ACCESSES(8)
DICE_EMU_ACCESSES(16)
__attribute__((visibility("default"))) void __tsan_read_range(uintptr_t address, size_t size) {
    access(address, size, false, false, reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
}
__attribute__((visibility("default"))) void __tsan_write_range(uintptr_t address, size_t size) {
    access(address, size, true, false, reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
}
__attribute__((visibility("default"))) void __tsan_init(void) {}
__attribute__((visibility("default"))) void __tsan_func_entry(void*) {}
__attribute__((visibility("default"))) void __tsan_func_exit(void) {}
__attribute__((visibility("default"))) void __tsan_vptr_update(void**, void*) {}
__attribute__((visibility("default"))) void __tsan_vptr_read(void**) {}

__attribute__((visibility("default"))) void* dice_emu_malloc(size_t size) { return heap_take(size, 16); }

__attribute__((visibility("default"))) void dice_emu_free(void* address) { heap_give(address); }

// These take the place of the C library's for the code that is loaded.
__attribute__((visibility("default"))) void __assert_fail(const char* expression, const char*, unsigned line, const char*) noexcept {
    stop("fault", static_cast<int>(line), "assert(%s) failed", expression);
}

__attribute__((visibility("default"))) void abort(void) noexcept { stop("fault", 0, "abort was called"); }

// The compiler calls this (-fsanitize=bounds) when an index is outside an array of known size.
struct SanitizerPlace {
    const char* file;
    uint32_t line, column;
};
struct SanitizerType {
    uint16_t kind, info;
    char name[1];
};
struct SanitizerBounds {
    SanitizerPlace place;
    const SanitizerType* array;
    const SanitizerType* index;
};
__attribute__((visibility("default"))) void __ubsan_handle_out_of_bounds(void* data, uintptr_t index) {
    const SanitizerBounds* d = static_cast<SanitizerBounds*>(data);
    long value = static_cast<long>(index);
    int width = 1 << (d->index->info >> 1);
    if (d->index->info & 1 && width < 64) value = static_cast<long>(index << (64 - width)) >> (64 - width);
    say("bounds\t%ld\t%s\t%u\t%u", value, d->array->name, d->place.line, d->place.column);
    finish(reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
}

struct SanitizerMismatch {
    SanitizerPlace place;
    const SanitizerType* type;
    unsigned char log_align, check;
};
__attribute__((visibility("default"))) void __ubsan_handle_type_mismatch_v1(void* data, uintptr_t address) {
    const SanitizerMismatch* d = static_cast<SanitizerMismatch*>(data);
    if (address == 0) return;  // the access itself faults and says more
    say("stop\tfault\tmisaligned access: %s needs a multiple of %d bytes\t%u", d->type->name, 1 << d->log_align, d->place.line);
    finish(reinterpret_cast<uintptr_t>(__builtin_return_address(0)));
}
}

// The operators of the code that is loaded, and of this program.
void* operator new(size_t size) { return own_heap && in_kernel ? heap_take(size, 16) : malloc(size); }
void* operator new[](size_t size) { return operator new(size); }
void* operator new(size_t size, std::align_val_t align) {
    size_t a = static_cast<size_t>(align);
    return own_heap && in_kernel ? heap_take(size, a) : aligned_alloc(a, round_up(size, a));
}
void* operator new[](size_t size, std::align_val_t align) { return operator new(size, align); }
void operator delete(void* address) noexcept {
    if (own_heap && in_kernel)
        heap_give(address);
    else
        free(address);
}
void operator delete[](void* address) noexcept { operator delete(address); }
void operator delete(void* address, size_t) noexcept { operator delete(address); }
void operator delete[](void* address, size_t) noexcept { operator delete(address); }
void operator delete(void* address, std::align_val_t) noexcept { operator delete(address); }
void operator delete[](void* address, std::align_val_t) noexcept { operator delete(address); }
void operator delete(void* address, size_t, std::align_val_t) noexcept { operator delete(address); }
void operator delete[](void* address, size_t, std::align_val_t) noexcept { operator delete(address); }

int main(int count, char** words) {
    if (count == 2 && strcmp(words[1], "--confinement") == 0) {
        bool filtered = confine(true) && confine(false);
        say("%s\n", filtered ? "seccomp" : "limits");
        _exit(0);
    }
    if (count != 4) {
        say("usage: runner SHARED_OBJECT JOB_FD STACK_BYTES\n");
        return 2;
    }
    page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    stack_bytes = static_cast<size_t>(strtoull(words[3], nullptr, 10));
    status_fd = fcntl(1, F_DUPFD, 16);
    int job_fd = atoi(words[2]);
    struct stat st {};
    if (fstat(job_fd, &st) != 0) die("the job could not be read");
    size_t job_bytes = static_cast<size_t>(st.st_size);
    char* mapped = static_cast<char*>(mmap(nullptr, job_bytes, PROT_READ, MAP_SHARED, job_fd, 0));
    if (mapped == MAP_FAILED) die("the job could not be mapped");
    const JobHeader head = *reinterpret_cast<JobHeader*>(mapped);
    if (head.magic != job_magic) die("the job is of another version");
    // Records are copied out, so that a kernel that writes anywhere cannot change the launches that follow it by chance.
    size_t launch_bytes = head.launches * sizeof(JobLaunch), argument_count = 0;
    const char* record = mapped + sizeof head;
    own_heap = head.function == 0;
    if (own_heap) heap = static_cast<Allocation*>(calloc(max_allocations, sizeof(Allocation)));
    variable_count = head.variables;
    variables = static_cast<JobVariable*>(malloc(variable_count * sizeof(JobVariable) + 1));
    memcpy(variables, record, variable_count * sizeof(JobVariable));
    record += variable_count * sizeof(JobVariable);
    JobLaunch* launches = static_cast<JobLaunch*>(malloc(launch_bytes));
    memcpy(launches, record, launch_bytes);
    record += launch_bytes;
    for (uint32_t i = 0; i < head.launches; ++i) argument_count += launches[i].arguments;
    JobArgument* arguments = static_cast<JobArgument*>(malloc(argument_count * sizeof(JobArgument) + 1));
    memcpy(arguments, record, argument_count * sizeof(JobArgument));
    record += argument_count * sizeof(JobArgument);
    size_t pointer_count = 0, setting_count = 0;
    for (uint32_t i = 0; i < head.launches; ++i) {
        pointer_count += launches[i].pointers;
        setting_count += launches[i].settings;
    }
    JobPointer* pointers = static_cast<JobPointer*>(malloc(pointer_count * sizeof(JobPointer) + 1));
    memcpy(pointers, record, pointer_count * sizeof(JobPointer));
    record += pointer_count * sizeof(JobPointer);
    JobSetting* settings = static_cast<JobSetting*>(malloc(setting_count * sizeof(JobSetting) + 1));
    memcpy(settings, record, setting_count * sizeof(JobSetting));
    munmap(mapped, job_bytes);

    install_handlers();
    bool filtered = confine(true);
    void* handle = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (!handle) die(dlerror());
    module_info = static_cast<dice_emu_module_info*>(dlsym(handle, "dice_emu_module"));
    if (!module_info || module_info->version != dice_emu_version) die("the kernel was built for another runner");
    link_map* map = nullptr;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map) module_base = map->l_addr;
    size_t device_bytes = static_cast<size_t>(module_info->device_end - module_info->device_begin);
    char* device_copy = static_cast<char*>(malloc(device_bytes + 1));
    memcpy(device_copy, module_info->device_begin, device_bytes);
    char* launch_copy = static_cast<char*>(malloc(device_bytes + 1));
    filtered = filtered && confine(false);
    say("confinement\t%s\n", filtered ? "seccomp" : "limits");

    const JobArgument* at = arguments;
    for (uint32_t i = 0; i < head.launches; ++i) {
        uint32_t passed = 0;
        while (passed < launches[i].arguments && at[passed].kind != 'h') ++passed;
        if (passed != module_info->arity) {
            say("arity\t%u\t%u\n", module_info->arity, passed);
            _exit(0);
        }
        for (uint32_t k = 0; k < passed; ++k) {
            const dice_emu_param& p = module_info->params[k];
            bool pointer = at[k].kind == 'p' || at[k].kind == 'a';
            if (pointer != (p.kind == 'p') || (at[k].kind == 'p' && p.size > 1 && p.size != at[k].itemsize) ||
                (!pointer && (p.kind == 'b' || at[k].kind == 'b') && p.size != at[k].size)) {
                say("mismatch\t%u\t%c\t%u\n", k, static_cast<char>(p.kind), p.size);
                _exit(0);
            }
        }
        memcpy(launch_copy, device_copy, device_bytes);
        run_launch(launches[i], at, pointers, settings, job_fd, job_bytes, launch_copy);
        at += launches[i].arguments;
        pointers += launches[i].pointers;
        settings += launches[i].settings;
    }
    _exit(0);
}
