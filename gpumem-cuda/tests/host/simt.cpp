// Runs the threads of kernels that were compiled through `simt.h`. Compiled once, and linked with every library of kernels.
//
// Without the C++ library, which would take longer to link than most kernels take to compile.
#include "simt.h"
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <sys/mman.h>

// Saves the registers that a call preserves, changes stacks, and restores those of the other fiber.
#if !defined(__x86_64__)
#error "the host shim switches fibers with x86-64 instructions"
#endif
extern "C" void simt_switch(void **save, void *to);
asm(".text\n.globl simt_switch\n.hidden simt_switch\n.type simt_switch, @function\nsimt_switch:\n"
    "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
    "movq %rsp, (%rdi)\nmovq %rsi, %rsp\n"
    "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
    ".size simt_switch, .-simt_switch\n");

namespace simt {

enum State { RUNS, AT_BARRIER, AT_WARP, AT_GRID, DONE };

enum Collective { NONE, MMA, LDMATRIX };

// A list of what may be moved by copying its bytes. It is freed by hand.
template <class T> struct List {
    T *at = nullptr;
    size_t length = 0, room = 0;

    void push(const T &value) {
        if (length == room) {
            room = room ? 2 * room : 8;
            T *more = (T *)realloc((void *)at, room * sizeof(T));
            if (!more) abort();
            at = more;
        }
        at[length++] = value;
    }

    void release() {
        free(at);
        *this = List();
    }
};

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
    List<Copy> copies;
    char *stack;
};

constexpr size_t STACK = 128 * 1024;
uint3 thread_index;
int lane_in_block;
uint3 block_index;
dim3 block_size, grid_size;
static List<Fiber> fibers;
static int current = -1;
static int threads = 0;
static int order = 0;
static void *scheduler = nullptr;
static void (*body)(void **) = nullptr;
static void **body_arguments = nullptr;

// The stacks of a host thread, for whatever it launches: of one library or another.
struct Stacks {
    List<char *> all;

    char *get(size_t i) {
        while (all.length <= i) {
            void *stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (stack == MAP_FAILED) abort();
            all.push((char *)stack);
        }
        return all.at[i];
    }
};
static void unmap(void *of_thread) {
    Stacks *stacks = (Stacks *)of_thread;
    for (size_t i = 0; i < stacks->all.length; i++) munmap(stacks->all.at[i], STACK);
    stacks->all.release();
    free(stacks);
}
static pthread_key_t stacks_key() {
    pthread_key_t key;
    if (pthread_key_create(&key, unmap) != 0) abort();
    return key;
}
// One for all libraries.
inline pthread_key_t of_thread = stacks_key();
static Stacks &stacks() {
    Stacks *stacks = (Stacks *)pthread_getspecific(of_thread);
    if (!stacks) {
        stacks = (Stacks *)calloc(1, sizeof(Stacks));
        if (!stacks || pthread_setspecific(of_thread, stacks) != 0) abort();
    }
    return *stacks;
}

[[noreturn]] void fail(const char *what) {
    fprintf(stderr, "simt: %s in block (%u, %u, %u)\n", what, block_index.x, block_index.y, block_index.z);
    abort();
}

[[gnu::noinline]] static void wait(State state) {
    Fiber &fiber = fibers.at[current];
    fiber.state = state;
    simt_switch(&fiber.sp, scheduler);
}

void wait_for_block() { wait(AT_BARRIER); }
void wait_for_warp() { wait(AT_WARP); }

static void enter() {
    body(body_arguments);
    fibers.at[current].state = DONE;
    simt_switch(&fibers.at[current].sp, scheduler);
    abort();
}

