// 3-D convolution and its gradients. Constants, formulas and grid are those of correlation3d.cuh, with x as images and y as positions.
//
// x [B, G C, D, H, W], weight [G O, C, T, R, S], bias [G O], y [B, G O, N, P, Q]
//
// forward:         y = gather(x, weight) + bias
// backward data:   dx = scatter(dy, weight)
// backward filter: dweight = weigh(x, dy)
// backward bias:   dbias = sums of dy over samples and positions
#include "base.cuh"
#include "real.cuh"
#include "correlation3d.cuh"

#if PASS == GATHER
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution3d_forward)
(const real *__restrict__ x, const real *__restrict__ weight, const real *__restrict__ bias, real *y) {
    gather(x, weight, bias, y);
}
#elif PASS == SCATTER
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution3d_backward_data)
(const real *__restrict__ dy, const real *__restrict__ weight, real *dx) { scatter(dy, weight, nullptr, dx); }
#elif PASS == WEIGH
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution3d_backward_filter)
(const real *__restrict__ x, const real *__restrict__ dy, float *__restrict__ partial, real *dweight) {
    weigh(x, dy, partial, dweight);
}
#elif PASS == SUM_PARTS
KERNEL(__launch_bounds__(256) convolution3d_backward_filter_sum)(const float *partial, real *dweight) {
    __shared__ float scratch[256];
    sum_parts(partial, dweight, scratch);
}
#else
KERNEL(__launch_bounds__(512) convolution3d_backward_bias)(const real *__restrict__ dy, real *dbias) {
    __shared__ float scratch[32];
    channel_sums<GROUPS * POSITION_CHANNELS, POSITION_VOLUME>(dy, scratch, dbias);
}
#endif
