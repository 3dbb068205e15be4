// Runs CUDA kernels on the host, to find what is wrong with them before a device does.
//
// The threads of a block are fibers on one thread. Each warp runs on until all of its lanes wait for a barrier or for the
// warp, before the next warp runs at all: a kernel that forgets a barrier then reads what another warp has not written yet.
// Shared memory is filled with 0xFF bytes (NaN) for every block, so that reading what nobody wrote shows too. Three orders
// of warps and lanes are tried. Barriers that not all threads reach stop the program with a message.
//
// Not covered: the memory model of a GPU, races between blocks, inline PTX.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>
#include <sys/mman.h>

#define __device__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// Each compiled kernel has shared memory of its own: SIMT_SECTION names it.
#define __shared__ static __attribute__((section(SIMT_SECTION)))
#define KERNEL(name) static void name
#define warpSize 32

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }

namespace simt {

enum State { RUNS, AT_BARRIER, AT_WARP, DONE };

struct Fiber {
    void *sp;
    State state;
    uint3 thread;
    int lane_in_block;
    uint64_t offered;
    char *stack;
};

constexpr size_t STACK = 128 * 1024;
inline std::vector<Fiber> fibers;
inline int current = -1;
inline int threads = 0;
inline int order = 0;
inline void *scheduler = nullptr;
inline void (*body)(void *) = nullptr;
inline void *body_arguments = nullptr;
inline uint3 block_index;
inline dim3 block_size, grid_size;

} // namespace simt

#define threadIdx (simt::fibers[simt::current].thread)
#define blockIdx (simt::block_index)
#define blockDim (simt::block_size)
#define gridDim (simt::grid_size)

// Saves the registers that a call preserves, changes stacks, and restores those of the other fiber.
#if !defined(__x86_64__)
#error "the host shim switches fibers with x86-64 instructions"
#endif
extern "C" void simt_switch(void **save, void *to);
#ifdef SIMT_MAIN
asm(".text\n.globl simt_switch\n.type simt_switch, @function\nsimt_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size simt_switch, .-simt_switch\n");
#endif

namespace simt {

[[noreturn]] inline void fail(const char *what) {
    std::fprintf(stderr, "simt: %s in block (%u, %u, %u)\n", what, block_index.x, block_index.y, block_index.z);
    std::abort();
}

[[gnu::noinline]] inline void wait(State state) {
    Fiber &fiber = fibers[current];
    fiber.state = state;
    simt_switch(&fiber.sp, scheduler);
}

inline void enter() {
    body(body_arguments);
    fibers[current].state = DONE;
    simt_switch(&fibers[current].sp, scheduler);
    std::abort();
}

inline void prepare(int i) {
    Fiber &fiber = fibers[i];
    fiber.state = RUNS;
    fiber.lane_in_block = i;
    const unsigned u = i;
    fiber.thread = {u % block_size.x, u / block_size.x % block_size.y, u / (block_size.x * block_size.y)};
    void **sp = (void **)(fiber.stack + STACK);
    *--sp = nullptr;
    *--sp = (void *)enter;
    for (int saved = 0; saved < 6; saved++) *--sp = nullptr;
    fiber.sp = sp;
}

// Runs a warp until no lane can go on; whether any did.
inline bool run_warp(int first, int last) {
    bool progress = false;
    for (;;) {
        bool ran = false;
        for (int k = first; k < last; k++) {
            const int i = order == 0 ? k : last - 1 - (k - first);
            if (fibers[i].state != RUNS) continue;
            current = i;
            simt_switch(&scheduler, fibers[i].sp);
            ran = progress = true;
        }
        if (ran) continue;
        int waiting = 0, gone = 0;
        for (int i = first; i < last; i++) {
            waiting += fibers[i].state == AT_WARP;
            gone += fibers[i].state == DONE;
        }
        if (waiting == 0 || waiting + gone < last - first) return progress;
        for (int i = first; i < last; i++)
            if (fibers[i].state == AT_WARP) fibers[i].state = RUNS;
    }
}

inline void run_block() {
    for (int i = 0; i < threads; i++) prepare(i);
    const int warps = (threads + 31) / 32;
    for (;;) {
        bool progress = false;
        for (int k = 0; k < warps; k++) {
            const int warp = order == 0 ? k : order == 1 ? warps - 1 - k : (k * 7 + 3) % warps;
            const int first = warp * 32, last = first + 32 < threads ? first + 32 : threads;
            progress |= run_warp(first, last);
        }
        if (progress) continue;
        int waiting = 0, gone = 0;
        for (int i = 0; i < threads; i++) {
            waiting += fibers[i].state == AT_BARRIER;
            gone += fibers[i].state == DONE;
        }
        if (gone == threads) return;
        if (waiting + gone < threads) fail("lanes of a warp wait for each other and for a barrier");
        // The hardware counts threads that have ended as arrived; a kernel that relies on it is wrong all the same.
        if (gone > 0) fail("a barrier that not all threads reach");
        for (int i = 0; i < threads; i++) fibers[i].state = RUNS;
    }
}

inline void launch(dim3 grid, dim3 block, int warp_order, char *shared, char *shared_end) {
    grid_size = grid;
    block_size = block;
    order = warp_order;
    threads = block.x * block.y * block.z;
    while ((int)fibers.size() < threads) {
        Fiber fiber{};
        fiber.stack = (char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        fibers.push_back(fiber);
    }
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                block_index = {x, y, z};
                if (shared) memset(shared, 0xff, shared_end - shared);
                run_block();
            }
    current = -1;
}

template <class T> inline T exchange(T value, int from) {
    static_assert(sizeof(T) <= 8);
    const int own = fibers[current].lane_in_block, source = (own & ~31) + (from & 31);
    fibers[current].offered = 0;
    memcpy(&fibers[current].offered, &value, sizeof value);
    wait(AT_WARP);
    T result;
    memcpy(&result, &fibers[source < threads ? source : own].offered, sizeof result);
    wait(AT_WARP);
    return result;
}

inline int lane() { return fibers[current].lane_in_block & 31; }

template <class... A> constexpr int arity(void (*)(A...)) { return sizeof...(A); }

// Calls a kernel with pointers.
template <class... A, size_t... I> void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel((A)arguments[I]...);
}
template <class... A> void call(void (*kernel)(A...), void **arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>());
}

} // namespace simt

inline void __syncthreads() { simt::wait(simt::AT_BARRIER); }
inline void __syncwarp(unsigned = ~0u) { simt::wait(simt::AT_WARP); }
inline void __threadfence() {}
template <class T> T __shfl_xor_sync(unsigned, T v, int mask, int = 32) { return simt::exchange(v, simt::lane() ^ mask); }
template <class T> T __shfl_sync(unsigned, T v, int from, int = 32) { return simt::exchange(v, from); }
template <class T> T __shfl_down_sync(unsigned, T v, int by, int = 32) {
    const int from = simt::lane() + by;
    return simt::exchange(v, from < 32 ? from : simt::lane());
}
template <class T> T atomicAdd(T *p, T v) {
    const T old = *p;
    *p = old + v;
    return old;
}
template <class T> T __ldg(const T *p) { return *p; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __int_as_float(int bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
