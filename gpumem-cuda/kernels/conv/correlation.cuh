// Convolutions and transposed convolutions as implicit matrix products: windows slide over images, and each has a position.
//
// BATCH                             B, samples
// GROUPS                            G, groups of channels; positions of a group depend on images of that group only
// IMAGE_CHANNELS, POSITION_CHANNELS C and O, channels of a group on the two sides
// IMAGE_HEIGHT, IMAGE_WIDTH         H and W
// POSITION_HEIGHT, POSITION_WIDTH   P and Q
// KERNEL_HEIGHT, KERNEL_WIDTH       R and S
// STRIDE_Y, STRIDE_X, PADDING_Y, PADDING_X, DILATION_Y, DILATION_X
// BIAS                              1 if there is a bias
// ADD                               1 if the result is added to its tensor (+=), 0 if it overwrites it
// RECTIFIER                         function applied to the result after that, in a forward pass: see rectify.cuh
// PARTS, PART                       parts that the products of weigh are split into, none of them empty, and the products of each:
//                                   a multiple of 64; the last part may have fewer
// PHASED                            1 if scatter computes the pixels of one phase only, which are STRIDE apart and reached by the same taps
// FIRST_Y, FIRST_X                  the first pixel of the phase, or 0
// TAP_Y, TAP_X                      the first tap that reaches it, or KERNEL_HEIGHT or KERNEL_WIDTH if none does; without phases 0
// TAP_STEP_Y, TAP_STEP_X            taps from one that reaches it to the next; without phases 1
// IMAGE_STRIDES, POSITION_STRIDES   given if images or positions are not dense, both or neither: elements between samples, channels, rows and
//                                   columns, in braces
// WEIGHT_LAST                       given if the weight is stored channels last, [G O, R, S, C]
// EXCHANGED                         given if the deciding side is stored channels last. For gather and scatter that is the result; they compute the
//                                   transposed product: M and N below, and the meanings of TILE_M and TILE_N, change places. Sums of channels, and
//                                   weigh if C is 1 and both sides are channels last, have blocks of many channels
// TOTAL                             number format of gradients of weights and sums of channels; undefined if it is REAL
// NARROW                            given if gather and weigh are those of narrow.cuh
// PASS                              the one of the functions below for which the file is compiled
// TILE_M, TILE_N                    tile that a block computes, see tile.cuh
// TENSOR_CORES                      terms that a tensor-core instruction sums, or 0: see mma.cuh
//
// images [B, G C, H, W], positions [B, G O, P, Q], weight [G O, C, R, S]. Tap (r, s) of the window of position (p, q) is at
// row p STRIDE_Y - PADDING_Y + r DILATION_Y of the image, and likewise its column; outside there are zeros. Within a group:
//
// gather   positions[b, o, p, q] = bias[o] + sum over c, r, s of weight[o, c, r, s] images[b, c, y(p, r), x(q, s)]
// scatter  images[b, c, y, x]    = bias[c] + sum over o and the taps at (y, x) of weight[o, c, r, s] positions[b, o, p, q]
// weigh    weight[o, c, r, s]    = sum over b, p, q of positions[b, o, p, q] images[b, c, y(p, r), x(q, s)]
//
// Each is a matrix product with one operand that is read through the windows; nothing is unfolded in memory:
//
//          M  N          K
// gather   O  B P Q      C R S
// scatter  C  B H W      O R S
// weigh    O  C R S      B P Q
//
// If windows have one tap, no strides and no padding, and there are as many as pixels (POINTWISE), the products are of stored matrices.
//
// C R S and O R S are counted in the order of the stored weight: taps innermost, or channels with WEIGHT_LAST. VECTOR adjacent channels of a pixel,
// with strides that are multiples of VECTOR (TOGETHER), are moved at once.
//
// Grid: along x a block for each tile of N, along y for each tile of M (with EXCHANGED, still pixels along x), along z for each group. If C is 1
// (depthwise, or grey images) a tile would be almost empty, so elements are summed directly: gather and scatter have a thread for each, in blocks
// of 256; weigh has a block for each output channel (x; with EXCHANGED for 32 of them) and row of its kernel (y).
//
// Every element is summed in the same order in every run. With several parts, weigh has a block for each part of a tile (z = group PARTS + part) or
// row, which write their sums to partial [PARTS, G O, C, R, S], in f32; sum_parts adds them up. Sums of channels with EXCHANGED do so too: a part
// has PART pixels (y), and partial is [PARTS, channels]. A scatter with strides is a launch for each phase, or, if those are too many, multiplies
// zeros for windows that do not reach a pixel.
//
// A sample has fewer than 2^31 elements; so have sizes, N and K.
// No include guard: the tests include it once for each kernel they compile.
#include "rectify.cuh"
#include "tile.cuh"

