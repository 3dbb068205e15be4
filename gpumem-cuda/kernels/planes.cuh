// Where elements of x and dx, [planes, HEIGHT, WIDTH], and of y and dy, [planes, OUT_HEIGHT, OUT_WIDTH], are: for kernels that
// make planes of planes. CHANNELS, X_STRIDES and Y_STRIDES where maps are not dense: see layout.cuh.
//
// No include guard: the tests include it once for each kernel they compile.
#include "layout.cuh"

#ifdef X_STRIDES
static __device__ __forceinline__ u64 x_place(u64 plane, u32 h, u32 w) { return in_map(Strides X_STRIDES, CHANNELS, plane, h, w); }
static __device__ __forceinline__ u64 y_place(u64 plane, u32 o, u32 p) { return in_map(Strides Y_STRIDES, CHANNELS, plane, o, p); }
#else
static __device__ __forceinline__ u64 x_place(u64 plane, u32 h, u32 w) { return plane * (HEIGHT * WIDTH) + (h * WIDTH + w); }
static __device__ __forceinline__ u64 y_place(u64 plane, u32 o, u32 p) { return plane * (OUT_HEIGHT * OUT_WIDTH) + (o * OUT_WIDTH + p); }
#endif
