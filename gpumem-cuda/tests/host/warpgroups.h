// Hopper's products of a warpgroup and barriers in shared memory, for `simt.cpp`, from the tables of the PTX manual.
//
// These stop the program, since a card would compute something else, or wait for ever:
//
// * a warp that lacks lanes, lanes with different operands, and warps of a warpgroup with different operands;
// * a product without a fence after the last group: its registers may still be on their way;
// * a product that reads what a thread copied to shared memory and did not show to the asynchronous proxy;
// * a descriptor of another layout than the 128-byte swizzle, of an address at which that does not begin, or of bytes outside the object;
// * products that nobody waits for;
// * a barrier that was not prepared, or that not all threads reach that it counts;
// * counts of registers that no thread can have, or that a block has not in all.
//
// Products that begin late read their operands late: one that a thread overwrote too early shows.

static char *shared_object = nullptr;
static size_t shared_length = 0;

void set_shared(void *object, size_t bytes) {
    if ((uintptr_t)object % 1024 != 0) fail("an object in shared memory that is not aligned");
    shared_object = (char *)object, shared_length = bytes;
}
unsigned shared_address(const void *object) {
    const size_t address = (const char *)object - shared_object;
    if (address >= shared_length) fail("an address outside the object in shared memory");
    return (unsigned)address;
}

// Chunks of 16 bytes that were written by threads, and not shown to products: one more than the lane that wrote each.
static uint16_t unseen[(1 << 18) / 16];

static void hide_from_products(const char *to, int bytes) {
    const size_t address = to - shared_object;
    if (shared_object == nullptr || address >= shared_length) return;
    for (size_t chunk = address / 16; chunk < (address + bytes + 15) / 16; chunk++) {
        unseen[chunk] = lane_in_block + 1;
        fibers.at[lane_in_block].unseen.push(chunk);
    }
}
void fence_async() {
    List<size_t> &own = fibers.at[lane_in_block].unseen;
    for (size_t i = 0; i < own.length; i++)
        if (unseen[own.at[i]] == lane_in_block + 1) unseen[own.at[i]] = 0;
    own.length = 0;
}

// A barrier's word: arrivals that are missing in bits 0 to 15, those of each phase in 16 to 31, phases that have ended in 32 to 47, and a mark.
constexpr unsigned long long MARK = 0xbabeull << 48;
static void check_prepared(unsigned long long word) {
    if ((word >> 48) << 48 != MARK) fail("a barrier in shared memory that was not prepared");
}
void prepare(unsigned long long *barrier, unsigned arrivals) {
    if (arrivals == 0 || arrivals > 1024) fail("a barrier in shared memory for no or too many threads");
    *barrier = MARK | arrivals << 16 | arrivals;
}
void arrive(unsigned long long *barrier) {
    check_prepared(*barrier);
    unsigned long long word = *barrier - 1;
    if ((word & 0xffff) == 0) word = (word | (word >> 16 & 0xffff)) + (1ull << 32);
    // Phases count on from 0, without touching the mark.
    *barrier = (word & 0xffffffffffffull) | MARK;
    has_moved = true;
}
bool has_ended(const unsigned long long *barrier, unsigned parity) {
    check_prepared(*barrier);
    return (*barrier >> 32 & 1) != parity;
}
UNWATCHED void await(const unsigned long long *barrier, unsigned parity) {
    if (parity > 1) fail("a parity that is neither 0 nor 1");
    bool has_asked = false;
    for (; !has_ended(barrier, parity); has_asked = true) {
        Warp &warp = own_warp();
        warp.running &= ~own_bit();
        warp.asking |= own_bit();
        give_way(warp);
    }
    has_moved |= has_asked;
}

// A product of a warp: what its lanes brought, and the accumulators that a product before it in the queue has not replaced by NaN.
struct Pending {
    Product lanes[32];
    unsigned left[32][4];
    float *before[32];
    unsigned group;
    bool is_bf16;
};
struct Queue {
    List<Pending> products;
    unsigned groups, count;
    bool is_fenced;
    // Of the operands of all products so far.
    uint64_t trail;
};
static Queue queues[32];
// Registers of each thread of a warp, once it has asked for a number.
static int registers[32];

