// Bits of the elements of a piece, for functions of two slopes: whether the slope is another one than at an output of 0. That of element i
// is bit i % 8 of byte i / 8.
//
// EIGHT  defined: a thread's piece has eight elements in every format, so that it has a byte of bits to itself
//
// Needs piece.cuh and pointwise.cuh. No include guard: the tests include it once for each kernel they compile.

typedef unsigned char Sides;

static_assert(PIECE == 8, "a byte of bits belongs to one thread");

// NaN is equal to nothing, so that its slope is no other's.
template <class F> static __device__ __forceinline__ u32 side_of(float y, const Arguments &arguments) {
    return F::slope(y, arguments) != F::slope(0.0f, arguments);
}

// The slope on the side that a bit says, of which `inside` is an output.
template <class F>
static __device__ __forceinline__ float slope_of(u32 sides, int e, float inside, const Arguments &arguments) {
    return sides >> e & 1 ? F::slope(inside, arguments) : F::slope(0.0f, arguments);
}

static __device__ __forceinline__ u32 load_sides(const void *from, u64 first) { return ((const Sides *)from)[first / 8]; }

// What is missing of a piece has no bit.
static __device__ __forceinline__ void store_sides(u32 sides, void *to, u64 first) {
    if (!is_whole(first)) sides &= (1u << (u32)(COUNT - first)) - 1;
    ((Sides *)to)[first / 8] = (Sides)sides;
}
