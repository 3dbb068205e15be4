// Permutation of the axes of a value.
//
// AXES     axes of the result, outermost first
// LENGTHS  their lengths
// FROM, TO strides along each of them in the source and in the result, in elements
// NEAR     the axis with stride 1 in the source; in the result that is the last one
// ADD      1 if the gradient is added to its tensor (+=), 0 if it overwrites it
//
// permute_rows:  NEAR is the last axis: rows are moved unchanged, 16 bytes a thread if they consist of whole packs.
// permute_tiles: NEAR is another axis: a block moves a tile of 32 x 32 through shared memory, so that both sides access neighbours.
#include "base.cuh"
#include "real.cuh"

static __device__ constexpr u64 length_of(int axis) {
    constexpr u64 lengths[] = LENGTHS;
    return lengths[axis];
}

static __device__ constexpr u64 from_of(int axis) {
    constexpr u64 from[] = FROM;
    return from[axis];
}

static __device__ constexpr u64 to_of(int axis) {
    constexpr u64 to[] = TO;
    return to[axis];
}

// Returns the number of elements.
static __device__ constexpr u64 count() {
    u64 product = 1;
    for (int axis = 0; axis < AXES; axis++) product *= length_of(axis);
    return product;
}

// Division by a constant is cheap in 32 bits only.
template <bool SMALL> struct IndexOf {
    typedef u64 type;
};
template <> struct IndexOf<true> {
    typedef u32 type;
};
typedef IndexOf<(count() < 0x80000000ull)>::type Index;

struct Place {
    Index from, to;
};

// Returns the place of element `rest` along all axes except the last, and in tiles except NEAR.
template <bool TILES> static __device__ __forceinline__ Place place(Index rest) {
    Place at = {0, 0};
#pragma unroll
    for (int axis = AXES - 2; axis >= 0; axis--) {
        if (TILES && axis == NEAR) continue;
        const Index length = (Index)length_of(axis), i = rest % length;
        rest /= length;
        at.from += i * (Index)from_of(axis);
        at.to += i * (Index)to_of(axis);
    }
    return at;
}

// True if rows, and all strides, are multiples of this many elements.
static __device__ constexpr bool are_whole(u64 elements) {
    bool whole = length_of(AXES - 1) % elements == 0;
    for (int axis = 0; axis < AXES - 1; axis++) whole = whole && from_of(axis) % elements == 0 && to_of(axis) % elements == 0;
    return whole;
}

constexpr u64 WIDE = 16 / sizeof(real), PACK = are_whole(WIDE) ? WIDE : 1;
constexpr Index ROW = length_of(AXES - 1), PACKS = ROW / PACK;

struct alignas(sizeof(real) * PACK) Pack {
    real at[PACK];
};

// Grid: a thread for each pack.
KERNEL(permute_rows)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count() / PACK) return;
    const Place row = place<false>(i / PACKS);
    const Index column = i % PACKS * PACK;
    Pack pack = *(const Pack *)(x + row.from + column);
    Pack *to = (Pack *)(y + row.to + column);
#if ADD
    const Pack before = *to;
#pragma unroll
    for (int k = 0; k < PACK; k++) narrow(widen(before.at[k]) + widen(pack.at[k]), &pack.at[k]);
#endif
    *to = pack;
}

#define SIDE 32

KERNEL(permute_tiles)(const real *x, real *y) {
    // One additional column, so that columns of the tile are in different banks.
    __shared__ real tile[SIDE][SIDE + 1];
    constexpr Index NEAR_LENGTH = length_of(NEAR), LAST_LENGTH = length_of(AXES - 1);
    constexpr Index WIDTH = (LAST_LENGTH + SIDE - 1) / SIDE, HEIGHT = (NEAR_LENGTH + SIDE - 1) / SIDE;
    const Index block = blockIdx.x, outer = block / (WIDTH * HEIGHT);
    const Index near = block / WIDTH % HEIGHT * SIDE, last = block % WIDTH * SIDE;
    const Place at = place<true>(outer);
    const u32 lane = threadIdx.x & 31;
    for (u32 row = threadIdx.x >> 5; row < SIDE; row += 8) {
        if (near + lane < NEAR_LENGTH && last + row < LAST_LENGTH) {
            tile[row][lane] = x[at.from + (last + row) * (Index)from_of(AXES - 1) + near + lane];
        }
    }
    __syncthreads();
    for (u32 row = threadIdx.x >> 5; row < SIDE; row += 8) {
        if (near + row < NEAR_LENGTH && last + lane < LAST_LENGTH) {
            real *to = y + at.to + (near + row) * (Index)to_of(NEAR) + last + lane;
            const float value = widen(tile[lane][row]);
            narrow(ADD ? widen(*to) + value : value, to);
        }
    }
}
#undef SIDE
