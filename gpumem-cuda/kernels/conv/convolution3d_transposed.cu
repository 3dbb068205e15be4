// Transposed 3-D convolution and its gradients: a convolution with input and output exchanged. Constants, formulas and grid are those of
// correlation3d.cuh, with y as images and x as positions.
//
// x [B, G O, N, P, Q], weight [G O, C, T, R, S], bias [G C], y [B, G C, D, H, W]
//
// forward:         y = scatter(x, weight) + bias
// backward data:   dx = gather(dy, weight)
// backward filter: dweight = weigh(dy, x)
// backward bias:   dbias = sums of dy over samples and pixels
#include "base.cuh"
#include "real.cuh"
#include "correlation3d.cuh"

#if PASS == SCATTER
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution3d_transposed_forward)
(const real *__restrict__ x, const real *__restrict__ weight, const real *__restrict__ bias, real *y) {
    scatter(x, weight, bias, y);
}
#elif PASS == GATHER
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution3d_transposed_backward_data)
(const real *__restrict__ dy, const real *__restrict__ weight, real *dx) { gather(dy, weight, nullptr, dx); }
#elif PASS == WEIGH
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution3d_transposed_backward_filter)
(const real *__restrict__ x, const real *__restrict__ dy, float *__restrict__ partial, real *dweight) {
    weigh(dy, x, partial, dweight);
}
#elif PASS == SUM_PARTS
KERNEL(__launch_bounds__(256) convolution3d_transposed_backward_filter_sum)(const float *partial, real *dweight) {
    __shared__ float scratch[256];
    sum_parts(partial, dweight, scratch);
}
#else
KERNEL(__launch_bounds__(512) convolution3d_transposed_backward_bias)(const real *__restrict__ dy, real *dbias) {
    __shared__ float scratch[32];
    channel_sums<GROUPS * IMAGE_CHANNELS, IMAGE_VOLUME>(dy, scratch, dbias);
}
#endif
