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

// Where nothing of a kernel's is touched, the sanitizers have nothing to find, and would take most of the time.
#define UNWATCHED __attribute__((no_sanitize("address"), no_sanitize("undefined")))

namespace simt {

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
    unsigned group;
};

struct Fiber {
    void *sp;
    uint3 thread;
    unsigned exchanges;
    List<Copy> copies;
    // Groups of copies that were ended, and what was copied to shared memory and not shown to products.
    unsigned groups;
    List<size_t> unseen;
    char *stack;
};

// Instructions that a warp executes together.
enum Collective { MMA, LDMATRIX, PRODUCT, FENCE, COMMIT, AWAIT, REGISTERS, COLLECTIVES };

// The lanes of a warp, a bit each. Those that are neither running nor waiting for the warp nor asking a barrier in shared memory wait for the block
// or the grid, or have ended.
struct Warp {
    unsigned all, running, waiting, asking, ended;
    // What lanes offer to others, in turns: a lane that goes on offers the next value in the other place, while there may be lanes
    // that have yet to take this one.
    uint64_t offered[2][32];
    // Who has brought something to an instruction of the whole warp, what, and what each gets.
    unsigned here[COLLECTIVES];
    alignas(16) char brought[32 * 64], received[32 * 16];
};

constexpr size_t STACK = 128 * 1024;
uint3 thread_index;
int lane_in_block;
uint3 block_index;
dim3 block_size, grid_size;
static List<Fiber> fibers;
static Warp warps[32];
static int threads = 0;
// Of warpgroups.h: at the start of a block, at its end, and once bytes were written as threads do.
static void begin_warpgroups();
static void end_warpgroups();
static void hide_from_products(const char *to, int bytes);
// Threads of the block that wait for it, that wait for the grid, and that have ended.
static int at_barrier = 0, at_grid = 0, ended = 0;
// Whether a thread has arrived at a barrier in shared memory, or passed one, since the last look.
static bool has_moved = false;
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

// The lane of those that comes first in the order of this launch.
UNWATCHED static int first_of(unsigned lanes) { return order == 0 ? __builtin_ctz(lanes) : 31 - __builtin_clz(lanes); }

UNWATCHED static void go_to(int thread) {
    lane_in_block = thread;
    thread_index = fibers.at[thread].thread;
}

// Goes on with the next lane of the warp; when none can, with all that wait for the warp, if no other can ever come; or with the
// next warp.
UNWATCHED static void give_way(Warp &warp) {
    const int own = lane_in_block, lane = own & 31;
    unsigned lanes = warp.running & (order == 0 ? ~1u << lane : (1u << lane) - 1);
    if (!lanes && warp.waiting && (warp.waiting | warp.ended) == warp.all) {
        lanes = warp.running = warp.waiting;
        warp.waiting = 0;
    }
    if (!lanes) {
        simt_switch(&fibers.at[own].sp, scheduler);
        return;
    }
    const int next = (own & ~31) + first_of(lanes);
    if (next == own) return;
    go_to(next);
    simt_switch(&fibers.at[own].sp, fibers.at[next].sp);
}

UNWATCHED static unsigned own_bit() { return 1u << (lane_in_block & 31); }
UNWATCHED static Warp &own_warp() { return warps[lane_in_block >> 5]; }

UNWATCHED void wait_for_block() {
    at_barrier++;
    own_warp().running &= ~own_bit();
    give_way(own_warp());
}

UNWATCHED void wait_for_warp() {
    Warp &warp = own_warp();
    warp.running &= ~own_bit();
    warp.waiting |= own_bit();
    give_way(warp);
}

UNWATCHED static void enter() {
    body(body_arguments);
    ended++;
    Warp &warp = own_warp();
    warp.running &= ~own_bit();
    warp.ended |= own_bit();
    give_way(warp);
    abort();
}

