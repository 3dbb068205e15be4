// 3-D convolutions and transposed convolutions as implicit matrix products: windows slide over images, and each has a position. It is
// correlation.cuh with one more axis; all tensors are dense.
//
// BATCH                                          B, samples
// GROUPS                                         G, groups of channels; positions of a group depend on images of that group only
// IMAGE_CHANNELS, POSITION_CHANNELS              C and O, channels of a group on the two sides
// IMAGE_DEPTH, IMAGE_HEIGHT, IMAGE_WIDTH         D, H and W
// POSITION_DEPTH, POSITION_HEIGHT, POSITION_WIDTH  N, P and Q
// KERNEL_DEPTH, KERNEL_HEIGHT, KERNEL_WIDTH      T, R and S
// STRIDE_Z, .._Y, .._X, PADDING_.., DILATION_..
// BIAS                                           1 if there is a bias
// ADD                                            1 if the result is added to its tensor (+=), 0 if it overwrites it
// PARTS, PART                                    parts that the products of weigh are split into, none of them empty, and the products
//                                                of each: a multiple of 64; the last part may have fewer
// PHASED                                         1 if scatter computes the pixels of one phase only, which are STRIDE apart: all of them are
//                                                reached by the same taps
// FIRST_Z, .._Y, .._X                            the first pixel of the phase, or 0
// TAP_Z, .._Y, .._X                              the first tap that reaches it, or KERNEL_.. if none does; without phases 0
// TAP_STEP_Z, .._Y, .._X                         taps from one that reaches it to the next; without phases 1
// PASS                                           the one of the functions below for which the file is compiled
// TILE_M, TILE_N                                 tile that a block computes, see tile.cuh
// TENSOR_CORES                                   terms that a tensor-core instruction sums, or 0: see mma.cuh
//
// images [B, G C, D, H, W], positions [B, G O, N, P, Q], weight [G O, C, T, R, S]. Tap (t, r, s) of the window of position (n, p, q) is
// in plane n STRIDE_Z - PADDING_Z + t DILATION_Z of the image, and likewise its row and column; outside there are zeros. Within a group:
//
// gather   positions[b, o, n, p, q] = bias[o] + sum over c, t, r, s of weight[o, c, t, r, s] images[b, c, z(n, t), y(p, r), x(q, s)]
// scatter  images[b, c, z, y, x]    = bias[c] + sum over o and the taps at (z, y, x) of weight[o, c, t, r, s] positions[b, o, n, p, q]
// weigh    weight[o, c, t, r, s]    = sum over b, n, p, q of positions[b, o, n, p, q] images[b, c, z(n, t), y(p, r), x(q, s)]
//
// Each is a matrix product with one operand that is read through the windows; nothing is unfolded in memory:
//
//          M  N          K
// gather   O  B N P Q    C T R S
// scatter  C  B D H W    O T R S
// weigh    O  C T R S    B N P Q
//
// Grid: along x a block for each tile of N, along y for each tile of M, along z for each group. Every element is summed in the same order in every
// run. With several parts, weigh has a block for each part of a tile (z = group PARTS + part), which write their sums to partial [PARTS, G O, C, T,
// R, S], in f32; sum_parts adds them up. A scatter with strides is a launch for each phase, or, if those are too many, multiplies zeros for windows
// that do not reach a pixel.
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
// Planes of a window and of a tap that do not exist. Each is so far outside that its sum with any other plane is outside too.
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

#if PASS == SCATTER

