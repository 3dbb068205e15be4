// Windows of adaptive pooling, one for each element of the output. Window o of `windows` along an axis covers the elements from floor(o * size /
// windows) up to, not including, ceil((o + 1) * size / windows).
//
// No include guard: the tests include it once for each kernel they compile.

static __device__ __forceinline__ u32 window_start(u32 o, u32 size, u32 windows) { return (u32)((u64)o * size / windows); }

static __device__ __forceinline__ u32 window_end(u32 o, u32 size, u32 windows) {
    return (u32)(((u64)(o + 1) * size + windows - 1) / windows);
}

// Return the first window that covers an element, and the window after the last one.
static __device__ __forceinline__ u32 first_window(u32 at, u32 size, u32 windows) { return (u32)((u64)at * windows / size); }

static __device__ __forceinline__ u32 end_of_windows(u32 at, u32 size, u32 windows) {
    return (u32)(((u64)(at + 1) * windows + size - 1) / size);
}
