// gather and weigh of correlation.cuh for images of few channels on tensor cores, as in the first convolution of a network. The constants are those
// of correlation.cuh. The tiles of correlation.cuh would read each pixel from memory once for each tap. Here a block loads the part of the image that
// its positions need into shared memory, and reads operands from there. There is one group; positions are channels last, in multiples of eight
// channels.
//
// Grid: blocks along x compute tiles of COLUMNS x LINES positions, one after the other, with the number of blocks as stride. Along y there is a
// block for each TILE_N channels of positions (gather), or TILE_M (weigh): 32 or 64.
//
// Tensor cores need pairs of elements that are consecutive in the dimension of the sum. A word of shared memory is such a pair, for any strides: in
// gather, an element and the one at the next tap of the row; in weigh, an element and the one at the same tap of the next row of positions.
//
// No include guard: the tests include it once for each kernel they compile.

constexpr int COLUMNS = 16, LINES = 8;
constexpr int TILES_X = (POSITION_WIDTH + COLUMNS - 1) / COLUMNS, TILES_Y = (POSITION_HEIGHT + LINES - 1) / LINES;
constexpr u32 TILE_COUNT = (u32)BATCH * TILES_Y * TILES_X;
// The part of the image that a tile needs, in words. The second element of a word is in the same row in gather, and a row of positions further down
// in weigh.
constexpr int SEEN_LINES = PASS == GATHER ? LINES : LINES - 1;
constexpr int SEEN_HEIGHT = (SEEN_LINES - 1) * STRIDE_Y + (KERNEL_HEIGHT - 1) * DILATION_Y + 1;
constexpr int SEEN_WIDTH = (COLUMNS - 1) * STRIDE_X + (KERNEL_WIDTH - 1) * DILATION_X + 1;
constexpr int SEEN = IMAGE_CHANNELS * SEEN_HEIGHT * SEEN_WIDTH;
constexpr int SECOND_Y = PASS == GATHER ? 0 : STRIDE_Y, SECOND_X = PASS == GATHER ? DILATION_X : 0;

// Words that a thread loads, and blocks for which a multiprocessor must have registers.
constexpr int EACH = (SEEN + TILE_THREADS - 1) / TILE_THREADS;
constexpr int WANTED = PASS == GATHER ? (EACH <= 12 ? 3 : 2) : (FILTER <= 64 ? 4 : 2), RESIDENT = TENSOR_CORES == 16 ? WANTED : 1;

// The first position of a tile.
struct Corner {
    u32 b;
    int p, q;
};
static __device__ __forceinline__ Corner corner(u32 tile) {
    return {tile / (TILES_Y * TILES_X), (int)(tile / TILES_X % TILES_Y) * LINES, (int)(tile % TILES_X) * COLUMNS};
}

// The part of the image that a tile needs, in registers. It is loaded while the previous tile is computed, since nothing else hides the latency of
// memory.
struct Seen {
    u32 held[EACH];

    __device__ __forceinline__ void fetch(const real *images, const Corner &at) {
        const real *sample = images + at.b * IMAGE_SAMPLE;
        const int top = at.p * STRIDE_Y - PADDING_Y, left = at.q * STRIDE_X - PADDING_X;
        int thread = threadIdx.x;
        // The places of its elements are recomputed for each tile: storing them would take more registers than there are.
        asm volatile("" : "+r"(thread));
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = thread + j * TILE_THREADS;
            const int c = i / (SEEN_HEIGHT * SEEN_WIDTH), y = top + i / SEEN_WIDTH % SEEN_HEIGHT, x = left + i % SEEN_WIDTH;
            const auto element = [&](int y, int x) -> u32 {
                const bool inside = i < SEEN && (u32)y < IMAGE_HEIGHT && (u32)x < IMAGE_WIDTH;
                return inside ? sample[c * IMAGE_CHANNEL + y * IMAGE_ROW + x * IMAGE_COLUMN].bits : 0;
            };
            held[j] = element(y, x) | element(y + SECOND_Y, x + SECOND_X) << 16;
        }
    }
    __device__ __forceinline__ void put(u32 *words) const {
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            const int i = threadIdx.x + j * TILE_THREADS;
            if (i < SEEN) words[i] = held[j];
        }
    }
};

