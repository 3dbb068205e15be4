// What convolutions of volumes and their transposes are made of: windows that slide over images and have a position each. What
// correlation.cuh is for maps, with an axis more; all tensors are dense.
//
// BATCH                                          B, samples
// GROUPS                                         G, parts of the channels; each part of the positions sees its own part of the images only
// IMAGE_CHANNELS, POSITION_CHANNELS              C and O, channels of a group on the two sides
// IMAGE_DEPTH, IMAGE_HEIGHT, IMAGE_WIDTH         D, H and W
// POSITION_DEPTH, POSITION_HEIGHT, POSITION_WIDTH  N, P and Q
// KERNEL_DEPTH, KERNEL_HEIGHT, KERNEL_WIDTH      T, R and S
// STRIDE_Z, .._Y, .._X, PADDING_.., DILATION_..
// BIAS                                           whether there is a bias
// ADD                                            whether the result is added to what is there
// PARTS, PART                                    parts that the products of weigh are split into, none of them empty, and the products
//                                                of each: a multiple of 64; the last part may have fewer
// PASS                                           which of the functions below the file is compiled for
// TILE_M, TILE_N                                 what a block computes, see tile.cuh
// TENSOR_CORES                                   terms that an instruction of the tensor cores multiplies, or 0: see mma.cuh
//
// images [B, G C, D, H, W], positions [B, G O, N, P, Q], weight [G O, C, T, R, S]. Tap (t, r, s) of the window of position (n, p, q) is
// in plane n STRIDE_Z - PADDING_Z + t DILATION_Z of the image, and likewise its row and column; outside there are zeros. Within a group:
//
// gather   positions[b, o, n, p, q] = bias[o] + sum over c, t, r, s of weight[o, c, t, r, s] images[b, c, z(n, t), y(p, r), x(q, s)]
// scatter  images[b, c, z, y, x]    = bias[c] + sum over o and the taps at (z, y, x) of weight[o, c, t, r, s] positions[b, o, n, p, q]
// weigh    weight[o, c, t, r, s]    = sum over b, n, p, q of positions[b, o, n, p, q] images[b, c, z(n, t), y(p, r), x(q, s)]
//
// Each is a matrix product of which one operand is read through the windows; nothing is unfolded in memory:
//
//          M  N          K
// gather   O  B N P Q    C T R S
// scatter  C  B D H W    O T R S
// weigh    O  C T R S    B N P Q
//
// A block along x for each tile of N, along y for each tile of M, along z for each group. Every element is summed in the same order
// in every run. With several parts, weigh has as many blocks for each tile (z = group PARTS + part), which leave their sums in
// partial [PARTS, G O, C, T, R, S], in f32; sum_parts adds them up in their order. A scatter with strides multiplies zeros where no
// window reaches.
//
// A sample has fewer than 2^31 elements; so have sizes, N and K.
//
// No include guard: the tests include it once for each kernel they compile.
#include "tile.cuh"

#define GATHER 0
#define SCATTER 1
#define WEIGH 2
#define CHANNEL_SUMS 3
#define SUM_PARTS 4

constexpr u32 IMAGE_AREA = (u32)IMAGE_HEIGHT * IMAGE_WIDTH, IMAGE_VOLUME = IMAGE_DEPTH * IMAGE_AREA;
constexpr u32 POSITION_AREA = (u32)POSITION_HEIGHT * POSITION_WIDTH, POSITION_VOLUME = POSITION_DEPTH * POSITION_AREA;
constexpr u32 KERNEL_AREA = (u32)KERNEL_HEIGHT * KERNEL_WIDTH, TAPS = KERNEL_DEPTH * KERNEL_AREA;
constexpr u64 IMAGE_SAMPLE = (u64)GROUPS * IMAGE_CHANNELS * IMAGE_VOLUME;
constexpr u64 POSITION_SAMPLE = (u64)GROUPS * POSITION_CHANNELS * POSITION_VOLUME;
// Elements of the weight of an output channel, and of a group.
constexpr u32 FILTER = (u32)IMAGE_CHANNELS * TAPS;
constexpr u64 GROUP_WEIGHT = (u64)POSITION_CHANNELS * FILTER;
constexpr u64 WEIGHTS = GROUPS * GROUP_WEIGHT;
// A window and a tap that do not exist have planes so far outside that their sum is outside too, whichever of them it is.
constexpr int NO_WINDOW = -(1 << 30);
constexpr int NO_TAP = 1 << 29;

static __device__ __forceinline__ void finish(float sum, real *to) {
#if ADD
    narrow(widen(*to) + sum, to);
#else
    narrow(sum, to);
#endif
}

