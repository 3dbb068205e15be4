// 3-D max pooling and its gradient: see volumes.cuh for sizes and windows.
//
// SAVES  1 if the places of the maxima are saved
// BYTES  1 if a place is a byte, 0 if it is a word
//
// forward:  y[o] = max over k of x[at(o, k)], places[o] = number k of the maximum in its window, counted row by row and plane by plane.
//           A NaN is larger than anything.
// backward: dx[i] = sum of dy[o] over the windows whose place is i. It is gathered, so that every element is summed by one thread, in the
//           same order in every run
#include "base.cuh"
#include "real.cuh"
#include "volumes.cuh"

#if BYTES
typedef unsigned char Place;
#else
typedef u32 Place;
#endif

KERNEL(max_pool3d_forward)(const real *x, real *y, Place *places) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const Site o = site(i, OUT_DEPTH, OUT_HEIGHT, OUT_WIDTH);
    float best = -__int_as_float(0x7f800000);
    // No place yet: the first element is taken even if it is minus infinity.
    u32 found = 0xffffffffu;
    for (int j = 0; j < KERNEL_D; j++) {
        const int plane = Planes::at(o.plane, j);
        if (plane < 0) continue;
        for (int k = 0; k < KERNEL_H; k++) {
            const int row = Rows::at(o.row, k);
            if (row < 0) continue;
            for (int l = 0; l < KERNEL_W; l++) {
                const int column = Columns::at(o.column, l);
                if (column < 0) continue;
                const float value = widen(x[x_place(o, plane, row, column)]);
                if (value > best || value != value || found == 0xffffffffu) {
                    best = value;
                    found = (u32)((j * KERNEL_H + k) * KERNEL_W + l);
                }
            }
        }
    }
    narrow(best, &y[i]);
#if SAVES
    places[i] = (Place)found;
#endif
}

KERNEL(max_pool3d_backward)(const real *dy, const Place *places, real *dx) {
    const Index i = (Index)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= COUNT) return;
    const Site at = site(i, DEPTH, HEIGHT, WIDTH);
    const Run planes = Planes::windows(at.plane), rows = Rows::windows(at.row), columns = Columns::windows(at.column);
    float sum = 0.0f;
    for (int n = planes.first; n < planes.end; n++) {
        const int j = Planes::element(n, at.plane);
        if (j < 0) continue;
        for (int p = rows.first; p < rows.end; p++) {
            const int k = Rows::element(p, at.row);
            if (k < 0) continue;
            for (int q = columns.first; q < columns.end; q++) {
                const int l = Columns::element(q, at.column);
                const u64 o = y_place(at, n, p, q);
                if (l >= 0 && places[o] == (Place)((j * KERNEL_H + k) * KERNEL_W + l)) sum += widen(dy[o]);
            }
        }
    }
#if ADD
    sum += widen(dx[i]);
#endif
    narrow(sum, &dx[i]);
}