static void prepare(int i) {
    Fiber &fiber = fibers.at[i];
    fiber.copies.length = fiber.unseen.length = fiber.groups = 0;
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

// All threads of the block run that have not ended.
static void set_running() {
    for (int first = 0; first < threads; first += 32) {
        Warp &warp = warps[first / 32];
        warp.all = threads - first < 32 ? (1u << (threads - first)) - 1 : ~0u;
        warp.running = warp.all & ~warp.ended;
    }
    at_barrier = at_grid = 0;
}

// A block whose threads all run: from the start, or from a barrier of the grid.
static void begin() {
    for (Warp &warp : warps) {
        warp.waiting = warp.asking = warp.ended = 0;
        for (unsigned &here : warp.here) here = 0;
    }
    ended = 0;
    begin_warpgroups();
    set_running();
}

// Runs a block until it has ended, or waits for the others: whether it does.
UNWATCHED static bool run_block() {
    const int count = (threads + 31) / 32;
    // The third order comes to every warp: a block has 32 at most.
    const int stride = count % 7 == 0 ? 5 : 7;
    for (;;) {
        has_moved = false;
        for (int k = 0; k < count; k++) {
            const int warp = order == 0 ? k : order == 1 ? count - 1 - k : (k * stride + 3) % count;
            warps[warp].running |= warps[warp].asking;
            warps[warp].asking = 0;
            if (!warps[warp].running) continue;
            const int thread = warp * 32 + first_of(warps[warp].running);
            go_to(thread);
            simt_switch(&scheduler, fibers.at[thread].sp);
        }
        if (ended == threads) return end_warpgroups(), false;
        bool is_asking = false;
        for (int k = 0; k < count; k++) is_asking |= warps[k].asking != 0;
        if (is_asking && !has_moved) fail("a barrier in shared memory that not all threads reach");
        if (is_asking) continue;
        if (at_grid == threads) return true;
        if (at_grid > 0) fail("a barrier of the grid that not all threads reach");
        if (at_barrier + ended < threads) fail("lanes of a warp wait for each other and for a barrier");
        // The hardware counts threads that have ended as arrived; a kernel that relies on it is wrong all the same.
        if (ended > 0) fail("a barrier that not all threads reach");
        set_running();
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
    for (size_t i = 0; i < all.length; i++) all.at[i].copies.release(), all.at[i].unseen.release();
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
    begin();
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
            begin();
            if (bytes > 0) memcpy(shared, next.shared, bytes);
            free(next.shared);
            if (run_block()) again.push(put_aside(shared, bytes));
        }
        waiting.release();
        waiting = again;
    }
}

// The word only counts on a device. Without sections, blocks would have one shared memory.
void wait_for_grid(unsigned *word) {
#ifdef __SANITIZE_ADDRESS__
    fail("blocks that wait for each other, where each needs shared memory of its own");
#endif
    if (*word & 0x7fffffffu) fail("a barrier of the grid whose word is not 0");
    at_grid++;
    own_warp().running &= ~own_bit();
    give_way(own_warp());
}

UNWATCHED uint64_t exchange(uint64_t value, int from) {
    const int own = lane_in_block, source = (own & ~31) + (from & 31);
    const unsigned turn = fibers.at[own].exchanges++ & 1;
    uint64_t *offered = own_warp().offered[turn];
    offered[own & 31] = value;
    wait_for_warp();
    return offered[(source < threads ? source : own) & 31];
}

// An instruction of a whole warp: every lane brings `own`, and when all are there, `work` computes from what lane 0 and its
// followers brought what each receives.
template <class Brings, class Gets> UNWATCHED static Gets together(Collective which, const Brings &own, void (*work)(const Brings *, Gets *)) {
    static_assert(32 * sizeof(Brings) <= sizeof(Warp::brought) && 32 * sizeof(Gets) <= sizeof(Warp::received));
    Warp &warp = own_warp();
    const int lane = lane_in_block & 31;
    memcpy(warp.brought + lane * sizeof own, &own, sizeof own);
    warp.here[which] |= own_bit();
    wait_for_warp();
    // The first lane to go on serves all of them.
    if (warp.here[which] & own_bit()) {
        if (~warp.here[which]) fail("an instruction of a whole warp lacks lanes");
        warp.here[which] = 0;
        work((const Brings *)warp.brought, (Gets *)warp.received);
    }
    Gets result;
    memcpy(&result, warp.received + lane * sizeof result, sizeof result);
    return result;
}

UNWATCHED static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

template <bool IS_BF16> UNWATCHED static float half_to_float(unsigned bits) {
    if (IS_BF16) return float_of(bits << 16);
    const unsigned sign = (bits & 0x8000) << 16, size = (bits & 0x7fff) << 13;
    if (size >= 0x0f800000) return float_of(sign | 0x7f800000 | size);
    // The exponent moves to its other bias by a product, which is exact, of the least numbers, too.
    const float moved = float_of(size) * 0x1p112f;
    return sign ? -moved : moved;
}

template <int K> struct Factors {
    unsigned a[K / 4], b[K / 8];
    float c[4];
};
struct Sums {
    float d[4];
};