// The pixels of a launch along an axis and the taps that may reach them.
template <int SIZE, int KERNEL_SIZE, int STRIDE, int PADDING, int DILATION, int FIRST, int TAP, int TAP_STEP> struct Phase {
    static constexpr int STEP = PHASED ? STRIDE : 1;
    static constexpr u32 COUNT = (SIZE - FIRST + STEP - 1) / STEP, ALL_TAPS = (KERNEL_SIZE - TAP + TAP_STEP - 1) / TAP_STEP;
    // Divisor of k.
    static constexpr u32 DIVISOR = ALL_TAPS ? ALL_TAPS : 1;
    static __device__ __forceinline__ u32 pixel(u32 i) { return FIRST + i * STEP; }
    static __device__ __forceinline__ u32 tap(u32 i) { return TAP + i * TAP_STEP; }
    // In a phase, returns the place of the window whose first tap is at the pixel, which is exact; else of the pixel, with padding, never below 0.
    static __device__ __forceinline__ int place(u32 i) { return ((int)pixel(i) + PADDING - TAP * DILATION) / STEP; }
    // In a phase, returns the distance from there back to the window with this tap; else the tap.
    static __device__ __forceinline__ int before(u32 i) { return (int)i * (TAP_STEP * DILATION / STEP); }
    // Returns the position with the tap there, or one that does not exist.
    static __device__ __forceinline__ u32 position(int place, int before) {
        const int at = place - before;
        if (PHASED) return (u32)at;
        return at < 0 || at % STRIDE != 0 ? 0xffffffffu : (u32)at / STRIDE;
    }
};
typedef Phase<IMAGE_DEPTH, KERNEL_DEPTH, STRIDE_Z, PADDING_Z, DILATION_Z, FIRST_Z, TAP_Z, TAP_STEP_Z> PhaseZ;
typedef Phase<IMAGE_HEIGHT, KERNEL_HEIGHT, STRIDE_Y, PADDING_Y, DILATION_Y, FIRST_Y, TAP_Y, TAP_STEP_Y> PhaseY;
typedef Phase<IMAGE_WIDTH, KERNEL_WIDTH, STRIDE_X, PADDING_X, DILATION_X, FIRST_X, TAP_X, TAP_STEP_X> PhaseX;
constexpr u32 PHASE_VOLUME = PhaseZ::COUNT * PhaseY::COUNT * PhaseX::COUNT;
// Taps of an output channel, and divisors of k.
constexpr u32 PHASE_TAPS = PhaseZ::ALL_TAPS * PhaseY::ALL_TAPS * PhaseX::ALL_TAPS, PHASE_DIVISOR = PHASE_TAPS ? PHASE_TAPS : 1;
constexpr u32 SCATTER_DEPTH = (u32)POSITION_CHANNELS * PHASE_TAPS;

// Positions whose windows have a tap at a pixel: the operand of scatter.
struct PixelColumns {
    const real *positions; // of the group

    struct Place {
        const real *sample;
        int z, y, x;
    };
    struct Depth {
        u32 offset;
        int z, y, x;
    };
    __device__ __forceinline__ Place place(u32 n) const {
        if (n >= BATCH * PHASE_VOLUME) return {positions, NO_WINDOW, 0, 0};
        const u32 b = n / PHASE_VOLUME, pixel = n % PHASE_VOLUME;
        const u32 x = pixel % PhaseX::COUNT, y = pixel / PhaseX::COUNT % PhaseY::COUNT, z = pixel / PhaseX::COUNT / PhaseY::COUNT;
        return {positions + b * POSITION_SAMPLE, PhaseZ::place(z), PhaseY::place(y), PhaseX::place(x)};
    }
    static __device__ __forceinline__ Depth depth(u32 k) {
        if (k >= SCATTER_DEPTH) return {0, NO_TAP, 0, 0};
        const u32 o = k / PHASE_DIVISOR, tap = k % PHASE_DIVISOR;
        const int x = PhaseX::before(tap % PhaseX::DIVISOR), y = PhaseY::before(tap / PhaseX::DIVISOR % PhaseY::DIVISOR);
        return {o * POSITION_VOLUME, PhaseZ::before(tap / PhaseX::DIVISOR / PhaseY::DIVISOR), y, x};
    }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) {
        const u32 n = PhaseZ::position(place.z, depth.z), p = PhaseY::position(place.y, depth.y);
        const u32 q = PhaseX::position(place.x, depth.x);
        if (n >= POSITION_DEPTH || p >= POSITION_HEIGHT || q >= POSITION_WIDTH) return real();
        return place.sample[depth.offset + (n * POSITION_HEIGHT + p) * POSITION_WIDTH + q];
    }
};

