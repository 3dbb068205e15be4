// Runs CUDA kernels on the host, to find what is wrong with them before a device does.
//
// The threads of a block are fibers on one thread. Each warp runs on until all of its lanes wait for a barrier or for the
// warp, before the next warp runs at all: a kernel that forgets a barrier then reads what another warp has not written yet.
// Shared memory is filled with 0xFF bytes (NaN) for every block, so that reading what nobody wrote shows too. Three orders
// of warps and lanes are tried. Barriers that not all threads reach stop the program with a message.
//
// Instructions that the lanes of a warp execute together (mma, ldmatrix) are emulated from the tables of the PTX manual; a lane
// that does not take part stops the program. Copies in the background (cp.async) happen at once in the first order, and not
// before they are waited for in the others.
//
// Where blocks wait for each other, each has run up to there before any goes on, in another order.
//
// Not covered: the memory model of a GPU, races between blocks, inline PTX.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>
#include <sys/mman.h>

#define __device__
#define __constant__
#define __host__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// Each compiled kernel has shared memory of its own: SIMT_SECTION names it. The address sanitizer watches no variables in sections
// that are named: for it they are ordinary ones, which are not filled for each block.
#ifdef __SANITIZE_ADDRESS__
#define __shared__ static
#else
#define __shared__ static __attribute__((section(SIMT_SECTION)))
#endif
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

enum State { RUNS, AT_BARRIER, AT_WARP, AT_GRID, DONE };

enum Collective { NONE, MMA, LDMATRIX };

// Bytes that a thread waits for.
struct Copy {
    char *to;
    const char *from;
    int bytes, given;
};

struct Fiber {
    void *sp;
    State state;
    uint3 thread;
    int lane_in_block;
    // What the lane offers to others, in turns: a lane that goes on offers the next value in the other place, while there may be
    // lanes that have yet to take this one.
    uint64_t offered[2];
    unsigned exchanges;
    // What the lane brings to an instruction of the whole warp, and what it gets.
    Collective collective;
    bool served;
    alignas(16) char brought[48], received[16];
    std::vector<Copy> *copies;
    char *stack;
};

constexpr size_t STACK = 128 * 1024;
// A library's own: libraries run beside each other, each one launch at a time.
static std::vector<Fiber> fibers;
static int current = -1;
static int threads = 0;
static int order = 0;
static void *scheduler = nullptr;
static void (*body)(void *) = nullptr;
static void *body_arguments = nullptr;
static uint3 block_index;
static dim3 block_size, grid_size;

// The stacks of a host thread, for whatever it launches.
struct Stacks {
    std::vector<char *> all;

    char *get(size_t i) {
        while (all.size() <= i)
            all.push_back((char *)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        return all[i];
    }

    ~Stacks() {
        for (char *stack : all) munmap(stack, STACK);
    }
};
inline thread_local Stacks stacks;

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
    fiber.collective = NONE;
    if (fiber.copies) fiber.copies->clear();
    const unsigned u = i;
    fiber.thread = {u % block_size.x, u / block_size.x % block_size.y, u / (block_size.x * block_size.y)};
    fiber.exchanges = 0;
    // Stacks that all end at the same place of a page would take each other's lines of the host's caches.
    void **sp = (void **)(fiber.stack + STACK - i % 32 * 576);
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

// Runs a block until it has ended, or waits for the others: whether it does.
inline bool run_block() {
    const int warps = (threads + 31) / 32;
    // The third order comes to every warp: a block has 32 at most.
    const int stride = warps % 7 == 0 ? 5 : 7;
    for (;;) {
        bool progress = false;
        for (int k = 0; k < warps; k++) {
            const int warp = order == 0 ? k : order == 1 ? warps - 1 - k : (k * stride + 3) % warps;
            const int first = warp * 32, last = first + 32 < threads ? first + 32 : threads;
            progress |= run_warp(first, last);
        }
        if (progress) continue;
        int waiting = 0, gone = 0, at_grid = 0;
        for (int i = 0; i < threads; i++) {
            waiting += fibers[i].state == AT_BARRIER;
            at_grid += fibers[i].state == AT_GRID;
            gone += fibers[i].state == DONE;
        }
        if (gone == threads) return false;
        if (at_grid == threads) return true;
        if (at_grid > 0) fail("a barrier of the grid that not all threads reach");
        if (waiting + gone < threads) fail("lanes of a warp wait for each other and for a barrier");
        // The hardware counts threads that have ended as arrived; a kernel that relies on it is wrong all the same.
        if (gone > 0) fail("a barrier that not all threads reach");
        for (int i = 0; i < threads; i++) fibers[i].state = RUNS;
    }
}

// A block that waits for the others of its grid, with its threads and what it has in shared memory.
struct Waiting {
    uint3 block;
    std::vector<Fiber> fibers;
    std::vector<char> shared;
};

// Threads for a block, of which `before` others wait.
inline void enlist(size_t before) {
    while ((int)fibers.size() < threads) fibers.push_back(Fiber{});
    for (int i = 0; i < threads; i++) {
        fibers[i].stack = stacks.get(before * threads + i);
        prepare(i);
    }
}

inline void launch(dim3 grid, dim3 block, int warp_order, char *shared, char *shared_end) {
    grid_size = grid;
    block_size = block;
    order = warp_order;
    threads = block.x * block.y * block.z;
    const size_t blocks = (size_t)grid.x * grid.y * grid.z;
    std::vector<Waiting> waiting;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                block_index = {x, y, z};
                enlist(waiting.size());
                if (shared) memset(shared, 0xff, shared_end - shared);
                if (!run_block()) continue;
                waiting.push_back({block_index, std::move(fibers), std::vector<char>(shared, shared_end)});
                fibers.clear();
            }
    while (!waiting.empty()) {
        if (waiting.size() != blocks) fail("a barrier of the grid that not all blocks reach");
        std::vector<Waiting> again;
        for (; !waiting.empty(); waiting.pop_back()) {
            Waiting &next = waiting.back();
            block_index = next.block;
            fibers.swap(next.fibers);
            for (Fiber &fiber : fibers) fiber.state = RUNS;
            std::copy(next.shared.begin(), next.shared.end(), shared);
            if (run_block()) again.push_back({block_index, std::move(fibers), std::vector<char>(shared, shared_end)});
            fibers.clear();
        }
        waiting.swap(again);
    }
    current = -1;
}