#undef POINTWISE
#define POINTWISE                                                                                                       \
    (KERNEL_HEIGHT == 1 && KERNEL_WIDTH == 1 && STRIDE_Y == 1 && STRIDE_X == 1 && PADDING_Y == 0 && PADDING_X == 0      \
     && IMAGE_HEIGHT == POSITION_HEIGHT && IMAGE_WIDTH == POSITION_WIDTH)

// TABLED: 1 if a block computes a table of taps once. Otherwise a thread computes the tap for each element of a window, which takes more
// instructions than reading it.
#undef TABLED
#if TENSOR_CORES && !defined(WEIGHT_LAST) && KERNEL_HEIGHT * KERNEL_WIDTH > 1 \
    && IMAGE_CHANNELS * KERNEL_HEIGHT * KERNEL_WIDTH <= 512
#define TABLED 1
#else
#define TABLED 0
#endif

#define GATHER 0
#define SCATTER 1
#define WEIGH 2
#define CHANNEL_SUMS 3
#define SUM_PARTS 4
#define SUM_CHANNEL_PARTS 5

constexpr u32 IMAGE_AREA = (u32)IMAGE_HEIGHT * IMAGE_WIDTH;
constexpr u32 POSITION_AREA = (u32)POSITION_HEIGHT * POSITION_WIDTH;
constexpr u32 TAPS = (u32)KERNEL_HEIGHT * KERNEL_WIDTH;
#ifdef IMAGE_STRIDES
constexpr u64 IMAGES_LIE[4] = IMAGE_STRIDES, POSITIONS_LIE[4] = POSITION_STRIDES;
constexpr u64 IMAGE_SAMPLE = IMAGES_LIE[0], POSITION_SAMPLE = POSITIONS_LIE[0];
constexpr u32 IMAGE_CHANNEL = IMAGES_LIE[1], IMAGE_ROW = IMAGES_LIE[2], IMAGE_COLUMN = IMAGES_LIE[3];
constexpr u32 POSITION_CHANNEL = POSITIONS_LIE[1], POSITION_ROW = POSITIONS_LIE[2], POSITION_COLUMN = POSITIONS_LIE[3];
#else
constexpr u64 IMAGE_SAMPLE = (u64)GROUPS * IMAGE_CHANNELS * IMAGE_AREA;
constexpr u64 POSITION_SAMPLE = (u64)GROUPS * POSITION_CHANNELS * POSITION_AREA;
constexpr u32 IMAGE_CHANNEL = IMAGE_AREA, IMAGE_ROW = IMAGE_WIDTH, IMAGE_COLUMN = 1;
constexpr u32 POSITION_CHANNEL = POSITION_AREA, POSITION_ROW = POSITION_WIDTH, POSITION_COLUMN = 1;
#endif
#ifdef WEIGHT_LAST
constexpr bool CHANNELS_INNERMOST = true;
#else
constexpr bool CHANNELS_INNERMOST = TAPS == 1;
#endif
#ifdef EXCHANGED
constexpr bool PIXELS_ARE_ROWS = true;
#else
constexpr bool PIXELS_ARE_ROWS = false;
#endif
// Channels and pixels that a block computes.
constexpr int TILE_CHANNELS = PIXELS_ARE_ROWS ? TILE_N : TILE_M, TILE_PIXELS = PIXELS_ARE_ROWS ? TILE_M : TILE_N;
// Elements of the weight of an output channel, and of a group.
constexpr u32 FILTER = (u32)IMAGE_CHANNELS * TAPS;
constexpr u64 GROUP_WEIGHT = (u64)POSITION_CHANNELS * FILTER;
constexpr u64 WEIGHTS = GROUPS * GROUP_WEIGHT;
// Rows of a window and of a tap that do not exist. Each is so far outside that its sum with any other row is outside too.
constexpr int NO_WINDOW = -(1 << 30);
constexpr int NO_TAP = 1 << 29;

