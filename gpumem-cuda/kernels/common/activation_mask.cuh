// Activation masks: a bit of each element, for functions with two slopes. The bit is set if the slope differs from that at an output of 0. The bit
// of element i is bit i % 8 of byte i / 8.
//
// EIGHT  given: a thread's pack has eight elements in every format, so that it owns a byte of the mask
//
// Needs vector16.cuh and pointwise.cuh. No include guard: the tests include it once for each kernel they compile.

typedef unsigned char Sides;

static_assert(PIECE == 8, "a byte of bits belongs to one thread");

// NaN differs from everything, so its bit is always set.
template <class F> static __device__ __forceinline__ u32 side_of(float y, const Arguments &arguments) {
    return F::slope(y, arguments) != F::slope(0.0f, arguments);
}

// Returns the slope that a bit selects. `inside` is an output whose bit is set.
template <class F>
static __device__ __forceinline__ float slope_of(u32 sides, int e, float inside, const Arguments &arguments) {
    return sides >> e & 1 ? F::slope(inside, arguments) : F::slope(0.0f, arguments);
}

static __device__ __forceinline__ u32 load_sides(const void *from, u64 first) { return ((const Sides *)from)[first / 8]; }

// Missing elements of a pack have no bit.
static __device__ __forceinline__ void store_sides(u32 sides, void *to, u64 first) {
    if (!is_whole(first)) sides &= (1u << (u32)(COUNT - first)) - 1;
    ((Sides *)to)[first / 8] = (Sides)sides;
}