// Returns the distance of a tap's first element from that of the first tap, in words.
static __device__ __forceinline__ int tap_word(int c, int r, int s) {
    return (c * SEEN_HEIGHT + r * DILATION_Y) * SEEN_WIDTH + s * DILATION_X;
}

#if PASS == GATHER

// Taps of a row of the kernel, rounded up to a power of two, so that pairs do not extend into the next row.
constexpr int ROW_TAPS = KERNEL_WIDTH <= 2 ? 2 : KERNEL_WIDTH <= 4 ? 4 : KERNEL_WIDTH <= 8 ? 8 : 16;
constexpr int ROWS = IMAGE_CHANNELS * KERNEL_HEIGHT, STEPS = (ROWS * ROW_TAPS + 15) / 16, FRAGMENTS = TILE_N / 8;
static_assert(KERNEL_WIDTH <= 16, "a row of the kernel has more taps than pairs are counted for");

// Elements k and k + 1 of a row of the weight, whose rows of taps are padded to ROW_TAPS.
struct TapPair {
    int row, s;
    __device__ __forceinline__ TapPair(int k) : row(k / ROW_TAPS), s(k % ROW_TAPS) {}
    // The image is masked for a tap that does not exist, since the memory there may hold anything.
    __device__ __forceinline__ u32 mask() const {
        return row >= ROWS || s >= KERNEL_WIDTH ? 0 : s + 1 >= KERNEL_WIDTH ? 0xffffu : 0xffffffffu;
    }
    __device__ __forceinline__ int word() const {
        return mask() == 0 ? 0 : tap_word(row / KERNEL_HEIGHT, row % KERNEL_HEIGHT, s);
    }
    __device__ __forceinline__ u32 weight(const real *filter, int at) const {
        if (row >= ROWS || s + at >= KERNEL_WIDTH) return 0;
        const u32 c = row / KERNEL_HEIGHT, tap = row % KERNEL_HEIGHT * KERNEL_WIDTH + s + at;
        return filter[CHANNELS_INNERMOST ? tap * IMAGE_CHANNELS + c : c * TAPS + tap].bits;
    }
};

// Stores eight elements unchanged.
static __device__ __forceinline__ void put_words(const u32 words[4], real *to) {
    const uint4 all = {words[0], words[1], words[2], words[3]};
#ifdef __CUDA_ARCH__
    __stwb((uint4 *)to, all);
#else
    *(uint4 *)to = all;
#endif
}

// Returns the channel of a column of the fragments: a thread has adjacent channels, as many as it has sums of a position.
static __device__ __forceinline__ u32 channel_of_column(int fragment, int column) {
    return column / 2 * (2 * FRAGMENTS) + 2 * fragment + column % 2;
}