static void prepare(int i) {
    Fiber &fiber = fibers.at[i];
    fiber.state = RUNS;
    fiber.lane_in_block = i;
    fiber.collective = NONE;
    fiber.copies.length = 0;
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
static bool run_warp(int first, int last) {
    bool progress = false;
    for (;;) {
        bool ran = false;
        for (int k = first; k < last; k++) {
            const int i = order == 0 ? k : last - 1 - (k - first);
            if (fibers.at[i].state != RUNS) continue;
            current = i;
            thread_index = fibers.at[i].thread;
            lane_in_block = fibers.at[i].lane_in_block;
            simt_switch(&scheduler, fibers.at[i].sp);
            ran = progress = true;
        }
        if (ran) continue;
        int waiting = 0, gone = 0;
        for (int i = first; i < last; i++) {
            waiting += fibers.at[i].state == AT_WARP;
            gone += fibers.at[i].state == DONE;
        }
        if (waiting == 0 || waiting + gone < last - first) return progress;
        for (int i = first; i < last; i++)
            if (fibers.at[i].state == AT_WARP) fibers.at[i].state = RUNS;
    }
}

// Runs a block until it has ended, or waits for the others: whether it does.
static bool run_block() {
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
            waiting += fibers.at[i].state == AT_BARRIER;
            at_grid += fibers.at[i].state == AT_GRID;
            gone += fibers.at[i].state == DONE;
        }
        if (gone == threads) return false;
        if (at_grid == threads) return true;
        if (at_grid > 0) fail("a barrier of the grid that not all threads reach");
        if (waiting + gone < threads) fail("lanes of a warp wait for each other and for a barrier");
        // The hardware counts threads that have ended as arrived; a kernel that relies on it is wrong all the same.
        if (gone > 0) fail("a barrier that not all threads reach");
        for (int i = 0; i < threads; i++) fibers.at[i].state = RUNS;
    }
}

// A block that waits for the others of its grid, with its threads and what it has in shared memory.
struct Waiting {
    uint3 block;
    List<Fiber> fibers;
    char *shared;
};

// The block that has run up to there.
static Waiting put_aside(const char *shared, size_t bytes) {
    const Waiting waiting = {block_index, fibers, (char *)malloc(bytes + 1)};
    if (!waiting.shared) abort();
    if (bytes > 0) memcpy(waiting.shared, shared, bytes);
    fibers = List<Fiber>();
    return waiting;
}

// Frees what a block had of its own.
static void dismiss(List<Fiber> &all) {
    for (size_t i = 0; i < all.length; i++) all.at[i].copies.release();
    all.release();
}

// Threads for a block, of which `before` others wait.
static void enlist(size_t before) {
    Stacks &own = stacks();
    while ((int)fibers.length < threads) fibers.push(Fiber{});
    for (int i = 0; i < threads; i++) {
        fibers.at[i].stack = own.get(before * threads + i);
        prepare(i);
    }
}

void launch(
    const unsigned *grid_words, const unsigned *block_words, int warp_order, void (*kernel)(void **), void **arguments, char *shared,
    char *shared_end) {
    const dim3 grid = {grid_words[0], grid_words[1], grid_words[2]};
    grid_size = grid;
    block_size = {block_words[0], block_words[1], block_words[2]};
    order = warp_order;
    body = kernel;
    body_arguments = arguments;
    threads = block_size.x * block_size.y * block_size.z;
    const size_t blocks = (size_t)grid.x * grid.y * grid.z, bytes = shared_end - shared;
    List<Waiting> waiting;
    for (unsigned z = 0; z < grid.z; z++)
        for (unsigned y = 0; y < grid.y; y++)
            for (unsigned x = 0; x < grid.x; x++) {
                block_index = {x, y, z};
                enlist(waiting.length);
                if (shared) memset(shared, 0xff, bytes);
                if (run_block()) waiting.push(put_aside(shared, bytes));
            }
    while (waiting.length > 0) {
        if (waiting.length != blocks) fail("a barrier of the grid that not all blocks reach");
        List<Waiting> again;
        for (size_t left = waiting.length; left > 0; left--) {
            Waiting &next = waiting.at[left - 1];
            dismiss(fibers);
            block_index = next.block;
            fibers = next.fibers;
            for (int i = 0; i < threads; i++) fibers.at[i].state = RUNS;
            if (bytes > 0) memcpy(shared, next.shared, bytes);
            free(next.shared);
            if (run_block()) again.push(put_aside(shared, bytes));
        }
        waiting.release();
        waiting = again;
    }
    current = -1;
}