// One side, images or positions: channels of a group, pixels of a plane, and their strides.
template <u64 OF_SAMPLE, u32 OF_CHANNEL, u32 OF_ROW, u32 OF_COLUMN, u32 COUNT, u32 HEIGHT, u32 WIDTH> struct SideOf {
    static constexpr u32 CHANNELS = COUNT, AREA = HEIGHT * WIDTH, CHANNEL = OF_CHANNEL, COLUMN = OF_COLUMN;
    static constexpr u64 SAMPLE = OF_SAMPLE;
    // True if pixels have equal distances: within a plane, and over all samples.
    static constexpr bool EVEN = OF_ROW == WIDTH * OF_COLUMN, ALL_EVEN = EVEN && SAMPLE == (u64)AREA * COLUMN;
    static constexpr bool DENSE = EVEN && COLUMN == 1 && CHANNEL == AREA && SAMPLE == (u64)GROUPS * CHANNELS * AREA;
    // True if it is channels last, and true if its channels are moved in vectors.
    static constexpr bool LAST = !DENSE && CHANNEL == 1;
    static constexpr bool TOGETHER =
        LAST && CHANNELS % VECTOR == 0 && COLUMN % VECTOR == 0 && OF_ROW % VECTOR == 0 && SAMPLE % VECTOR == 0;
    // True if results are stored four at a time.
    static constexpr bool FOURS = LAST && CHANNELS % 4 == 0 && COLUMN % 4 == 0 && OF_ROW % 4 == 0 && SAMPLE % 4 == 0;

    static __device__ __forceinline__ u32 within(u32 pixel) {
        return EVEN ? pixel * COLUMN : pixel / WIDTH * OF_ROW + pixel % WIDTH * COLUMN;
    }
    // Returns the place of a pixel, counted over all samples.
    static __device__ __forceinline__ u64 among(u32 pixel) {
        return ALL_EVEN ? pixel * (u64)COLUMN : pixel / AREA * SAMPLE + within(pixel % AREA);
    }
};
typedef SideOf<IMAGE_SAMPLE, IMAGE_CHANNEL, IMAGE_ROW, IMAGE_COLUMN, IMAGE_CHANNELS, IMAGE_HEIGHT, IMAGE_WIDTH> Images;
typedef SideOf<POSITION_SAMPLE, POSITION_CHANNEL, POSITION_ROW, POSITION_COLUMN, POSITION_CHANNELS, POSITION_HEIGHT, POSITION_WIDTH>
    Positions;

// Return the channel and the tap of element `k` of the weight, in its stored order.
template <u32 CHANNELS, u32 COUNT> static __device__ __forceinline__ u32 channel_of(u32 k) {
    return COUNT == 1 ? k : CHANNELS_INNERMOST ? k % CHANNELS : k / COUNT;
}
template <u32 CHANNELS, u32 COUNT> static __device__ __forceinline__ u32 tap_of(u32 k) {
    return COUNT == 1 ? 0 : CHANNELS_INNERMOST ? k / CHANNELS : k % COUNT;
}

