// Places of elements for kernels that map planes to planes: x and dx are [planes, HEIGHT, WIDTH], y and dy are [planes, OUT_HEIGHT, OUT_WIDTH]. A
// plane is a channel of a sample.
//
// CHANNELS, X_STRIDES, Y_STRIDES  given if maps are not dense: see layout.cuh
// PACK                            channels that a thread works on: more than one if maps are channels last, without gaps and with whole packs.
//                                 Neighbouring threads then have neighbouring packs
//
// No include guard: the tests include it once for each kernel they compile.
#include "layout.cuh"
#include "pack.cuh"

#ifdef X_STRIDES
constexpr Strides X_MAP = X_STRIDES, Y_MAP = Y_STRIDES;
#else
// As if each plane were a sample of one channel.
constexpr Strides X_MAP = {HEIGHT * WIDTH, 0, WIDTH, 1}, Y_MAP = {OUT_HEIGHT * OUT_WIDTH, 0, OUT_WIDTH, 1};
#endif

// The work of a thread: its first channel, and an element of each of its planes.
struct Site {
    u64 sample;
    u32 channel, row, column;
};

// Returns the site of thread `i`, for planes of `rows` rows and `columns` columns.
template <class Index> static __device__ __forceinline__ Site site(Index i, u32 rows, u32 columns) {
#if PACK > 1
    constexpr u32 PACKS = CHANNELS / PACK;
    const u32 channel = (u32)(i % PACKS) * PACK;
    i /= PACKS;
#endif
    const u32 column = (u32)(i % columns), row = (u32)(i / columns % rows);
    i = i / columns / rows;
#if PACK > 1
    return {i, channel, row, column};
#elif defined(X_STRIDES)
    return {i / CHANNELS, (u32)(i % CHANNELS), row, column};
#else
    return {i, 0, row, column};
#endif
}

// Return the place of another element of the same planes.
static __device__ __forceinline__ u64 place(const Strides &map, const Site &at, u32 row, u32 column) {
    return at.sample * map.sample + at.channel * map.channel + row * map.row + column * map.column;
}
static __device__ __forceinline__ u64 x_place(const Site &at, u32 h, u32 w) { return place(X_MAP, at, h, w); }
static __device__ __forceinline__ u64 y_place(const Site &at, u32 o, u32 p) { return place(Y_MAP, at, o, p); }

// Stores a thread's results for each of its channels.
static __device__ __forceinline__ void store(const float (&found)[PACK], real *map, u64 at) {
    Pack pack;
#pragma unroll
    for (int k = 0; k < PACK; k++) put(found[k], pack, k);
    store(pack, map, at);
}

// Stores a thread's gradients, or with ADD adds them.
static __device__ __forceinline__ void store_gradient(float (&found)[PACK], real *map, u64 at) {
#if ADD
    const Pack before = load(map, at);
#pragma unroll
    for (int k = 0; k < PACK; k++) found[k] += element(before, k);
#endif
    store(found, map, at);
}
