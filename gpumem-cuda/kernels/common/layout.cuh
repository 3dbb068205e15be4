// Places of elements in maps that are not all dense.
//
// X_STRIDES, Y_STRIDES, .. are elements between samples, channels, rows and columns of a map, in braces. If all maps of a kernel are dense, none of
// them is defined, and places follow from the sizes.
//
// No include guard: the tests include it once for each kernel they compile.

struct Strides {
    u64 sample, channel, row, column;
};

// Returns the place of an element of a plane. The planes of a sample are its channels.
static __device__ __forceinline__ u64 in_map(Strides strides, u32 channels, u64 plane, u32 row, u32 column) {
    return plane / channels * strides.sample + plane % channels * strides.channel + row * strides.row + column * strides.column;
}

// Returns the place of element `i`, counted in the order of the shape.
static __device__ __forceinline__ u64 in_order(Strides strides, u32 channels, u32 height, u32 width, u64 i) {
    return in_map(strides, channels, i / ((u64)height * width), (u32)(i / width % height), (u32)(i % width));
}