// Number format of gradients of weights and sums of channels.
#ifdef TOTAL
typedef TOTAL Total;
#else
typedef real Total;
#endif

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
        int corner, y, x; // of the first tap
    };
    struct Tap {
        int offset, y, x;
    };
    __device__ __forceinline__ Window window(u32 n) const {
        if (n >= BATCH * POSITION_AREA) return {images, 0, NO_WINDOW, 0};
        const u32 b = n / POSITION_AREA, position = n % POSITION_AREA;
        const int y = (int)(position / POSITION_WIDTH) * STRIDE_Y - PADDING_Y;
        const int x = (int)(position % POSITION_WIDTH) * STRIDE_X - PADDING_X;
        return {images + b * IMAGE_SAMPLE, y * (int)IMAGE_ROW + x * (int)IMAGE_COLUMN, y, x};
    }
    static __device__ __forceinline__ Tap tap(u32 k) {
        if (k >= FILTER) return {0, NO_TAP, 0};
        const u32 c = channel_of<IMAGE_CHANNELS, TAPS>(k), tap = tap_of<IMAGE_CHANNELS, TAPS>(k);
        const int y = (int)(tap / KERNEL_WIDTH) * DILATION_Y, x = (int)(tap % KERNEL_WIDTH) * DILATION_X;
        return {(int)(c * IMAGE_CHANNEL) + y * (int)IMAGE_ROW + x * (int)IMAGE_COLUMN, y, x};
    }
    static __device__ __forceinline__ bool inside(const Window &window, const Tap &tap) {
        return (u32)(window.y + tap.y) < IMAGE_HEIGHT && (u32)(window.x + tap.x) < IMAGE_WIDTH;
    }
    static __device__ __forceinline__ const real *data(const Window &window, const Tap &tap) {
        return window.sample + (window.corner + tap.offset);
    }
    static __device__ __forceinline__ real read(const Window &window, const Tap &tap) {
        return inside(window, tap) ? *data(window, tap) : real();
    }
};

struct WindowColumns : Windows {
    typedef Window Place;
    typedef Tap Depth;
    __device__ __forceinline__ WindowColumns(const real *group) : Windows{group} {}
    __device__ __forceinline__ Place place(u32 n) const { return window(n); }
    static __device__ __forceinline__ Depth depth(u32 k) { return tap(k); }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) { return read(place, depth); }
    static __device__ __forceinline__ void four(const Place &place, const Depth &depth, float *to) {
        read_four(data(place, depth), inside(place, depth), to);
    }
    static __device__ __forceinline__ uint4 eight(const Place &place, const Depth &depth) {
        return read_eight(data(place, depth), inside(place, depth));
    }
};

#if TABLED
struct TabledColumns : Windows {
    struct alignas(16) Entry {
        int offset, y, x, unused;
    };
    // Rounded up to whole tiles, since all of those are read.
    static constexpr u32 COUNT = (FILTER + TILE_K - 1) / TILE_K * TILE_K;
    typedef Window Place;
    typedef Tap Depth;
    const Entry *entries;

    __device__ __forceinline__ TabledColumns(const real *group, Entry *table) : Windows{group}, entries(table) {
        for (u32 k = threadIdx.x; k < COUNT; k += TILE_THREADS) {
            const Tap known = tap(k);
            table[k] = {known.offset, known.y, known.x, 0};
        }
        __syncthreads();
    }
    __device__ __forceinline__ Place place(u32 n) const { return window(n); }
    __device__ __forceinline__ Depth depth(u32 k) const { return {entries[k].offset, entries[k].y, entries[k].x}; }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) { return read(place, depth); }
};
#endif

struct TapColumns : Windows {
    typedef Tap Place;
    typedef Window Depth;
    __device__ __forceinline__ TapColumns(const real *group) : Windows{group} {}
    static __device__ __forceinline__ Place place(u32 n) { return tap(n); }
    __device__ __forceinline__ Depth depth(u32 k) const { return window(k); }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) { return read(depth, place); }
    static __device__ __forceinline__ void four(const Place &place, const Depth &depth, float *to) {
        read_four(data(depth, place), inside(depth, place), to);
    }
    static __device__ __forceinline__ uint4 eight(const Place &place, const Depth &depth) {
        return read_eight(data(depth, place), inside(depth, place));
    }
};

#if PASS == SCATTER

