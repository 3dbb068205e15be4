// y = weight * (a + b), where a and b are the halves of the last axis.
KERNEL(forward)(const real *x, const real *weight, real *y) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * rows * features / 2) return;
    const u64 row = i / (features / 2), column = i % (features / 2);
    const real *a = x + row * features;
    narrow(widen(weight[column]) * (widen(a[column]) + widen(a[features / 2 + column])), &y[i]);
}

// A thread for each element of x; the first of them sum the gradient of a weight as well.
KERNEL(backward)(const real *dy, const real *x, const real *weight, real *dx, real *dweight) {
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x, half = features / 2;
    if (i >= batch * rows * features) return;
    const u64 row = i / features, column = i % half;
    if (dx != nullptr) narrow(widen(dx[i]) + widen(weight[column]) * widen(dy[row * half + column]), &dx[i]);
    if (dweight == nullptr || i >= half) return;
    float sum = 0.0f;
    for (u64 r = 0; r < batch * rows; r++) {
        sum += (widen(x[r * features + i]) + widen(x[r * features + half + i])) * widen(dy[r * half + i]);
    }
    narrow(widen(dweight[i]) + sum, &dweight[i]);
}
