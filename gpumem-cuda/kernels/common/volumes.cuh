// Windows over volumes, [volumes, DEPTH, HEIGHT, WIDTH], each with a position, [volumes, OUT_DEPTH, OUT_HEIGHT, OUT_WIDTH]. A volume is one channel
// of one sample. For kernels with a thread for each of COUNT elements.
//
// COUNT                                elements that the entry point writes
// DEPTH, HEIGHT, WIDTH, OUT_DEPTH, ..  sizes
// KERNEL_D, KERNEL_H, KERNEL_W         window; with ADAPTIVE that of the largest
// STRIDE_.., PADDING_.., DILATION_..   distance of windows, elements by which the first one extends beyond the volume, distance of elements
// ADAPTIVE                             1 for adaptive pooling, with a window for each element of the output: see adaptive.cuh. Strides and padding
//                                      are not used then
// ADD                                  1 if a gradient is added to its tensor (+=), 0 if it overwrites it
//
// No include guard: the tests include it once for each kernel they compile.
#include "adaptive.cuh"

// Division by a constant is cheap in 32 bits only. There may be 32 threads for each element.
#if COUNT < 0x4000000ull
typedef u32 Index;
#else
typedef u64 Index;
#endif

// Consecutive elements or windows along an axis.
struct Run {
    int first, end;
};

// An axis of SIZE elements with WINDOWS windows.
template <int SIZE, int WINDOWS, int KERNEL_SIZE, int STRIDE, int PADDING, int DILATION> struct Axis {
    // Returns the place of element k of the window at o; -1 if it does not exist.
    static __device__ __forceinline__ int at(int o, int k) {
#if ADAPTIVE
        const int at = (int)window_start(o, SIZE, WINDOWS) + k;
        return at < (int)window_end(o, SIZE, WINDOWS) ? at : -1;
#else
        const int at = o * STRIDE + k * DILATION - PADDING;
        return at < SIZE ? at : -1;
#endif
    }
    // Returns the windows that cover an element. With a dilation some of them skip it.
    static __device__ __forceinline__ Run windows(int at) {
#if ADAPTIVE
        return {(int)first_window(at, SIZE, WINDOWS), (int)end_of_windows(at, SIZE, WINDOWS)};
#else
        const int before = at + PADDING - (KERNEL_SIZE - 1) * DILATION;
        return {before > 0 ? (before + STRIDE - 1) / STRIDE : 0, min((at + PADDING) / STRIDE, WINDOWS - 1) + 1};
#endif
    }
    // Returns the index of an element in the window at o; -1 if the window skips it.
    static __device__ __forceinline__ int element(int o, int at) {
#if ADAPTIVE
        return at - (int)window_start(o, SIZE, WINDOWS);
#else
        const int k = at + PADDING - o * STRIDE;
        return DILATION > 1 && k % DILATION != 0 ? -1 : k / DILATION;
#endif
    }
    // Returns the number of elements of the window at o that count in a mean, with or without those of the padding.
    static __device__ __forceinline__ int size(int o, bool padded) {
#if ADAPTIVE
        return (int)(window_end(o, SIZE, WINDOWS) - window_start(o, SIZE, WINDOWS));
#else
        const int first = o * STRIDE;
        if (padded) return min(first + KERNEL_SIZE, SIZE + 2 * PADDING) - first;
        return min(first + KERNEL_SIZE - PADDING, SIZE) - max(first - PADDING, 0);
#endif
    }
};
typedef Axis<DEPTH, OUT_DEPTH, KERNEL_D, STRIDE_D, PADDING_D, DILATION_D> Planes;
typedef Axis<HEIGHT, OUT_HEIGHT, KERNEL_H, STRIDE_H, PADDING_H, DILATION_H> Rows;
typedef Axis<WIDTH, OUT_WIDTH, KERNEL_W, STRIDE_W, PADDING_W, DILATION_W> Columns;

// The work of a thread: a volume, and an element of it or a position.
struct Site {
    u64 volume;
    int plane, row, column;
};

static __device__ __forceinline__ Site site(Index i, u32 depth, u32 height, u32 width) {
    const int column = (int)(i % width), row = (int)(i / width % height), plane = (int)(i / width / height % depth);
    return {i / width / height / depth, plane, row, column};
}
static __device__ __forceinline__ u64 x_place(const Site &at, int plane, int row, int column) {
    return ((at.volume * DEPTH + plane) * HEIGHT + row) * WIDTH + column;
}
static __device__ __forceinline__ u64 y_place(const Site &at, int plane, int row, int column) {
    return ((at.volume * OUT_DEPTH + plane) * OUT_HEIGHT + row) * OUT_WIDTH + column;
}