// The pixels of a launch and the taps that may reach them.
#if PHASED
constexpr int PIXEL_STEP_Y = STRIDE_Y, PIXEL_STEP_X = STRIDE_X;
#else
constexpr int PIXEL_STEP_Y = 1, PIXEL_STEP_X = 1;
#endif
constexpr u32 PHASE_HEIGHT = (IMAGE_HEIGHT - FIRST_Y + PIXEL_STEP_Y - 1) / PIXEL_STEP_Y;
constexpr u32 PHASE_WIDTH = (IMAGE_WIDTH - FIRST_X + PIXEL_STEP_X - 1) / PIXEL_STEP_X;
constexpr u32 PHASE_AREA = PHASE_HEIGHT * PHASE_WIDTH;
constexpr u32 TAP_ROWS = (KERNEL_HEIGHT - TAP_Y + TAP_STEP_Y - 1) / TAP_STEP_Y;
constexpr u32 TAP_COLUMNS = (KERNEL_WIDTH - TAP_X + TAP_STEP_X - 1) / TAP_STEP_X;
// Taps of an output channel, and divisors of k.
constexpr u32 PHASE_TAPS = TAP_ROWS * TAP_COLUMNS, PHASE_DIVISOR = PHASE_TAPS ? PHASE_TAPS : 1, ROW_DIVISOR = TAP_COLUMNS ? TAP_COLUMNS : 1;
constexpr u32 SCATTER_DEPTH = (u32)POSITION_CHANNELS * PHASE_TAPS;

// Positions whose windows have a tap at a pixel: the operand of scatter.
struct PixelColumns {
    const real *positions; // of the group

    // In a phase, the place of the window whose first tap is at the pixel; else of the pixel, with padding, never below 0.
    struct Place {
        const real *sample;
        int y, x;
    };
    // In a phase, the distance from there back to the window with this tap; else the tap.
    struct Depth {
        u32 offset;
        int y, x;
    };
    __device__ __forceinline__ Place place(u32 n) const {
        if (n >= BATCH * PHASE_AREA) return {positions, NO_WINDOW, 0};
        const u32 b = n / PHASE_AREA, pixel = n % PHASE_AREA;
        const int y = FIRST_Y + (int)(pixel / PHASE_WIDTH) * PIXEL_STEP_Y + PADDING_Y - TAP_Y * DILATION_Y;
        const int x = FIRST_X + (int)(pixel % PHASE_WIDTH) * PIXEL_STEP_X + PADDING_X - TAP_X * DILATION_X;
        // In a phase these divisions are exact.
        return {positions + b * POSITION_SAMPLE, y / PIXEL_STEP_Y, x / PIXEL_STEP_X};
    }
    static __device__ __forceinline__ Depth depth(u32 k) {
        if (k >= SCATTER_DEPTH) return {0, NO_TAP, 0};
        const u32 o = channel_of<POSITION_CHANNELS, PHASE_DIVISOR>(k), tap = tap_of<POSITION_CHANNELS, PHASE_DIVISOR>(k);
        constexpr int down = TAP_STEP_Y * DILATION_Y / PIXEL_STEP_Y, right = TAP_STEP_X * DILATION_X / PIXEL_STEP_X;
        return {o * POSITION_CHANNEL, (int)(tap / ROW_DIVISOR) * down, (int)(tap % ROW_DIVISOR) * right};
    }
    // The position whose window has the tap there, if there is one. A flag says so, not a null pointer, which ptxas 13.0 compares before it is
    // loaded.
    struct Spot {
        const real *data;
        bool exists;
    };
    static __device__ __forceinline__ Spot find(const Place &place, const Depth &depth) {
        const int y = place.y - depth.y, x = place.x - depth.x;
#if PHASED
        const u32 p = (u32)y, q = (u32)x;
        const bool exists = p < POSITION_HEIGHT && q < POSITION_WIDTH;
#else
        const u32 p = (u32)y / STRIDE_Y, q = (u32)x / STRIDE_X;
        const bool exists = y >= 0 && x >= 0 && y % STRIDE_Y == 0 && x % STRIDE_X == 0 && p < POSITION_HEIGHT && q < POSITION_WIDTH;
#endif
        return {place.sample + (depth.offset + p * POSITION_ROW + q * POSITION_COLUMN), exists};
    }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) {
        const Spot spot = find(place, depth);
        return spot.exists ? *spot.data : real();
    }
    static __device__ __forceinline__ void four(const Place &place, const Depth &depth, float *to) {
        const Spot spot = find(place, depth);
        read_four(spot.data, spot.exists, to);
    }
    static __device__ __forceinline__ uint4 eight(const Place &place, const Depth &depth) {
        const Spot spot = find(place, depth);
        return read_eight(spot.data, spot.exists);
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
    static constexpr u32 OF_CHANNEL = CHANNELS_INNERMOST ? 1 : TAPS, OF_TAP = CHANNELS_INNERMOST ? IMAGE_CHANNELS : 1;
    static __device__ __forceinline__ Place place(u32 c) { return {c * OF_CHANNEL, c < IMAGE_CHANNELS}; }
    static __device__ __forceinline__ Depth depth(u32 k) {
        const u32 o = channel_of<POSITION_CHANNELS, PHASE_DIVISOR>(k), tap = tap_of<POSITION_CHANNELS, PHASE_DIVISOR>(k);
        const u32 r = TAP_Y + tap / ROW_DIVISOR * TAP_STEP_Y, s = TAP_X + tap % ROW_DIVISOR * TAP_STEP_X;
        return {o * FILTER + (r * KERNEL_WIDTH + s) * OF_TAP, k < SCATTER_DEPTH};
    }
    __device__ __forceinline__ real at(const Place &place, const Depth &depth) const {
        return place.inside && depth.inside ? weight[place.offset + depth.offset] : real();
    }
    __device__ __forceinline__ void four(const Place &place, const Depth &depth, float *to) const {
        read_four(weight + (place.offset + depth.offset), place.inside && depth.inside, to);
    }
    __device__ __forceinline__ uint4 eight(const Place &place, const Depth &depth) const {
        return read_eight(weight + (place.offset + depth.offset), place.inside && depth.inside);
    }
};