static void begin_warpgroups() {
    memset(unseen, 0, sizeof unseen);
    memset(registers, 0, sizeof registers);
    for (Queue &queue : queues) {
        queue.products.length = 0;
        queue.groups = queue.count = 0, queue.is_fenced = false, queue.trail = 0;
    }
}
static void end_warpgroups() {
    const int warps = (threads + 31) / 32, before = 65536 / (32 * warps) / 8 * 8;
    int all = 0;
    for (int warp = 0; warp < warps; warp++) all += registers[warp] ? registers[warp] : before;
    if (all > warps * before) fail("more registers than the block has");
    for (int warp = 0; warp < warps; warp++) {
        const Queue &queue = queues[warp], &first = queues[warp / 4 * 4];
        if (queue.products.length > 0) fail("products that nobody waited for");
        if (queue.trail != first.trail || queue.count != first.count) fail("warps of a warpgroup with different products");
    }
}

// A 16-bit element of shared memory as a product sees it, `bytes` after a descriptor's address.
UNWATCHED static unsigned element_at(unsigned long long descriptor, unsigned bytes) {
    const unsigned start = (unsigned)(descriptor & 0x3fff) << 4;
    const unsigned linear = start + bytes, at = linear ^ (linear >> 7 & 7) << 4;
    if (at + 2 > shared_length) fail("a product reads beyond the object in shared memory");
    if (unseen[at / 16] != 0) fail("a product reads what was not shown to the asynchronous proxy");
    uint16_t element;
    memcpy(&element, shared_object + at, 2);
    return element;
}
static unsigned leading_bytes(unsigned long long descriptor) { return (unsigned)(descriptor >> 16 & 0x3fff) << 4; }
static unsigned stride_bytes(unsigned long long descriptor) { return (unsigned)(descriptor >> 32 & 0x3fff) << 4; }
static void check_descriptor(unsigned long long descriptor) {
    if (descriptor >> 62 != 1) fail("a descriptor of another layout than the 128-byte swizzle");
    // The pattern begins at multiples of 1024 bytes, as the base offset of 0 says.
    if ((descriptor >> 49 & 7) != 0 || (descriptor >> 3 & 7) != 0) fail("a descriptor whose pattern begins elsewhere");
    if (stride_bytes(descriptor) < 1024) fail("a descriptor whose groups of eight rows overlap");
}
// Element [row, k] of an operand whose terms lie side by side ("K-major"): ((8, m), (T, 2)) : ((8 T, SBO), (1, T)).
UNWATCHED static unsigned by_rows(unsigned long long descriptor, int row, int k) {
    return element_at(descriptor, row % 8 * 128 + row / 8 * stride_bytes(descriptor) + k * 2);
}
// Element [k, column] of one whose columns lie side by side ("MN-major"): ((T, 8, m), (8, k)) : ((1, T, LBO), (8 T, SBO)).
UNWATCHED static unsigned by_columns(unsigned long long descriptor, int k, int column) {
    return element_at(descriptor, column % 64 * 2 + column / 64 * leading_bytes(descriptor) + k % 8 * 128 + k / 8 * stride_bytes(descriptor));
}

// Computes a warp's 16 rows of a product. PTX ISA, "Register Fragments and Shared Memory Matrix Layouts" of wgmma.mma_async.m64nNk16.
template <bool IS_BF16> UNWATCHED static void compute(int warp, const Pending &product) {
    const Product &shape = product.lanes[0];
    static float left[16][16], right[16][256];
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 8 && shape.left != nullptr; i++) {
            const int row = lane / 4 + i / 2 % 2 * 8, k = lane % 4 * 2 + i % 2 + i / 4 * 8;
            left[row][k] = half_to_float<IS_BF16>(product.left[lane][i / 2] >> 16 * (i % 2) & 0xffff);
        }
    for (int row = 0; row < 16 && shape.left == nullptr; row++)
        for (int k = 0; k < 16; k++) left[row][k] = half_to_float<IS_BF16>(by_rows(shape.left_rows, warp % 4 * 16 + row, k));
    for (int k = 0; k < 16; k++)
        for (int column = 0; column < shape.columns; column++) {
            const unsigned bits = shape.is_transposed ? by_columns(shape.right, k, column) : by_rows(shape.right, column, k);
            right[k][column] = half_to_float<IS_BF16>(bits);
        }
    for (int row = 0; row < 16; row++) {
        double sum[256] = {};
        for (int k = 0; k < 16; k++)
            for (int column = 0; column < shape.columns; column++) sum[column] += (double)left[row][k] * right[k][column];
        for (int column = 0; column < shape.columns; column++) {
            const int lane = row % 8 * 4 + column % 8 / 2, i = column / 8 * 4 + row / 8 * 2 + column % 2;
            float &to = product.lanes[lane].to[i];
            to = (float)((shape.adds ? to : 0.0f) + sum[column]);
        }
    }
}
UNWATCHED static void compute(int warp, Pending &product) {
    const int floats = product.lanes[0].columns / 2;
    for (int lane = 0; lane < 32; lane++)
        if (product.before[lane]) {
            memcpy(product.lanes[lane].to, product.before[lane], floats * sizeof(float));
            free(product.before[lane]);
        }
    product.is_bf16 ? compute<true>(warp, product) : compute<false>(warp, product);
}