// The word only counts on a device. Without sections, blocks would have one shared memory.
void wait_for_grid(unsigned *word) {
#ifdef __SANITIZE_ADDRESS__
    fail("blocks that wait for each other, where each needs shared memory of its own");
#endif
    if (*word & 0x7fffffffu) fail("a barrier of the grid whose word is not 0");
    wait(AT_GRID);
}

uint64_t exchange(uint64_t value, int from) {
    Fiber &fiber = fibers.at[current];
    const int own = fiber.lane_in_block, source = (own & ~31) + (from & 31);
    const unsigned turn = fiber.exchanges++;
    fiber.offered[turn & 1] = value;
    wait(AT_WARP);
    return fibers.at[source < threads ? source : own].offered[turn & 1];
}

// An instruction of a whole warp: every lane brings `own`, and when all are there, `work` computes from the fiber of lane 0 and
// its followers what each receives.
template <class Brings, class Gets, class Work>
static Gets together(Collective which, const Brings &own, Work work) {
    static_assert(sizeof(Brings) <= sizeof(Fiber::brought) && sizeof(Gets) <= sizeof(Fiber::received));
    Fiber &fiber = fibers.at[current];
    memcpy(fiber.brought, &own, sizeof own);
    fiber.collective = which;
    fiber.served = false;
    wait(AT_WARP);
    // The first lane to go on serves all of them.
    if (!fiber.served) {
        const int first = fiber.lane_in_block & ~31;
        for (int i = first; i < first + 32; i++) {
            if (i >= threads || fibers.at[i].collective != which) fail("an instruction of a whole warp lacks lanes");
            fibers.at[i].collective = NONE;
            fibers.at[i].served = true;
        }
        Brings brought[32];
        Gets gets[32];
        for (int i = 0; i < 32; i++) memcpy(&brought[i], fibers.at[first + i].brought, sizeof(Brings));
        work(brought, gets);
        for (int i = 0; i < 32; i++) memcpy(fibers.at[first + i].received, &gets[i], sizeof(Gets));
    }
    Gets result;
    memcpy(&result, fiber.received, sizeof result);
    return result;
}

static float half_to_float(unsigned bits, bool is_bf16) {
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
template <int K, bool IS_BF16> void mma(const unsigned *a, const unsigned *b, float *c) {
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

template void mma<8, false>(const unsigned *, const unsigned *, float *);
template void mma<8, true>(const unsigned *, const unsigned *, float *);
template void mma<16, false>(const unsigned *, const unsigned *, float *);
template void mma<16, true>(const unsigned *, const unsigned *, float *);

// ldmatrix.sync.aligned.m8n8.x2 and .x4, with and without .trans.
template <int COUNT, bool TRANSPOSED> void ldmatrix(const void *row, unsigned *to) {
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

template void ldmatrix<2, false>(const void *, unsigned *);
template void ldmatrix<2, true>(const void *, unsigned *);
template void ldmatrix<4, false>(const void *, unsigned *);
template void ldmatrix<4, true>(const void *, unsigned *);

static void perform(const Copy &copy) {
    memcpy(copy.to, copy.from, copy.given);
    memset(copy.to + copy.given, 0, copy.bytes - copy.given);
}

// cp.async of `bytes`, of which all but the first `given` are zeros.
void copy_async(void *to, const void *from, int bytes, int given) {
    if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0) fail("cp.async with an address that is not aligned");
    const Copy copy = {(char *)to, (const char *)from, bytes, given};
    if (order == 0) return perform(copy);
    fibers.at[current].copies.push(copy);
}

void wait_copies() {
    List<Copy> &copies = fibers.at[current].copies;
    for (size_t i = 0; i < copies.length; i++) perform(copies.at[i]);
    copies.length = 0;
}

} // namespace simt
