// Entry points of batch_norm_last.cu for statistics and sums that ranks share: see batch_norm.cu for their meaning.
//
// rows [RANKS, PITCH] in f32, `start` the first number of this rank's row; sums, `to` and `from` [2, C] in f32. All others as in batch_norm_last.cu.
//
// No include guard: the tests include it once for each kernel they compile.

// Stores the statistics of the block's channels over this rank's samples.
static __device__ __forceinline__ void send_statistics(const float (&found)[2][COLUMNS], float *row) {
    each_channel([&](Index c, u32 column) { send_statistics(c, found[0][column], found[1][column], row); });
}

#if PARTS == 1

KERNEL(__launch_bounds__(768, 1) batch_norm_rank_statistics)(const real *x, float *rows, u32 start) {
    __shared__ float found[2][COLUMNS];
    share_part(moments(x), found);
    send_statistics(found, rows + start);
}

#else

// Statistics of the rank's own samples, after batch_norm_statistics. Grid: a block for WIDE packs of channels.
KERNEL(__launch_bounds__(384, 2) batch_norm_rank_join)(const float *partial, float *rows, u32 start) {
    __shared__ float found[2][COLUMNS];
    join_parts<true>(partial, found);
    send_statistics(found, rows + start);
}

#endif

KERNEL(__launch_bounds__(384, 2) batch_norm_apply_ranks)
(const real *x, const float *rows, const Norm *weight, const Norm *bias, const real *residual, float *saved, float *running_mean,
 float *running_var, real *y) {
    __shared__ float found[2][COLUMNS];
    each_channel([&](Index c, u32 column) { combine(c, rows, &found[0][column], &found[1][column]); });
    finish(found, x, weight, bias, residual, saved, running_mean, running_var, y);
}

// Stores the gradients of weight and bias, and the sums of the block's channels over this rank's samples.
static __device__ __forceinline__ void
send_sums(const float (&found)[2][COLUMNS], const float *saved, Norm *dweight, Norm *dbias, float *sums) {
    each_channel([&](Index c, u32 column) {
        const float rstd = saved[CHANNELS + c], sum = found[0][column], product = found[1][column];
        parameters(c, rstd, sum, product, dweight, dbias);
        send_sums(c, rstd, sum, product, sums);
    });
}

#if PARTS == 1

KERNEL(__launch_bounds__(768, 1) batch_norm_rank_sums)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const real *y, real *masked, Norm *dweight,
 Norm *dbias, float *to) {
    __shared__ Rule rules[COLUMNS];
    __shared__ float found[2][COLUMNS];
    find_rules(saved, weight, bias, rules);
    share_part(sums(rules, dy, x, y, masked), found);
    send_sums(found, saved, dweight, dbias, to);
}

#else

// Gradients of weight and bias, and the rank's own sums, after batch_norm_sums. Grid: a block for WIDE packs of channels.
KERNEL(__launch_bounds__(384, 2) batch_norm_rank_join_sums)
(const float *saved, const float *partial, Norm *dweight, Norm *dbias, float *to) {
    __shared__ float found[2][COLUMNS];
    join_parts<false>(partial, found);
    send_sums(found, saved, dweight, dbias, to);
}

#endif

KERNEL(__launch_bounds__(384, 2) batch_norm_input_ranks)
(const real *dy, const real *x, const Norm *weight, const Norm *bias, const float *saved, const float *from, real *dx) {
    __shared__ Rule rules[COLUMNS];
    __shared__ Means means[COLUMNS];
    find_rules(saved, weight, bias, rules);
    each_channel([&](Index c, u32 column) { means[column] = means_of_ranks(c, saved[CHANNELS + c], from); });
    input_part(rules, means, dy, x, dx, nullptr);
}