// A warp computes a line of positions. The fragments of the weight are stored in the order in which its lanes read them.
static __device__ __forceinline__ void gather(const real *images, const real *weight, const real *bias, real *positions) {
    __shared__ u32 words[SEEN];
    __shared__ uint2 rights[STEPS * FRAGMENTS * 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const u32 first = blockIdx.y * TILE_N;
    for (int i = threadIdx.x; i < STEPS * FRAGMENTS * 32; i += TILE_THREADS) {
        const u32 channel = first + channel_of_column(i / 32 % FRAGMENTS, i % 32 / 4);
        const real *filter = weight + (u64)channel * FILTER;
        const int k = i / 32 / FRAGMENTS * 16 + i % 4 * 2;
        const auto pair = [&](const TapPair &taps) -> u32 {
            return channel < POSITION_CHANNELS ? taps.weight(filter, 0) | taps.weight(filter, 1) << 16 : 0;
        };
        rights[i] = {pair(TapPair(k)), pair(TapPair(k + 8))};
    }
    const u32 own = first + t * 2 * FRAGMENTS;
    const u32 *from = words + warp * STRIDE_Y * SEEN_WIDTH + g * STRIDE_X;
    Seen seen;
    seen.fetch(images, corner(blockIdx.x));
    for (u32 tile = blockIdx.x; tile < TILE_COUNT; tile += gridDim.x) {
        const Corner at = corner(tile);
        __syncthreads();
        seen.put(words);
        __syncthreads();
        if (tile + gridDim.x < TILE_COUNT) seen.fetch(images, corner(tile + gridDim.x));
        Accumulator sums[FRAGMENTS];
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            Left left;
#pragma unroll
            for (int half = 0; half < 2; half++) {
                const TapPair taps(step * 16 + half * 8 + t * 2);
                const u32 mask = taps.mask(), *pair = from + taps.word();
                left.at[2 * half] = pair[0] & mask;
                left.at[2 * half + 1] = pair[8 * STRIDE_X] & mask;
            }
#pragma unroll
            for (int fragment = 0; fragment < FRAGMENTS; fragment++) {
                const uint2 pair = rights[(step * FRAGMENTS + fragment) * 32 + lane];
                const Right right = {{pair.x, pair.y}};
                if (step == 0) {
                    multiply(left, right, sums[fragment]);
                } else {
                    multiply_add(left, right, sums[fragment]);
                }
            }
        }
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const u32 p = at.p + warp, q = at.q + g + 8 * side;
            if (p >= POSITION_HEIGHT || q >= POSITION_WIDTH) continue;
            real *to = positions + at.b * POSITION_SAMPLE + p * POSITION_ROW + q * POSITION_COLUMN + own;
#pragma unroll
            for (int eight = 0; eight < FRAGMENTS / 4; eight++) {
                if (own + 8 * eight >= POSITION_CHANNELS) continue;
                u32 out[4];
#pragma unroll
                for (int word = 0; word < 4; word++) {
                    const float *sum = sums[4 * eight + word].at + 2 * side;
                    float two[2] = {sum[0], sum[1]};
#pragma unroll
                    for (int e = 0; e < 2; e++) {
#if BIAS
                        two[e] += widen(bias[own + 8 * eight + 2 * word + e]);
#endif
                        two[e] = rectify(two[e]);
                    }
                    out[word] = pack(two[0], two[1]);
                }
                put_words(out, to + 8 * eight);
            }
        }
    }
}

#elif PASS == WEIGH

// Positions that are summed by themselves before they join the total in memory: a sum of millions would lose too many digits. With few taps this
// happens more often, because it is cheap.
constexpr u32 PORTION = (FILTER <= 64 ? 512 : 2048) / (COLUMNS * LINES);
// Fragments of each of the 2 x 4 warps.
constexpr int CHANNEL_FRAGMENTS = TILE_M / 32, TAP_FRAGMENTS = (FILTER + 31) / 32;
// Elements from one position to the next, and from one line to the next. With these pitches, eight rows of a fragment, two lines of four positions,
// access every bank once.
constexpr int POSITION_PITCH = TILE_M + 8, LINE_PITCH = COLUMNS * POSITION_PITCH + 32;

struct __align__(16) Gradients {
    u16 at[LINES * LINE_PITCH];
};

static __device__ __forceinline__ int position_at(int line, int column) { return line * LINE_PITCH + column * POSITION_PITCH; }

static __device__ __forceinline__ void clear(Accumulator sums[CHANNEL_FRAGMENTS][TAP_FRAGMENTS]) {
#pragma unroll
    for (int i = 0; i < CHANNEL_FRAGMENTS; i++)
#pragma unroll
        for (int j = 0; j < TAP_FRAGMENTS; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) sums[i][j].at[e] = 0.0f;
}