static __device__ __forceinline__ const real *addend(const real *bias, u64 first) {
#if BIAS
    return bias + first;
#else
    return nullptr;
#endif
}

// Images through windows: the operand of gather, and with windows and taps exchanged that of weigh.
struct Windows {
    const real *images; // of the group

    struct Window {
        const real *sample;
        int corner, z, y, x; // of the first tap
    };
    struct Tap {
        int offset, z, y, x;
    };
    static __device__ __forceinline__ int offset(int z, int y, int x) {
        return (z * IMAGE_HEIGHT + y) * IMAGE_WIDTH + x;
    }
    __device__ __forceinline__ Window window(u32 n) const {
        if (n >= BATCH * POSITION_VOLUME) return {images, 0, NO_WINDOW, 0, 0};
        const u32 b = n / POSITION_VOLUME, position = n % POSITION_VOLUME;
        const int z = (int)(position / POSITION_AREA) * STRIDE_Z - PADDING_Z;
        const int y = (int)(position / POSITION_WIDTH % POSITION_HEIGHT) * STRIDE_Y - PADDING_Y;
        const int x = (int)(position % POSITION_WIDTH) * STRIDE_X - PADDING_X;
        return {images + b * IMAGE_SAMPLE, offset(z, y, x), z, y, x};
    }
    static __device__ __forceinline__ Tap tap(u32 k) {
        if (k >= FILTER) return {0, NO_TAP, 0, 0};
        const u32 c = k / TAPS, tap = k % TAPS;
        const int z = (int)(tap / KERNEL_AREA) * DILATION_Z;
        const int y = (int)(tap / KERNEL_WIDTH % KERNEL_HEIGHT) * DILATION_Y, x = (int)(tap % KERNEL_WIDTH) * DILATION_X;
        return {(int)(c * IMAGE_VOLUME) + offset(z, y, x), z, y, x};
    }
    static __device__ __forceinline__ real read(const Window &window, const Tap &tap) {
        const bool inside = (u32)(window.z + tap.z) < IMAGE_DEPTH && (u32)(window.y + tap.y) < IMAGE_HEIGHT
                            && (u32)(window.x + tap.x) < IMAGE_WIDTH;
        return inside ? window.sample[window.corner + tap.offset] : real();
    }
};

struct WindowColumns : Windows {
    typedef Window Place;
    typedef Tap Depth;
    __device__ __forceinline__ WindowColumns(const real *group) : Windows{group} {}
    __device__ __forceinline__ Place place(u32 n) const { return window(n); }
    static __device__ __forceinline__ Depth depth(u32 k) { return tap(k); }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) { return read(place, depth); }
};

struct TapColumns : Windows {
    typedef Tap Place;
    typedef Window Depth;
    __device__ __forceinline__ TapColumns(const real *group) : Windows{group} {}
    static __device__ __forceinline__ Place place(u32 n) { return tap(n); }
    __device__ __forceinline__ Depth depth(u32 k) const { return window(k); }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) { return read(depth, place); }
};

// Positions whose windows have a tap at a pixel: the operand of scatter.
struct PixelColumns {
    const real *positions; // of the group

    // Of the pixel, with padding: never below 0.
    struct Place {
        const real *sample;
        int z, y, x;
    };
    struct Depth {
        u32 offset;
        int z, y, x;
    };
    __device__ __forceinline__ Place place(u32 n) const {
        if (n >= BATCH * IMAGE_VOLUME) return {positions, NO_WINDOW, 0, 0};
        const u32 b = n / IMAGE_VOLUME, pixel = n % IMAGE_VOLUME;
        const int z = (int)(pixel / IMAGE_AREA) + PADDING_Z, y = (int)(pixel / IMAGE_WIDTH % IMAGE_HEIGHT) + PADDING_Y;
        return {positions + b * POSITION_SAMPLE, z, y, (int)(pixel % IMAGE_WIDTH) + PADDING_X};
    }
    static __device__ __forceinline__ Depth depth(u32 k) {
        if (k >= POSITION_CHANNELS * TAPS) return {0, NO_TAP, 0, 0};
        const u32 o = k / TAPS, tap = k % TAPS;
        const int z = (int)(tap / KERNEL_AREA) * DILATION_Z;
        const int y = (int)(tap / KERNEL_WIDTH % KERNEL_HEIGHT) * DILATION_Y, x = (int)(tap % KERNEL_WIDTH) * DILATION_X;
        return {o * POSITION_VOLUME, z, y, x};
    }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) {
        const int z = place.z - depth.z, y = place.y - depth.y, x = place.x - depth.x;
        if (z < 0 || y < 0 || x < 0 || z % STRIDE_Z != 0 || y % STRIDE_Y != 0 || x % STRIDE_X != 0) return real();
        const u32 n = (u32)z / STRIDE_Z, p = (u32)y / STRIDE_Y, q = (u32)x / STRIDE_X;
        if (n >= POSITION_DEPTH || p >= POSITION_HEIGHT || q >= POSITION_WIDTH) return real();
        return place.sample[depth.offset + (n * POSITION_HEIGHT + p) * POSITION_WIDTH + q];
    }
};