template <int K, bool IS_BF16> UNWATCHED static void multiply(const Factors<K> *lanes, Sums *sums) {
    float left[16][K], right[K][8];
    for (int lane = 0; lane < 32; lane++) {
        const int group = lane >> 2, in_group = lane % 4;
        for (int i = 0; i < K / 2; i++) {
            const int row = i < 2 || (i >= 4 && i < 6) ? group : group + 8;
            const int column = in_group * 2 + (i & 1) + (i >= 4 ? 8 : 0);
            left[row][column] = half_to_float<IS_BF16>(lanes[lane].a[i / 2] >> 16 * (i % 2) & 0xffff);
        }
        for (int i = 0; i < K / 4; i++)
            right[in_group * 2 + (i & 1) + (i >= 2 ? 8 : 0)][group] = half_to_float<IS_BF16>(lanes[lane].b[i / 2] >> 16 * (i % 2) & 0xffff);
    }
    for (int row = 0; row < 16; row++) {
        // Products are exact, and added with more digits than the result has.
        double sum[8] = {};
        for (int k = 0; k < K; k++)
            for (int column = 0; column < 8; column++) sum[column] += (double)left[row][k] * right[k][column];
        for (int column = 0; column < 8; column++) {
            const int lane = row % 8 * 4 + column / 2, i = row / 8 * 2 + column % 2;
            sums[lane].d[i] = (float)(lanes[lane].c[i] + sum[column]);
        }
    }
}

// mma.sync.aligned.m16n8k16 and .m16n8k8 .row.col.f32 of bf16 or f16: PTX ISA, "Matrix fragments for mma.m16n8k16 with
// floating point type" and "... for mma.m16n8k8".
template <int K, bool IS_BF16> void mma(const unsigned *a, const unsigned *b, float *c) {
    Factors<K> own;
    memcpy(own.a, a, sizeof own.a);
    memcpy(own.b, b, sizeof own.b);
    memcpy(own.c, c, sizeof own.c);
    const Sums result = together(MMA, own, multiply<K, IS_BF16>);
    memcpy(c, result.d, sizeof result.d);
}

template void mma<8, false>(const unsigned *, const unsigned *, float *);
template void mma<8, true>(const unsigned *, const unsigned *, float *);
template void mma<16, false>(const unsigned *, const unsigned *, float *);
template void mma<16, true>(const unsigned *, const unsigned *, float *);

template <int COUNT> struct Rows {
    unsigned words[COUNT];
};

// Watched: the rows are the kernel's.
template <int COUNT, bool TRANSPOSED> static void spread(const char *const *rows, Rows<COUNT> *to) {
    for (int matrix = 0; matrix < COUNT; matrix++) {
        uint16_t elements[8][8];
        for (int r = 0; r < 8; r++) {
            const char *from = rows[matrix * 8 + r];
            if ((uintptr_t)from % 16 != 0) fail("ldmatrix from an address that is not a multiple of 16");
            memcpy(elements[r], from, 16);
        }
        for (int lane = 0; lane < 32; lane++) {
            const int r = lane / 4, e = lane % 4 * 2;
            const unsigned low = TRANSPOSED ? elements[e][r] : elements[r][e];
            const unsigned high = TRANSPOSED ? elements[e + 1][r] : elements[r][e + 1];
            to[lane].words[matrix] = low | high << 16;
        }
    }
}

// ldmatrix.sync.aligned.m8n8.x2 and .x4, with and without .trans.
template <int COUNT, bool TRANSPOSED> void ldmatrix(const void *row, unsigned *to) {
    const Rows<COUNT> result = together(LDMATRIX, (const char *)row, spread<COUNT, TRANSPOSED>);
    memcpy(to, result.words, sizeof result.words);
}

template void ldmatrix<2, false>(const void *, unsigned *);
template void ldmatrix<2, true>(const void *, unsigned *);
template void ldmatrix<4, false>(const void *, unsigned *);
template void ldmatrix<4, true>(const void *, unsigned *);

#include "warpgroups.h"

static void perform(const Copy &copy) {
    memcpy(copy.to, copy.from, copy.given);
    memset(copy.to + copy.given, 0, copy.bytes - copy.given);
    hide_from_products(copy.to, copy.bytes);
}

// cp.async of `bytes`, of which all but the first `given` are zeros.
void copy_async(void *to, const void *from, int bytes, int given) {
    if ((uintptr_t)to % bytes != 0 || (uintptr_t)from % bytes != 0) fail("cp.async with an address that is not aligned");
    const Copy copy = {(char *)to, (const char *)from, bytes, given, fibers.at[lane_in_block].groups};
    if (order == 0) return perform(copy);
    fibers.at[lane_in_block].copies.push(copy);
}

void wait_copies() {
    List<Copy> &copies = fibers.at[lane_in_block].copies;
    for (size_t i = 0; i < copies.length; i++) perform(copies.at[i]);
    copies.length = 0;
}

void commit_copies() { fibers.at[lane_in_block].groups++; }

void wait_copies_but(int groups) {
    Fiber &own = fibers.at[lane_in_block];
    size_t left = 0;
    for (size_t i = 0; i < own.copies.length; i++) {
        const Copy copy = own.copies.at[i];
        if (copy.group + groups < own.groups) {
            perform(copy);
        } else {
            own.copies.at[left++] = copy;
        }
    }
    own.copies.length = left;
}

} // namespace simt