#endif

// A side that is read.
template <class Side> struct Pixels {
    const real *group;

    struct Channel {
        u32 offset;
        bool inside;
    };
    struct Pixel {
        const real *data;
        bool inside;
    };
    static __device__ __forceinline__ Channel channel(u32 c) { return {c * Side::CHANNEL, c < Side::CHANNELS}; }
    __device__ __forceinline__ Pixel pixel(u32 n) const {
        return {group + Side::among(n), n < BATCH * Side::AREA};
    }
};

// A side as an operand: a row for each channel, k over samples and pixels.
template <class Side> struct PixelRows : Pixels<Side> {
    typedef Pixels<Side> Base;
    typedef typename Base::Channel Place;
    typedef typename Base::Pixel Depth;
    __device__ __forceinline__ PixelRows(const real *group) : Base{group} {}
    static __device__ __forceinline__ Place place(u32 c) { return Base::channel(c); }
    __device__ __forceinline__ Depth depth(u32 k) const { return this->pixel(k); }
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

// A side as an operand: a column for each sample and pixel, k over channels.
template <class Side> struct ChannelColumns : Pixels<Side> {
    typedef Pixels<Side> Base;
    typedef typename Base::Pixel Place;
    typedef typename Base::Channel Depth;
    __device__ __forceinline__ ChannelColumns(const real *group) : Base{group} {}
    __device__ __forceinline__ Place place(u32 n) const { return this->pixel(n); }
    static __device__ __forceinline__ Depth depth(u32 k) { return Base::channel(k); }
    static __device__ __forceinline__ real at(const Place &place, const Depth &depth) {
        return place.inside && depth.inside ? place.data[depth.offset] : real();
    }
    static __device__ __forceinline__ void four(const Place &place, const Depth &depth, float *to) {
        read_four(place.data + depth.offset, place.inside && depth.inside, to);
    }
    static __device__ __forceinline__ uint4 eight(const Place &place, const Depth &depth) {
        return read_eight(place.data + depth.offset, place.inside && depth.inside);
    }
};

// Pixels that are written: all of a side.
template <class Side> struct AllPixels {
    static constexpr u32 COUNT = BATCH * Side::AREA;
    static constexpr bool FOURS = Side::DENSE && Side::AREA % 4 == 0;
    static __device__ __forceinline__ u64 at(u32 n) { return Side::among(n); }
};

#if PASS == SCATTER
// Pixels that are written: those of the launch.
struct PhasePixels {
    static constexpr u32 COUNT = BATCH * PHASE_AREA;
    static constexpr bool FOURS = !PHASED && AllPixels<Images>::FOURS;
    static __device__ __forceinline__ u64 at(u32 n) {
        if (!PHASED) return Images::among(n);
        const u32 b = n / PHASE_AREA, pixel = n % PHASE_AREA;
        const u32 y = FIRST_Y + pixel / PHASE_WIDTH * PIXEL_STEP_Y, x = FIRST_X + pixel % PHASE_WIDTH * PIXEL_STEP_X;
        return b * IMAGE_SAMPLE + y * IMAGE_ROW + x * IMAGE_COLUMN;
    }
};
#endif

// A side that is written, with a column, or a row, for each sample and pixel.
template <class Side, class Pixels> struct Map {
    real *group;
    const real *biases; // of the group

    static constexpr bool FOURS = PIXELS_ARE_ROWS ? Side::FOURS : Pixels::FOURS;
    struct Column {
        real *first;
    };
    static __device__ __forceinline__ u32 rows() { return PIXELS_ARE_ROWS ? Pixels::COUNT : Side::CHANNELS; }
    static __device__ __forceinline__ u32 columns() { return PIXELS_ARE_ROWS ? Side::CHANNELS : Pixels::COUNT; }
    __device__ __forceinline__ Column column(u32 n) const { return {group + (PIXELS_ARE_ROWS ? n * Side::CHANNEL : Pixels::at(n))}; }
    static __device__ __forceinline__ real *at(const Column &column, u32 m) {
        return column.first + (PIXELS_ARE_ROWS ? Pixels::at(m) : m * Side::CHANNEL);
    }
    __device__ __forceinline__ float bias(u32 m, u32 n) const {
#if BIAS
        return widen(biases[PIXELS_ARE_ROWS ? n : m]);
#else
        return 0.0f;
#endif
    }
    static __device__ __forceinline__ float through(float sum) { return rectify(sum); }
};

// Stores the products of channels, from `channel` on, and pixels in a map.
template <class Channels, class Pixels, class Target>
static __device__ __forceinline__ void
put_products(Channels &channels, Pixels &pixels, u32 depth, const Target &map, u32 channel, u32 pixel, Tiles &tiles) {
    Sums sums;
    clear(sums);
    if constexpr (PIXELS_ARE_ROWS) {
        multiply(pixels, channels, 0, depth, tiles, sums);
        store<Target::FOURS>(map, pixel, channel, tiles, sums);
    } else {
        multiply(channels, pixels, 0, depth, tiles, sums);
        store<Target::FOURS>(map, channel, pixel, tiles, sums);
    }
}

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

#if PASS == WEIGH
// The products of a part: the first one, and the one after the last.
constexpr u32 PRODUCTS = (u32)BATCH * POSITION_AREA;
static __device__ __forceinline__ u32 begin(u32 part) { return part * PART; }
static __device__ __forceinline__ u32 end(u32 part) { return part + 1 < PARTS ? (part + 1) * PART : PRODUCTS; }
#endif

#ifndef NARROW
constexpr int RESIDENT = TILE_RESIDENT;
#endif
#if PASS >= CHANNEL_SUMS || IMAGE_CHANNELS == 1
#include "correlation_sums.cuh"
#elif defined(NARROW)
#include "narrow.cuh"
#elif PASS == GATHER

static __device__ __forceinline__ void gather(const real *images, const real *weight, const real *bias, real *positions) {
    __shared__ Tiles tiles;
    const u64 group = blockIdx.z, first = group * POSITION_CHANNELS;
    const u32 channel = blockIdx.y * TILE_CHANNELS, pixel = blockIdx.x * TILE_PIXELS;
    typedef Matrix<true> Rows;
    const Rows rows = {weight + group * GROUP_WEIGHT, FILTER, POSITION_CHANNELS, FILTER};
    typename Carrier<FILTER % VECTOR == 0, TILE_CHANNELS, true, Rows>::Type a(rows, channel);
#if POINTWISE
    typedef ChannelColumns<Images> Columns;
    constexpr bool ALONG_K = Images::LAST, TOGETHER = Images::TOGETHER || (Images::DENSE && IMAGE_AREA % VECTOR == 0);
#else
    typedef WindowColumns Columns;
    constexpr bool ALONG_K = Images::LAST && CHANNELS_INNERMOST, TOGETHER = ALONG_K && Images::TOGETHER;
#endif
    images += group * IMAGE_CHANNELS * IMAGE_CHANNEL;
#if TABLED
    __shared__ TabledColumns::Entry taps[TabledColumns::COUNT];
    typename Carrier<false, TILE_PIXELS, false, TabledColumns>::Type b(TabledColumns(images, taps), pixel);
#else
    typename Carrier<TOGETHER, TILE_PIXELS, ALONG_K, Columns>::Type b(images, pixel);
#endif
    const Map<Positions, AllPixels<Positions>> map = {positions + first * POSITION_CHANNEL, addend(bias, first)};
    put_products(a, b, FILTER, map, channel, pixel, tiles);
}

#elif PASS == SCATTER

static __device__ __forceinline__ void scatter(const real *positions, const real *weight, const real *bias, real *images) {
    __shared__ Tiles tiles;
    const u64 group = blockIdx.z, first = group * IMAGE_CHANNELS;
    const u32 channel = blockIdx.y * TILE_CHANNELS, pixel = blockIdx.x * TILE_PIXELS;
    positions += group * POSITION_CHANNELS * POSITION_CHANNEL;
    weight += group * GROUP_WEIGHT;
#if POINTWISE
    typedef ChannelColumns<Positions> Columns;
    typedef Matrix<false> Rows;
    constexpr bool ALONG_K = Positions::LAST;
    constexpr bool TOGETHER = Positions::TOGETHER || (Positions::DENSE && POSITION_AREA % VECTOR == 0);
    const Rows rows = {weight, FILTER, FILTER, POSITION_CHANNELS};
#else
    typedef PixelColumns Columns;
    typedef WeightRows Rows;
    constexpr bool ALONG_K = Positions::LAST && CHANNELS_INNERMOST, TOGETHER = ALONG_K && Positions::TOGETHER;
    const Rows rows = {weight};
#endif
    constexpr bool ROWS_TOGETHER = CHANNELS_INNERMOST && IMAGE_CHANNELS % VECTOR == 0;
    typename Carrier<ROWS_TOGETHER, TILE_CHANNELS, !CHANNELS_INNERMOST, Rows>::Type a(rows, channel);
    typename Carrier<TOGETHER, TILE_PIXELS, ALONG_K, Columns>::Type b({positions}, pixel);
    const Map<Images, PhasePixels> map = {images + first * IMAGE_CHANNEL, addend(bias, first)};
    put_products(a, b, SCATTER_DEPTH, map, channel, pixel, tiles);
}

#elif PASS == WEIGH

// Products that are summed by themselves before they join the total: a sum of millions would lose too many digits.
constexpr u32 PORTION = 4096;

static __device__ __forceinline__ void
weigh(const real *images, const real *positions, float *partial, Total *weight) {
    __shared__ Tiles tiles;
    const u64 group = blockIdx.z / PARTS;
    const u32 m = blockIdx.y * TILE_M, n = blockIdx.x * TILE_N, part = blockIdx.z % PARTS, last = end(part);
    typedef PixelRows<Positions> Rows;
    constexpr bool ROWS_TOGETHER = Positions::TOGETHER || (Positions::DENSE && POSITION_AREA % VECTOR == 0);
#if POINTWISE
    typedef PixelRows<Images> Columns;
    constexpr bool ALONG_K = !Images::LAST, TOGETHER = Images::TOGETHER || (Images::DENSE && IMAGE_AREA % VECTOR == 0);
#else
    typedef TapColumns Columns;
    constexpr bool ALONG_K = !(Images::LAST && CHANNELS_INNERMOST), TOGETHER = !ALONG_K && Images::TOGETHER;
#endif
    typename Carrier<ROWS_TOGETHER, TILE_M, !Positions::LAST, Rows>::Type a(
        positions + group * POSITION_CHANNELS * POSITION_CHANNEL, m);
    typename Carrier<TOGETHER, TILE_N, ALONG_K, Columns>::Type b(images + group * IMAGE_CHANNELS * IMAGE_CHANNEL, n);
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
    store<FILTER % 4 == 0>(Weight<Total>{weight + group * GROUP_WEIGHT}, m, n, tiles, total);
#endif
}

#endif
