// Attention mask of shifted windows (Swin): 0 for pairs of positions in one region of the map, else HIDDEN.
//
// COUNT    elements of the output
// HEIGHT, WIDTH, ROWS, COLUMNS  sizes of the map, and of a window, which divide those
// DOWN, ACROSS  rows and columns by which the map was rolled up and to the left
//
// y is [windows, T, T] with T = ROWS * COLUMNS: positions of a window, row-major, as queries and as keys.
#include "base.cuh"
#include "real.cuh"

constexpr u32 POSITIONS = ROWS * COLUMNS, WINDOWS_ACROSS = WIDTH / COLUMNS;

// Returns the region of a position along an axis.
static __device__ __forceinline__ int region(u32 position, u32 size, u32 window, u32 shift) {
    if (shift == 0 || position < size - window) return 0;
    return position < size - shift ? 1 : 2;
}

static __device__ __forceinline__ int region_of(u64 window, u32 position) {
    const u32 row = (u32)(window / WINDOWS_ACROSS) * ROWS + position / COLUMNS;
    const u32 column = (u32)(window % WINDOWS_ACROSS) * COLUMNS + position % COLUMNS;
    return region(row, HEIGHT, ROWS, DOWN) * 3 + region(column, WIDTH, COLUMNS, ACROSS);
}

// Grid: blocks of 256 threads, an element each.
KERNEL(window_mask)(real *y) {
    const u64 index = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (index >= COUNT) return;
    const u32 key = (u32)(index % POSITIONS), query = (u32)(index / POSITIONS % POSITIONS);
    const u64 window = index / ((u64)POSITIONS * POSITIONS);
    narrow(region_of(window, key) == region_of(window, query) ? 0.0f : (float)(HIDDEN), &y[index]);
}
