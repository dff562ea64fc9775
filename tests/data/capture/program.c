/* A program that launches kernels of the fake driver, as a user's program does; the first argument says how. */

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int cuInit(unsigned);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemAllocManaged(uint64_t *, size_t, unsigned);
int cuMemAllocHost_v2(uint64_t *, size_t);
int cuModuleLoad(void **, const char *);
int cuModuleGetFunction(void **, void *, const char *);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphLaunch(void *, void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
int cuLaunchCooperativeKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **);
typedef struct { int id; char padding[4]; unsigned value[16]; } Attribute;
typedef struct { unsigned sizes[6], smem; void *stream; Attribute *attributes; unsigned count; } Config;
int cuLaunchKernelEx(const Config *, void *, void **, void **);
void fake_refuse_copies(int);
void fake_go_on(void);

static void *scale, *bump, *apply, *hang, *fault, *library, *empty;
static uint64_t x, y, counters;

static int do_scale(int n, float factor, uint64_t from, uint64_t to, void *stream)
{
    void *arguments[] = {&n, &factor, &from, &to};
    return cuLaunchKernel(scale, (unsigned)(n + 255) / 256, 1, 1, 256, 1, 1, 0, stream, arguments, NULL);
}

static int do_bump(unsigned blocks)
{
    void *arguments[] = {&counters};
    return cuLaunchKernel(bump, blocks, 1, 1, 32, 2, 1, 1024, NULL, arguments, NULL);
}