// The word only counts on a device. Without sections, blocks would have one shared memory.
inline void wait_for_grid(unsigned *word) {
#ifdef __SANITIZE_ADDRESS__
    fail("blocks that wait for each other, where each needs shared memory of its own");
#endif
    if (*word & 0x7fffffffu) fail("a barrier of the grid whose word is not 0");
    wait(AT_GRID);
}

template <class T> inline T exchange(T value, int from) {
    static_assert(sizeof(T) <= 8);
    Fiber &fiber = fibers[current];
    const int own = fiber.lane_in_block, source = (own & ~31) + (from & 31);
    const unsigned turn = fiber.exchanges++;
    memcpy(&fiber.offered[turn & 1], &value, sizeof value);
    wait(AT_WARP);
    T result;
    memcpy(&result, &fibers[source < threads ? source : own].offered[turn & 1], sizeof result);
    return result;
}

inline int lane() { return fibers[current].lane_in_block & 31; }

// An instruction of a whole warp: every lane brings `own`, and when all are there, `work` computes from the fiber of lane 0 and
// its followers what each receives.
template <class Brings, class Gets, class Work>
inline Gets together(Collective which, const Brings &own, Work work) {
    static_assert(sizeof(Brings) <= sizeof(Fiber::brought) && sizeof(Gets) <= sizeof(Fiber::received));
    Fiber &fiber = fibers[current];
    memcpy(fiber.brought, &own, sizeof own);
    fiber.collective = which;
    fiber.served = false;
    wait(AT_WARP);
    // The first lane to go on serves all of them.
    if (!fiber.served) {
        const int first = fiber.lane_in_block & ~31;
        for (int i = first; i < first + 32; i++) {
            if (i >= threads || fibers[i].collective != which) fail("an instruction of a whole warp lacks lanes");
            fibers[i].collective = NONE;
            fibers[i].served = true;
        }
        Brings brought[32];
        Gets gets[32];
        for (int i = 0; i < 32; i++) memcpy(&brought[i], fibers[first + i].brought, sizeof(Brings));
        work(brought, gets);
        for (int i = 0; i < 32; i++) memcpy(fibers[first + i].received, &gets[i], sizeof(Gets));
    }
    Gets result;
    memcpy(&result, fiber.received, sizeof result);
    return result;
}

