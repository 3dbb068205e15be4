// Where the elements of maps are that are not all stored as their shapes are written.
//
// X_STRIDES, Y_STRIDES, .. are elements between samples, channels, rows and columns of a map, in braces. Where all maps of a
// kernel are dense none of them is defined, and the kernel knows from its sizes where everything is.
//
// No include guard: the tests include it once for each kernel they compile.

struct Strides {
    u64 sample, channel, row, column;
};

// Of an element of a plane; the planes of a sample are its channels.
static __device__ __forceinline__ u64 in_map(Strides strides, u32 channels, u64 plane, u32 row, u32 column) {
    return plane / channels * strides.sample + plane % channels * strides.channel + row * strides.row + column * strides.column;
}

// The same of element `i` in the order that the shape is written in.
static __device__ __forceinline__ u64 in_order(Strides strides, u32 channels, u32 height, u32 width, u64 i) {
    return in_map(strides, channels, i / ((u64)height * width), (u32)(i / width % height), (u32)(i % width));
}