static void *bump_often(void *ignored)
{
    for (int i = 0; i < 50; i++)
        do_bump(8);
    return ignored;
}

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "plain";
    void *module;
    if (!strcmp(how, "none")) {
        puts("nothing to do");
        return 0;
    }
    cuInit(0);
    cuModuleLoad(&module, getenv("FAKE_CUBIN") ? getenv("FAKE_CUBIN") : "/nowhere");
    cuModuleGetFunction(&scale, module, "_Z5scaleifPKfPf");
    cuModuleGetFunction(&bump, module, "_ZN4ours4bumpILi4EEEvPi");
    cuModuleGetFunction(&apply, module, "_Z5apply4View");
    cuModuleGetFunction(&hang, module, "_Z4hangPi");
    cuModuleGetFunction(&fault, module, "_Z5faultPi");
    cuModuleGetFunction(&library, module, "_Z7libraryi");
    cuModuleGetFunction(&empty, module, "empty");
    int n = 1000;
    cuMemAlloc_v2(&x, 4000);
    cuMemAlloc_v2(&y, 8000);
    cuMemAllocManaged(&counters, 4096, 1);
    for (int i = 0; i < n; i++)
        ((float *)(uintptr_t)x)[i] = (float)i;
    printf("runs %s\n", how);
    fflush(stdout);

    if (!strcmp(how, "plain")) {
        /* Into the middle of the second allocation. */
        do_scale(n, 2, x, y + 4000, NULL);
        do_bump(8);
        cuLaunchKernel(empty, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL);
        n = 3;
        void *arguments[] = {&n};
        cuLaunchKernel(library, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
        return 0;
    }
    if (!strcmp(how, "many")) {
        for (int i = 0; i < 100; i++)
            do_scale(i == 60 ? 1000 : 100 + i % 3, 1, x, y, NULL);
        for (int i = 0; i < 40; i++)
            do_bump(4);
    }
    if (!strcmp(how, "crash")) {
        do_scale(n, 2, x, y, NULL);
        raise(SIGSEGV);
    }
    if (!strcmp(how, "exit")) {
        do_scale(n, 2, x, y, NULL);
        _exit(3);
    }
    if (!strcmp(how, "kill")) {
        do_scale(n, 2, x, y, NULL);
        kill(getpid(), SIGKILL);
    }
    if (!strcmp(how, "hang")) {
        void *arguments[] = {&counters};
        cuLaunchKernel(hang, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
        fake_go_on();
        do_bump(8);
    }
    if (!strcmp(how, "fault")) {
        void *arguments[] = {&counters};
        cuLaunchKernel(fault, 1, 1, 1, 1, 1, 1, 0, NULL, arguments, NULL);
        do_bump(8);
    }
    if (!strcmp(how, "refused")) {
        void *arguments[] = {&counters};
        return cuLaunchKernel(bump, 1, 1, 1, 2048, 1, 1, 0, NULL, arguments, NULL) == 1 ? 0 : 9;
    }
    if (!strcmp(how, "graph")) {
        void *graph;
        cuStreamBeginCapture_v2((void *)7, 0);
        do_scale(n, 2, x, y, (void *)7);
        do_bump(8);
        cuStreamEndCapture((void *)7, &graph);
        cuGraphLaunch(graph, NULL);
        cuGraphLaunch(graph, NULL);
        do_bump(8);
    }
    if (!strcmp(how, "struct")) {
        struct { int n; uint64_t data; double weight; } view = {16, x, 0.5};
        void *arguments[] = {&view};
        cuLaunchKernel(apply, 1, 1, 1, 32, 1, 1, 0, NULL, arguments, NULL);
    }
    if (!strcmp(how, "buffer")) {
        struct { int n; float factor; uint64_t from, to; } packed = {n, 3, x, y};
        size_t bytes = sizeof packed;
        void *extra[] = {(void *)1, &packed, (void *)2, &bytes, NULL};
        cuLaunchKernel(scale, 4, 1, 1, 256, 1, 1, 0, NULL, NULL, extra);
    }
    if (!strcmp(how, "extended")) {
        float factor = 2;
        void *arguments[] = {&n, &factor, &x, &y}, *one[] = {&counters};
        Attribute attributes[2] = {{.id = 4, .value = {2, 1, 1}}, {.id = 2, .value = {1}}};
        Config config = {{4, 1, 1, 256, 1, 1}, 64, NULL, attributes, 2};
        cuLaunchKernelEx(&config, scale, arguments, NULL);
        cuLaunchCooperativeKernel(bump, 8, 1, 1, 32, 1, 1, 0, NULL, one);
    }
    if (!strcmp(how, "host")) {
        uint64_t pinned;
        cuMemAllocHost_v2(&pinned, 4000);
        memcpy((void *)(uintptr_t)pinned, (void *)(uintptr_t)x, 4000);
        do_scale(n, 2, pinned, y, NULL);
        float *plain = malloc(4000);
        memcpy(plain, (void *)(uintptr_t)x, 4000);
        do_scale(n - 1, 2, (uint64_t)(uintptr_t)plain, y, NULL);
    }
    if (!strcmp(how, "big")) {
        uint64_t big, other;
        cuMemAlloc_v2(&big, 12 << 20);
        cuMemAlloc_v2(&other, 12 << 20);
        unsigned *words_of = (unsigned *)(uintptr_t)big;
        for (unsigned i = 0; i < 3 << 20; i++)
            words_of[i] = 2654435761u * i;
        do_scale(3 << 20, 1, big, other, NULL);
        for (int i = 0; i < 9; i++)
            do_scale(n + i, 1, x, y, NULL);
    }
    if (!strcmp(how, "noisy")) {
        uint64_t big, other;
        cuMemAlloc_v2(&big, 6 << 20);
        cuMemAlloc_v2(&other, 6 << 20);
        unsigned *words_of = (unsigned *)(uintptr_t)big;
        for (unsigned round = 0; round < 6; round++) {
            for (unsigned i = 0; i < 3 << 19; i++)
                words_of[i] = 2654435761u * (i + (round << 24)) ^ (i * i * (round + 1));
            do_scale((3 << 19) - (int)round, 1, big, other, NULL);
        }
    }
    if (!strcmp(how, "arena")) {
        uint64_t arena;
        cuMemAlloc_v2(&arena, 64 << 20);
        for (int i = 0; i < n; i++)
            ((float *)(uintptr_t)(arena + (1 << 20)))[i] = (float)i;
        do_scale(n, 2, arena + (1 << 20), arena + (32 << 20), NULL);
    }
    if (!strcmp(how, "threads")) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            pthread_create(&threads[i], NULL, bump_often, NULL);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
    }
    if (!strcmp(how, "refuses-copies")) {
        fake_refuse_copies(1);
        do_bump(8);
        fake_refuse_copies(0);
    }
    if (!strcmp(how, "children")) {
        for (int i = 0; i < 2; i++)
            if (fork() == 0)
                return execl(words[0], words[0], i ? "plain" : "exit", (char *)NULL);
        while (wait(NULL) > 0)
            ;
    }
    return 0;
}
