// What a compiled kernel (a shared object) and the runner that loads it know of each other. Plain C layout.
#ifndef DICE_EMU_INTERFACE_H
#define DICE_EMU_INTERFACE_H

extern "C" {

struct dice_emu_uint3 {
    unsigned x, y, z;
};

// One argument of a launch. `kind` is 'p' for a pointer, 'i', 'u' or 'f' for a number, 'b' for bytes of another type.
struct dice_emu_arg {
    void* data;
    unsigned size;
    unsigned kind;
};

// What the entry function expects of an argument; `size` is that of the pointee for a pointer (0 for void).
struct dice_emu_param {
    unsigned size;
    unsigned kind;
};

// The shared object exports one of these under the name `dice_emu_module`.
struct dice_emu_module_info {
    unsigned version;
    unsigned arity;
    const dice_emu_param* params;
    void (*entry)(const dice_emu_arg*);
    dice_emu_uint3* thread_idx;
    dice_emu_uint3* block_idx;
    dice_emu_uint3* block_dim;
    dice_emu_uint3* grid_dim;
    char** dynamic_shared;   // where extern __shared__ arrays begin; set before each launch
    unsigned* dynamic_bytes;
    char* shared_begin;      // static __shared__ variables
    char* shared_end;
    char* device_begin;      // __device__ and __constant__ variables
    char* device_end;
    unsigned returns_early;  // whether the kernel's text has a return statement
};

enum { dice_emu_version = 3 };

// Kinds of warp operations. For shuffles `param` is lane argument | width << 8.
enum dice_emu_warp_kind {
    dice_emu_syncwarp,
    dice_emu_shfl_idx,
    dice_emu_shfl_up,
    dice_emu_shfl_down,
    dice_emu_shfl_xor,
    dice_emu_ballot,
    dice_emu_match_any,
    dice_emu_match_all,
    dice_emu_reduce_add,
    dice_emu_reduce_min_signed,
    dice_emu_reduce_max_signed,
    dice_emu_reduce_min,
    dice_emu_reduce_max,
    dice_emu_reduce_and,
    dice_emu_reduce_or,
    dice_emu_reduce_xor,
    dice_emu_active
};

// Exported by the runner.
int dice_emu_barrier(int line, int kind, int predicate);  // kind: 0 plain, 1 count, 2 and, 3 or
unsigned long long dice_emu_warp(int kind, unsigned mask, unsigned long long value, unsigned param, int line);
unsigned dice_emu_lane(void);
[[noreturn]] void dice_emu_stop(const char* status, const char* what, int line);
void dice_emu_yield(void);
void dice_emu_fence(int whole_grid);
void dice_emu_atomic(int on);  // the volatile accesses until `off` are one atomic operation
unsigned long long dice_emu_clock(void);
void* dice_emu_malloc(unsigned long size);
void dice_emu_free(void* address);
}

#endif