// Computes a tile's products for eight positions and the eight below them at a time. Each position is next to the one below it.
static __device__ __forceinline__ void
weigh(const real *images, const real *positions, float *partial, real *) {
    __shared__ u32 words[SEEN];
    __shared__ Gradients buffers[2];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const u32 first = blockIdx.y * TILE_M;
    const int row = warp / 4 * (TILE_M / 2), column = warp % 4 * (TAP_FRAGMENTS * 8);
    // Place of the tap that the lane has in each fragment.
    int taps[TAP_FRAGMENTS];
#pragma unroll
    for (int j = 0; j < TAP_FRAGMENTS; j++) {
        const u32 n = column + 8 * j + g, c = channel_of<IMAGE_CHANNELS, TAPS>(n), tap = tap_of<IMAGE_CHANNELS, TAPS>(n);
        taps[j] = n < FILTER ? tap_word(c, tap / KERNEL_WIDTH, tap % KERNEL_WIDTH) : 0;
    }
    // Rows of its 8 x 8 matrix: two lines, then the next column. Also eight of their channels.
    const int of_row = position_at(lane % 2, lane / 16 * 4 + lane % 8 / 2) + row + lane / 8 % 2 * 8;
    Accumulator sums[CHANNEL_FRAGMENTS][TAP_FRAGMENTS];
    clear(sums);
    float *total = partial + blockIdx.x * WEIGHTS;
    u32 added = 0;
    // Loads the gradients of a tile asynchronously.
    const auto bring = [&](const Corner &at, u16 *to) {
        constexpr int EIGHTS = TILE_M / 8;
#pragma unroll
        for (int i = threadIdx.x; i < COLUMNS * LINES * EIGHTS; i += TILE_THREADS) {
            const int line = i / EIGHTS / COLUMNS, place = i / EIGHTS % COLUMNS, eight = i % EIGHTS * 8;
            const u32 p = at.p + line, q = at.q + place;
            const bool inside = p < POSITION_HEIGHT && q < POSITION_WIDTH && first + eight < POSITION_CHANNELS;
            const real *from = positions + at.b * POSITION_SAMPLE + p * POSITION_ROW + q * POSITION_COLUMN + first + eight;
            copy_16(to + position_at(line, place) + eight, inside ? from : positions, inside);
        }
    };
    Seen seen;
    seen.fetch(images, corner(blockIdx.x));
    bring(corner(blockIdx.x), buffers[0].at);
    int buffer = 0;
    for (u32 tile = blockIdx.x; tile < TILE_COUNT; tile += PARTS, buffer ^= 1) {
        const Corner at = corner(tile);
        const u16 *gradients = buffers[buffer].at;
        __syncthreads();
        seen.put(words);
        copies_done();
        __syncthreads();
        if (tile + PARTS < TILE_COUNT) {
            seen.fetch(images, corner(tile + PARTS));
            bring(corner(tile + PARTS), buffers[buffer ^ 1].at);
        }
// Not unrolled, for which there are too few registers.
#pragma unroll 1
        for (int line = 0; line < LINES; line += 2)
#pragma unroll
            for (int place = 0; place < COLUMNS; place += 8) {
                Left left[CHANNEL_FRAGMENTS];
#pragma unroll
                for (int i = 0; i < CHANNEL_FRAGMENTS; i++)
                    load_matrices<true>(gradients + position_at(line, place) + of_row + 16 * i, left[i].at);
                // The image is masked for positions that do not exist, since the memory may hold anything: their gradient is zero.
                u32 masks[2] = {0xffffffffu, 0xffffffffu};
                if (POSITION_HEIGHT % LINES != 0 || POSITION_WIDTH % COLUMNS != 0) {
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        const int p = at.p + line, q = at.q + place + 4 * half + t;
                        masks[half] = p >= POSITION_HEIGHT || q >= POSITION_WIDTH ? 0 : p + 1 >= POSITION_HEIGHT ? 0xffffu : 0xffffffffu;
                    }
                }
                const u32 *from = words + line * STRIDE_Y * SEEN_WIDTH + (place + t) * STRIDE_X;
#pragma unroll
                for (int j = 0; j < TAP_FRAGMENTS; j++) {
                    const Right right = {{from[taps[j]] & masks[0], from[taps[j] + 4 * STRIDE_X] & masks[1]}};
#pragma unroll
                    for (int i = 0; i < CHANNEL_FRAGMENTS; i++) multiply_add(left[i], right, sums[i][j]);
                }
            }
        if (++added % PORTION != 0 && tile + PARTS < TILE_COUNT) continue;
#pragma unroll
        for (int i = 0; i < CHANNEL_FRAGMENTS; i++)
#pragma unroll
            for (int j = 0; j < TAP_FRAGMENTS; j++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    const u32 channel = first + row + 16 * i + g + e / 2 * 8, n = column + 8 * j + t * 2 + e % 2;
                    if (channel >= POSITION_CHANNELS || n >= FILTER) continue;
                    // A thread adds to its own elements only.
                    float *to = total + channel * FILTER + n;
                    *to = (added <= PORTION ? 0.0f : *to) + sums[i][j].at[e];
                }
        clear(sums);
    }
}

#endif