// The weight as an operand of scatter: a row for each image channel, k over output channels and taps.
struct WeightRows {
    const real *weight; // of the group

    struct Place {
        u32 offset;
        bool inside;
    };
    typedef Place Depth;
    static __device__ __forceinline__ Place place(u32 c) { return {c * TAPS, c < IMAGE_CHANNELS}; }
    static __device__ __forceinline__ Depth depth(u32 k) {
        const u32 o = k / PHASE_DIVISOR, tap = k % PHASE_DIVISOR;
        const u32 t = PhaseZ::tap(tap / PhaseX::DIVISOR / PhaseY::DIVISOR), r = PhaseY::tap(tap / PhaseX::DIVISOR % PhaseY::DIVISOR);
        const u32 at = (t * KERNEL_HEIGHT + r) * KERNEL_WIDTH + PhaseX::tap(tap % PhaseX::DIVISOR);
        return {o * FILTER + at, k < SCATTER_DEPTH};
    }
    __device__ __forceinline__ real at(const Place &place, const Depth &depth) const {
        return place.inside && depth.inside ? weight[place.offset + depth.offset] : real();
    }
};

// Pixels that are written: those of the launch.
struct PhasePixels {
    static constexpr u32 COUNT = PHASE_VOLUME;
    static constexpr bool FOURS = !PHASED && IMAGE_VOLUME % 4 == 0;
    static __device__ __forceinline__ u32 at(u32 n) {
        if (!PHASED) return n;
        const u32 z = PhaseZ::pixel(n / PhaseX::COUNT / PhaseY::COUNT), y = PhaseY::pixel(n / PhaseX::COUNT % PhaseY::COUNT);
        return (z * IMAGE_HEIGHT + y) * IMAGE_WIDTH + PhaseX::pixel(n % PhaseX::COUNT);
    }
};

#endif

// All pixels of a channel.
template <u32 VOLUME> struct AllPixels {
    static constexpr u32 COUNT = VOLUME;
    static constexpr bool FOURS = VOLUME % 4 == 0;
    static __device__ __forceinline__ u32 at(u32 n) { return n; }
};

// Positions as an operand: a row for each channel, k over samples and positions.
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

// A side that is written: a row for each of COUNT channels of VOLUME pixels, a column for each of the `Pixels` of each sample.
template <u32 COUNT, u32 VOLUME, class Pixels> struct Map {
    real *group;
    const real *biases; // of the group

    static constexpr bool FOURS = Pixels::FOURS;
    struct Column {
        real *first;
    };
    static __device__ __forceinline__ u32 rows() { return COUNT; }
    static __device__ __forceinline__ u32 columns() { return BATCH * Pixels::COUNT; }
    __device__ __forceinline__ Column column(u32 n) const {
        return {group + (n / Pixels::COUNT * ((u64)GROUPS * COUNT * VOLUME) + Pixels::at(n % Pixels::COUNT))};
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

// Elements are real, or float if they are parts of a sum.
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
    typedef Map<POSITION_CHANNELS, POSITION_VOLUME, AllPixels<POSITION_VOLUME>> Target;
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
    typedef Map<IMAGE_CHANNELS, IMAGE_VOLUME, PhasePixels> Target;
    const Target map = {images + first * IMAGE_VOLUME, addend(bias, first)};
    Sums sums;
    clear(sums);
    multiply(a, b, 0, SCATTER_DEPTH, tiles, sums);
    store<Target::FOURS>(map, m, n, tiles, sums);
}

#elif PASS == WEIGH

// Products that are summed by themselves before they join the total: a sum of millions would lose too many digits.
constexpr u32 PORTION = 4096;
// The products of a part: the first one, and the one after the last.
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

#include "partial_sums.cuh"

static __device__ __forceinline__ void sum_parts(const float *partial, real *weight, float *scratch) {
    const float sum = sum_of_parts<WEIGHTS>(partial, scratch);
    if (has_sum() && own_sum() < WEIGHTS) finish(sum, &weight[own_sum()]);
}

#else

// Computes the sum over samples and VOLUME pixels of one of CHANNELS channels. Grid: a block for each.
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
