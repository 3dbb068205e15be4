// y = tanh(slope * weight * (x - mean of the row)) for rows of `width`; a thread for each row.
KERNEL(forward)(const real *x, const real *weight, real *y, float *means) {
    const u64 row = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= batch * rows) return;
    float sum = 0.0f;
    for (u64 i = 0; i < width; i++) sum += widen(x[row * width + i]);
    const float mean = sum / width;
    if (means != nullptr) means[row] = mean;
    for (u64 i = 0; i < width; i++) {
        const float inner = (float)slope * widen(weight[i]) * (widen(x[row * width + i]) - mean);
        narrow(tanhf(inner), &y[row * width + i]);
    }
}

// A thread for each row, and one for each weight.
KERNEL(backward)
(const real *dy, const real *x, const real *weight, const real *y, const float *means, real *dx, real *dweight, float *inner) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < width && dweight != nullptr) {
        float sum = 0.0f;
        for (u64 row = 0; row < batch * rows; row++) {
            const u64 at = row * width + i;
            const float output = widen(y[at]);
            sum += widen(dy[at]) * (1.0f - output * output) * (float)slope * (widen(x[at]) - means[row]);
        }
        narrow(widen(dweight[i]) + sum, &dweight[i]);
    }
    if (i >= batch * rows) return;
    float sum = 0.0f;
    for (u64 k = 0; k < width; k++) {
        const u64 at = i * width + k;
        const float output = widen(y[at]);
        inner[at] = widen(dy[at]) * (1.0f - output * output) * (float)slope * widen(weight[k]);
        sum += inner[at];
    }
    if (dx == nullptr) return;
    const float mean = sum / width;
    for (u64 at = i * width; at < (i + 1) * width; at++) narrow(widen(dx[at]) + inner[at] - mean, &dx[at]);
}