// What a lane brings to a product.
struct Operands {
    Product own;
    unsigned left[4];
};
struct Nothing {};

static void check_alike(const Operands *lanes) {
    const Product &first = lanes[0].own;
    for (int lane = 0; lane < 32; lane++) {
        const Product &own = lanes[lane].own;
        const bool shares_left = (own.left == nullptr) == (first.left == nullptr) && own.left_rows == first.left_rows;
        const bool shares_shape = own.columns == first.columns && own.adds == first.adds && own.is_transposed == first.is_transposed;
        if (!shares_left || !shares_shape || own.right != first.right) fail("lanes of a warp with different products");
    }
    if (first.columns % 8 != 0 || first.columns < 8 || first.columns > 256) fail("a product of so many columns");
    check_descriptor(first.right);
    if (first.left == nullptr) check_descriptor(first.left_rows);
}

// Adds a product to the queue, with NaN in its registers, unless a product before it has put that there.
template <bool IS_BF16> UNWATCHED static void begin_product(const Operands *lanes, Nothing *) {
    const int warp = lane_in_block / 32;
    Queue &queue = queues[warp];
    check_alike(lanes);
    if (!queue.is_fenced) fail("a product without a fence before its group");
    const Product &first = lanes[0].own;
    for (uint64_t word : {(uint64_t)first.right, (uint64_t)first.left_rows, (uint64_t)first.columns, (uint64_t)first.adds})
        queue.trail = (queue.trail ^ word) * 0x100000001b3ull + 1;
    queue.count++;
    Pending product = {};
    product.group = queue.groups, product.is_bf16 = IS_BF16;
    for (int lane = 0; lane < 32; lane++) {
        product.lanes[lane] = lanes[lane].own;
        memcpy(product.left[lane], lanes[lane].left, sizeof product.left[lane]);
    }
    if (order == 0) return compute(warp, product);
    bool is_first = true;
    for (size_t i = 0; i < queue.products.length; i++) is_first &= queue.products.at[i].lanes[0].to != first.to;
    const size_t bytes = first.columns / 2 * sizeof(float);
    for (int lane = 0; lane < 32 && is_first; lane++) {
        product.before[lane] = (float *)malloc(bytes);
        if (!product.before[lane]) abort();
        memcpy(product.before[lane], lanes[lane].own.to, bytes);
        memset(lanes[lane].own.to, 0xff, bytes);
    }
    queue.products.push(product);
}
template <bool IS_BF16> void warpgroup_product(const Product &own) {
    Operands operands = {own, {}};
    if (own.left) memcpy(operands.left, own.left, sizeof operands.left);
    together(PRODUCT, operands, begin_product<IS_BF16>);
}
template void warpgroup_product<false>(const Product &);
template void warpgroup_product<true>(const Product &);

void fence_products() {
    together(FENCE, Nothing(), +[](const Nothing *, Nothing *) { queues[lane_in_block / 32].is_fenced = true; });
}
void commit_products() {
    together(COMMIT, Nothing(), +[](const Nothing *, Nothing *) {
        Queue &queue = queues[lane_in_block / 32];
        queue.groups++, queue.is_fenced = false;
    });
}
void await_products(int groups) {
    together(AWAIT, groups, +[](const int *lanes, Nothing *) {
        const int warp = lane_in_block / 32;
        Queue &queue = queues[warp];
        size_t done = 0;
        while (done < queue.products.length && queue.products.at[done].group + lanes[0] < queue.groups) compute(warp, queue.products.at[done++]);
        for (size_t i = done; i < queue.products.length; i++) queue.products.at[i - done] = queue.products.at[i];
        queue.products.length -= done, queue.is_fenced = false;
    });
}

void set_registers(int count) {
    together(REGISTERS, count, +[](const int *lanes, Nothing *) {
        if (lanes[0] % 8 != 0 || lanes[0] < 24 || lanes[0] > 256) fail("so many registers as no warpgroup can have");
        registers[lane_in_block / 32] = lanes[0];
    });
}