inline float half_to_float(unsigned bits, bool is_bf16) {
    const int exponent_bits = is_bf16 ? 8 : 5, fraction_bits = 15 - exponent_bits;
    const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1), fraction = bits & ((1 << fraction_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    float size;
    if (exponent == (1 << exponent_bits) - 1) {
        size = fraction ? NAN : INFINITY;
    } else if (exponent == 0) {
        size = ldexpf((float)fraction, 1 - bias - fraction_bits);
    } else {
        size = ldexpf((float)(fraction + (1 << fraction_bits)), exponent - bias - fraction_bits);
    }
    return bits >> 15 ? -size : size;
}

// mma.sync.aligned.m16n8k16 and .m16n8k8 .row.col.f32 of bf16 or f16: PTX ISA, "Matrix fragments for mma.m16n8k16 with
// floating point type" and "... for mma.m16n8k8".
template <int K, bool IS_BF16> inline void mma(const unsigned *a, const unsigned *b, float *c) {
    struct Brings {
        unsigned a[K / 4], b[K / 8];
        float c[4];
    } own;
    struct Gets {
        float d[4];
    };
    memcpy(own.a, a, sizeof own.a);
    memcpy(own.b, b, sizeof own.b);
    memcpy(own.c, c, sizeof own.c);
    const Gets result = together<Brings, Gets>(MMA, own, [](const Brings *lanes, Gets *gets) {
        float left[16][K], right[K][8];
        const auto element = [](const unsigned *words, int i) {
            return half_to_float(words[i / 2] >> 16 * (i % 2) & 0xffff, IS_BF16);
        };
        for (int lane = 0; lane < 32; lane++) {
            const int group = lane >> 2, in_group = lane % 4;
            for (int i = 0; i < K / 2; i++) {
                const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
                const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
                left[row][column] = element(lanes[lane].a, i);
            }
            for (int i = 0; i < K / 4; i++)
                right[in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] = element(lanes[lane].b, i);
        }
        for (int lane = 0; lane < 32; lane++) {
            for (int i = 0; i < 4; i++) {
                const int row = i < 2 ? lane >> 2 : (lane >> 2) + 8, column = lane % 4 * 2 + (i & 1);
                // Products are exact, and added with more digits than the result has.
                double sum = 0.0;
                for (int k = 0; k < K; k++) sum += (double)left[row][k] * right[k][column];
                gets[lane].d[i] = (float)(lanes[lane].c[i] + sum);
            }
        }
    });
    memcpy(c, result.d, sizeof result.d);
}

// ldmatrix.sync.aligned.m8n8.x2 and .x4, with and without .trans.
template <int COUNT, bool TRANSPOSED> inline void ldmatrix(const void *row, unsigned *to) {
    struct Gets {
        unsigned words[COUNT];
    };
    const Gets result = together<const char *, Gets>(LDMATRIX, (const char *)row, [](const char *const *rows, Gets *gets) {
        for (int matrix = 0; matrix < COUNT; matrix++) {
            uint16_t elements[8][8];
            for (int r = 0; r < 8; r++) {
                const char *from = rows[matrix * 8 + r];
                if ((uintptr_t)from % 16 != 0) fail("ldmatrix from an address that is not a multiple of 16");
                for (int e = 0; e < 8; e++) memcpy(&elements[r][e], from + 2 * e, 2);
            }
            for (int lane = 0; lane < 32; lane++) {
                const int r = lane / 4, e = lane % 4 * 2;
                const unsigned low = TRANSPOSED ? elements[e][r] : elements[r][e];
                const unsigned high = TRANSPOSED ? elements[e + 1][r] : elements[r][e + 1];
                gets[lane].words[matrix] = low | high << 16;
            }
        }
    });
    memcpy(to, result.words, sizeof result.words);
}

inline void perform(const Copy &copy) {
    memcpy(copy.to, copy.from, copy.given);
    memset(copy.to + copy.given, 0, copy.bytes - copy.given);
}

// cp.async of `bytes`, of which all but the first `given` are zeros.
inline void copy_async(void *to, const void *from, int bytes, int given) {
    if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0) fail("cp.async with an address that is not aligned");
    const Copy copy = {(char *)to, (const char *)from, bytes, given};
    if (order == 0) return perform(copy);
    std::vector<Copy> *&copies = fibers[current].copies;
    if (!copies) copies = new std::vector<Copy>;
    copies->push_back(copy);
}

// cp.async.wait_all
inline void wait_copies() {
    if (!fibers[current].copies) return;
    for (const Copy &copy : *fibers[current].copies) perform(copy);
    fibers[current].copies->clear();
}

template <class... A> constexpr int arity(void (*)(A...)) { return sizeof...(A); }

// Bytes of a parameter that is no pointer.
template <class A> constexpr int plain_bytes() { return std::is_pointer<A>::value ? 0 : (int)sizeof(A); }
// Those of the last one: others are pointers.
template <class... A> constexpr int plain(void (*)(A...)) {
    constexpr int bytes[] = {plain_bytes<A>()...};
    for (size_t i = 0; i + 1 < sizeof...(A); i++)
        if (bytes[i] != 0) return -1;
    return bytes[sizeof...(A) - 1];
}

template <class A> A given(void *argument) {
    if constexpr (std::is_pointer<A>::value) {
        return (A)argument;
    } else {
        A numbers;
        memcpy(&numbers, argument, sizeof numbers);
        return numbers;
    }
}

// Calls a kernel with pointers, the last of which may be to plain numbers.
template <class... A, size_t... I> void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(given<A>(arguments[I])...);
}
template <class... A> void call(void (*kernel)(A...), void **arguments) {
    call(kernel, arguments, std::index_sequence_for<A...>());
}

} // namespace simt

inline void __syncthreads() { simt::wait(simt::AT_BARRIER); }
inline void __syncwarp(unsigned = ~0u) { simt::wait(simt::AT_WARP); }
inline void __threadfence() {}
inline void __threadfence_system() {}
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
inline unsigned atomicInc(unsigned *p, unsigned last) {
    const unsigned old = *p;
    *p = old >= last ? 0 : old + 1;
    return old;
}
template <class T> T __ldg(const T *p) { return *p; }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline void sincospif(float x, float *sine, float *cosine) {
    *sine = (float)sin(3.141592653589793 * x);
    *cosine = (float)cos(3.141592653589793 * x);
}
inline float __int_as_float(int bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
