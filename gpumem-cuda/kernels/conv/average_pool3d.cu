// Mean over windows of a volume, and its gradient: see volumes.cuh for sizes and windows.
//
// PADDED  1 if zeros of the padding count in the mean
//
// size[o] is the number of elements that the window at o covers, or with PADDED that of all within DEPTH + 2 * PADDING_D times HEIGHT + 2 *
// PADDING_H times WIDTH + 2 * PADDING_W: elements beyond that, which the last window has if the number of windows was rounded up, never count.
//
// forward:  y[o] = sum over the window of x / size[o]
// backward: dx[i] = sum over the windows that cover i of dy[o] / size[o], gathered by one thread for each element
#include "base.cuh"
#include "real.cuh"
#include "volumes.cuh"

static __device__ __forceinline__ float size_of(int plane, int row, int column) {
    const int planes = Planes::size(plane, PADDED), rows = Rows::size(row, PADDED), columns = Columns::size(column, PADDED);
    // A window with padding only sums to 0, so that the divisor does not matter.
    return planes > 0 && rows > 0 && columns > 0 ? (float)planes * (float)rows * (float)columns : 1.0f;
}

KERNEL(average_pool3d_forward)(const real *x, real *y) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const Site o = site(i, OUT_DEPTH, OUT_HEIGHT, OUT_WIDTH);
    float sum = 0.0f;
    for (int j = 0; j < KERNEL_D; j++) {
        const int plane = Planes::at(o.plane, j);
        if (plane < 0) continue;
        for (int k = 0; k < KERNEL_H; k++) {
            const int row = Rows::at(o.row, k);
            if (row < 0) continue;
            for (int l = 0; l < KERNEL_W; l++) {
                const int column = Columns::at(o.column, l);
                if (column >= 0) sum += widen(x[x_place(o, plane, row, column)]);
            }
        }
    }
    narrow(sum / size_of(o.plane, o.row, o.column), &y[i]);
}

// Mean over large windows. Grid: a warp for each window, whose lanes take elements in turns.
KERNEL(average_pool3d_forward_large)(const real *x, real *y) {
    const Index i = ((Index)blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (i >= COUNT) return;
    const Site o = site(i, OUT_DEPTH, OUT_HEIGHT, OUT_WIDTH);
    const int lane = threadIdx.x % 32;
    float sum = 0.0f;
    for (int e = lane; e < KERNEL_D * KERNEL_H * KERNEL_W; e += 32) {
        const int plane = Planes::at(o.plane, e / (KERNEL_H * KERNEL_W)), row = Rows::at(o.row, e / KERNEL_W % KERNEL_H);
        const int column = Columns::at(o.column, e % KERNEL_W);
        if (plane >= 0 && row >= 0 && column >= 0) sum += widen(x[x_place(o, plane, row, column)]);
    }
    sum = warp_sum(sum);
    if (lane == 0) narrow(sum / size_of(o.plane, o.row, o.column), &y[i]);
}

KERNEL(average_pool3d_backward)(const real *dy, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const Site at = site(i, DEPTH, HEIGHT, WIDTH);
    const Run planes = Planes::windows(at.plane), rows = Rows::windows(at.row), columns = Columns::windows(at.column);
    float sum = 0.0f;
    for (int n = planes.first; n < planes.end; n++)
        for (int p = rows.first; p < rows.end; p++)
            for (int q = columns.first; q < columns.end; q++) sum += widen(dy[y_place(at, n, p, q)]) / size_of(n, p, q);
#if ADD
    sum += widen(dx[i]);
#endif
    narrow(sum, &dx[i]);
}