// The weight as scatter multiplies it: a row for each image channel, k over output channels and taps.
struct WeightRows {
    const real *weight; // of the group

    struct Place {
        u32 offset;
        bool inside;
    };
    typedef Place Depth;
    static __device__ __forceinline__ Place place(u32 c) { return {c * TAPS, c < IMAGE_CHANNELS}; }
    static __device__ __forceinline__ Depth depth(u32 k) {
        return {k / TAPS * FILTER + k % TAPS, k < POSITION_CHANNELS * TAPS};
    }
    __device__ __forceinline__ real at(const Place &place, const Depth &depth) const {
        return place.inside && depth.inside ? weight[place.offset + depth.offset] : real();
    }
};

// A row for each channel of the positions, k over samples and positions.
struct PositionRows {
    const real *positions; // of the group

    struct Place {
        u32 offset;
        bool inside;
    };
    struct Depth {
        const real *data;
        bool inside;
    };
    static __device__ __forceinline__ Place place(u32 o) { return {o * POSITION_VOLUME, o < POSITION_CHANNELS}; }
    __device__ __forceinline__ Depth depth(u32 k) const {
        const u64 at = k / POSITION_VOLUME * POSITION_SAMPLE + k % POSITION_VOLUME;
        return {positions + at, k < BATCH * POSITION_VOLUME};
    }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) {
        return place.inside && depth.inside ? depth.data[place.offset] : real();
    }
    static __device__ __forceinline__ void four(const Place &place, const Depth &depth, float *to) {
        read_four(depth.data + place.offset, place.inside && depth.inside, to);
    }
    static __device__ __forceinline__ uint4 eight(const Place &place, const Depth &depth) {
        return read_eight(depth.data + place.offset, place.inside && depth.inside);
    }
};

// A side that is written: a row for each of COUNT channels, a column for each of VOLUME pixels of each sample.
template <u32 COUNT, u32 VOLUME> struct Map {
    real *group;
    const real *biases; // of the group

    static constexpr bool FOURS = VOLUME % 4 == 0;
    struct Column {
        real *first;
    };
    static __device__ __forceinline__ u32 rows() { return COUNT; }
    static __device__ __forceinline__ u32 columns() { return BATCH * VOLUME; }
    __device__ __forceinline__ Column column(u32 n) const {
        return {group + (n / VOLUME * ((u64)GROUPS * COUNT * VOLUME) + n % VOLUME)};
    }
    static __device__ __forceinline__ real *at(const Column &column, u32 m) { return column.first + m * VOLUME; }
    __device__ __forceinline__ float bias(u32 m, u32) const {
#if BIAS
        return widen(biases[m]);
#else
        return 0.0f;
#endif
    }
    static __device__ __forceinline__ float through(float sum) { return sum; }
};

// Elements are real, or float where they are parts of a sum.
template <class Element> struct Weight {
    Element *group;

    struct Column {
        Element *tap;
    };
    static __device__ __forceinline__ u32 rows() { return POSITION_CHANNELS; }
    static __device__ __forceinline__ u32 columns() { return FILTER; }
    __device__ __forceinline__ Column column(u32 n) const { return {group + n}; }
    static __device__ __forceinline__ Element *at(const Column &column, u32 m) { return column.tap + m * FILTER; }
    static __device__ __forceinline__ float bias(u32, u32) { return 0.0f; }
    static __device__ __forceinline__ float through(float sum) { return sum; }
};

#if PASS == GATHER

