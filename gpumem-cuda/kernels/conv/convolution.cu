// 2-D convolution and its gradients. Constants, formulas and grid are those of correlation.cuh, with x as images and y as positions.
//
// x [B, G C, H, W], weight [G O, C, R, S], bias [G O], y [B, G O, P, Q]
//
// forward:         y = gather(x, weight) + bias
// backward data:   dx = scatter(dy, weight)
// backward filter: dweight = weigh(x, dy)
// backward bias:   dbias = sums of dy over samples and positions
#include "base.cuh"
#include "real.cuh"
#include "correlation.cuh"

#if PASS == GATHER
KERNEL(__launch_bounds__(TILE_THREADS, RESIDENT) convolution_forward)
(const real *__restrict__ x, const real *__restrict__ weight, const real *__restrict__ bias, real *y) {
    gather(x, weight, bias, y);
}
#elif PASS == SCATTER
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution_backward_data)
(const real *__restrict__ dy, const real *__restrict__ weight, real *dx) { scatter(dy, weight, nullptr, dx); }
#elif PASS == WEIGH
KERNEL(__launch_bounds__(TILE_THREADS, RESIDENT) convolution_backward_filter)
(const real *__restrict__ x, const real *__restrict__ dy, float *__restrict__ partial, Total *dweight) {
    weigh(x, dy, partial, dweight);
}
#elif PASS == SUM_PARTS
KERNEL(__launch_bounds__(256) convolution_backward_filter_sum)(const float *partial, Total *dweight) {
    __shared__ float scratch[256];
    sum_parts<WEIGHTS>(partial, dweight, scratch);
}
#elif PASS == SUM_CHANNEL_PARTS
KERNEL(__launch_bounds__(256) convolution_backward_bias_sum)(const float *partial, Total *dbias) {
    __shared__ float scratch[256];
    sum_parts<(u64)(GROUPS)*Positions::CHANNELS>(partial, dbias, scratch);
}
#elif PARTS > 1
KERNEL(__launch_bounds__(512) convolution_backward_bias)(const real *__restrict__ dy, float *partial) {
    __shared__ ChannelScratch scratch;
    channel_sums<Positions>(dy, scratch, partial);
}
#else
KERNEL(__launch_bounds__(512) convolution_backward_bias)(const real *__restrict__ dy, Total *dbias) {
    __shared__ ChannelScratch scratch;
    channel_sums<Positions>(dy, scratch, dbias);
}
#endif
