// Transposed 2-D convolution and its gradients: a convolution with input and output exchanged. Constants, formulas and grid are those of
// correlation.cuh, with y as images and x as positions.
//
// x [B, G O, P, Q], weight [G O, C, R, S], bias [G C], y [B, G C, H, W]
//
// forward:         y = scatter(x, weight) + bias
// backward data:   dx = gather(dy, weight)
// backward filter: dweight = weigh(dy, x)
// backward bias:   dbias = sums of dy over samples and pixels
#include "base.cuh"
#include "real.cuh"
#include "correlation.cuh"

#if PASS == SCATTER
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution_transposed_forward)
(const real *__restrict__ x, const real *__restrict__ weight, const real *__restrict__ bias, real *y) {
    scatter(x, weight, bias, y);
}
#elif PASS == GATHER
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution_transposed_backward_data)
(const real *__restrict__ dy, const real *__restrict__ weight, real *dx) { gather(dy, weight, nullptr, dx); }
#elif PASS == WEIGH
KERNEL(__launch_bounds__(TILE_THREADS, TILE_RESIDENT) convolution_transposed_backward_filter)
(const real *__restrict__ x, const real *__restrict__ dy, float *__restrict__ partial, Total *dweight) {
    weigh(dy, x, partial, dweight);
}
#elif PASS == SUM_PARTS
KERNEL(__launch_bounds__(256) convolution_transposed_backward_filter_sum)(const float *partial, Total *dweight) {
    __shared__ float scratch[256];
    sum_parts<WEIGHTS>(partial, dweight, scratch);
}
#elif PASS == SUM_CHANNEL_PARTS
KERNEL(__launch_bounds__(256) convolution_transposed_backward_bias_sum)(const float *partial, Total *dbias) {
    __shared__ float scratch[256];
    sum_parts<(u64)(GROUPS)*Images::CHANNELS>(partial, dbias, scratch);
}
#elif PARTS > 1
KERNEL(__launch_bounds__(512) convolution_transposed_backward_bias)(const real *__restrict__ dy, float *partial) {
    __shared__ ChannelScratch scratch;
    channel_sums<Images>(dy, scratch, partial);
}
#else
KERNEL(__launch_bounds__(512) convolution_transposed_backward_bias)(const real *__restrict__ dy, Total *dbias) {
    __shared__ ChannelScratch scratch;
    channel_sums<Images>(dy, scratch, dbias);
}
#endif