static __device__ __forceinline__ void gather(const real *images, const real *weight, const real *bias, real *positions) {
    __shared__ Tiles tiles;
    const u64 group = blockIdx.z, first = group * POSITION_CHANNELS;
    const u32 m = blockIdx.y * TILE_M, n = blockIdx.x * TILE_N;
    typedef Matrix<true> Rows;
    const Rows rows = {weight + group * GROUP_WEIGHT, FILTER, POSITION_CHANNELS, FILTER};
    typename Carrier<FILTER % VECTOR == 0, TILE_M, true, Rows>::Type a(rows, m);
    typename Carrier<false, TILE_N, false, WindowColumns>::Type b(images + group * IMAGE_CHANNELS * IMAGE_VOLUME, n);
    typedef Map<POSITION_CHANNELS, POSITION_VOLUME> Target;
    const Target map = {positions + first * POSITION_VOLUME, addend(bias, first)};
    Sums sums;
    clear(sums);
    multiply(a, b, 0, FILTER, tiles, sums);
    store<Target::FOURS>(map, m, n, tiles, sums);
}

#elif PASS == SCATTER

static __device__ __forceinline__ void scatter(const real *positions, const real *weight, const real *bias, real *images) {
    __shared__ Tiles tiles;
    const u64 group = blockIdx.z, first = group * IMAGE_CHANNELS;
    const u32 m = blockIdx.y * TILE_M, n = blockIdx.x * TILE_N;
    const WeightRows rows = {weight + group * GROUP_WEIGHT};
    typename Carrier<false, TILE_M, true, WeightRows>::Type a(rows, m);
    const PixelColumns columns = {positions + group * POSITION_CHANNELS * POSITION_VOLUME};
    typename Carrier<false, TILE_N, false, PixelColumns>::Type b(columns, n);
    typedef Map<IMAGE_CHANNELS, IMAGE_VOLUME> Target;
    const Target map = {images + first * IMAGE_VOLUME, addend(bias, first)};
    Sums sums;
    clear(sums);
    multiply(a, b, 0, POSITION_CHANNELS * TAPS, tiles, sums);
    store<Target::FOURS>(map, m, n, tiles, sums);
}

#elif PASS == WEIGH

// Products that are added up by themselves before they join the total: of millions, too many digits would be lost.
constexpr u32 PORTION = 4096;
// The products of a part: from which on, and up to which.
constexpr u32 PRODUCTS = (u32)BATCH * POSITION_VOLUME;
static __device__ __forceinline__ u32 begin(u32 part) { return part * PART; }
static __device__ __forceinline__ u32 end(u32 part) { return part + 1 < PARTS ? (part + 1) * PART : PRODUCTS; }

static __device__ __forceinline__ void
weigh(const real *images, const real *positions, float *partial, real *weight) {
    __shared__ Tiles tiles;
    const u64 group = blockIdx.z / PARTS;
    const u32 m = blockIdx.y * TILE_M, n = blockIdx.x * TILE_N, part = blockIdx.z % PARTS, last = end(part);
    const PositionRows rows = {positions + group * POSITION_CHANNELS * POSITION_VOLUME};
    typename Carrier<POSITION_VOLUME % VECTOR == 0, TILE_M, true, PositionRows>::Type a(rows, m);
    typename Carrier<false, TILE_N, true, TapColumns>::Type b(images + group * IMAGE_CHANNELS * IMAGE_VOLUME, n);
    Sums total, sums;
    clear(total);
    for (u32 first = begin(part); first < last; first += PORTION) {
        clear(sums);
        multiply(a, b, first, last - first < PORTION ? last : first + PORTION, tiles, sums);
        add(total, sums);
    }
#if PARTS > 1
    const Weight<float> target = {partial + part * WEIGHTS + group * GROUP_WEIGHT};
    store<FILTER % 4 == 0>(target, m, n, tiles, total);
#else
    store<FILTER % 4 == 0>(Weight<real>{weight + group * GROUP_WEIGHT}, m, n, tiles, total);
#endif
}

#elif PASS == SUM_PARTS

// A thread for each element of the weight.
static __device__ __forceinline__ void sum_parts(const float *partial, real *weight) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= WEIGHTS) return;
    float sum = 0.0f;
#pragma unroll 8
    for (u32 part = 0; part < PARTS; part++) sum += partial[part * WEIGHTS + i];
    finish(sum, &weight[i]);
}

#else

// The sum over samples and VOLUME pixels of a channel, of so many: a block for each.
template <u32 CHANNELS, u32 VOLUME>
static __device__ __forceinline__ void channel_sums(const real *map, float *scratch, real *sums) {
    const u64 channel = blockIdx.x;
    float sum = 0.0f;
    for (u32 i = threadIdx.x; i < BATCH * VOLUME; i += blockDim.x)
        sum += widen(map[(i / VOLUME * (u64)CHANNELS + channel) * VOLUME + i % VOLUME]);
    sum = block_sum(sum, scratch);
    if (threadIdx.x == 0) finish(sum, &sums[channel]);
}

#endif
