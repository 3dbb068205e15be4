// Elementwise functions of one number, named as in gpumem_core::program::functions. Each is a struct with its value, and its derivative from the
// saved element k: output, input or nothing, as in its row there. If nothing is saved, k is 0.
//
// No include guard: the tests include it once for each kernel they compile.

// Parameters of a function, in the order of its row.
struct Arguments {
    double at[2];
};

struct Identity {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return x; }
    static __device__ __forceinline__ float slope(float, const Arguments &) { return 1.0f; }
};

// fmaxf is not used, because NaN must stay NaN.
struct Relu {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return x < 0.0f ? 0.0f : x; }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        return k > 0.0f ? 1.0f : k == k ? 0.0f : k;
    }
};

struct Relu6 {
    static __device__ __forceinline__ float value(float x, const Arguments &) {
        return x < 0.0f ? 0.0f : x > 6.0f ? 6.0f : x;
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        return k > 0.0f && k < 6.0f ? 1.0f : k == k ? 0.0f : k;
    }
};

// Parameter: slope below 0.
struct LeakyRelu {
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) {
        return x < 0.0f ? (float)arguments.at[0] * x : x;
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &arguments) {
        return k > 0.0f ? 1.0f : k == k ? (float)arguments.at[0] : k;
    }
};

// 1 + erff(..) is not used, because it has no digits left if erff is near -1.
struct Gelu {
    // Returns the distribution function of the normal distribution.
    static __device__ __forceinline__ float share(float x) { return 0.5f * erfcf(x * -0.70710678118654752f); }
    static __device__ __forceinline__ float value(float x, const Arguments &) { return x * share(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        return share(k) + k * 0.39894228040143268f * expf(-0.5f * k * k);
    }
};

struct Sigmoid {
    // Returns 1 / (1 + exp(-x)), even if exp(-x) is infinite: a small result is a quotient of small numbers.
    static __device__ __forceinline__ float plain(float x) {
        const float small = expf(-fabsf(x));
        return (x < 0.0f ? small : 1.0f) / (1.0f + small);
    }
    static __device__ __forceinline__ float value(float x, const Arguments &) { return plain(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return k * (1.0f - k); }
};

// (1 + tanh(u)) / 2 is computed as the sigmoid of 2 u, which does not cancel for negative u.
struct GeluTanh {
    static __device__ __forceinline__ float gate(float x) {
        return Sigmoid::plain(1.59576912160573071f * (x + 0.044715f * x * x * x));
    }
    static __device__ __forceinline__ float value(float x, const Arguments &) { return x * gate(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        const float s = gate(k);
        const float slope = s * (1.0f - s);
        // Far from 0 the slope is 0, and the square infinite.
        return slope == 0.0f ? s : s + k * slope * 1.59576912160573071f * (1.0f + 0.134145f * k * k);
    }
};

struct Silu {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return x * Sigmoid::plain(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        const float s = Sigmoid::plain(k);
        return s * (1.0f + k * (1.0f - s));
    }
};

struct Exp {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return expf(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return k; }
};

// Parameters: factor and shift.
struct Affine {
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) {
        return (float)arguments.at[0] * x + (float)arguments.at[1];
    }
    static __device__ __forceinline__ float slope(float, const Arguments &arguments) { return (float)arguments.at[0]; }
};

struct Tanh {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return tanhf(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return 1.0f - k * k; }
};

struct Hardswish {
    static __device__ __forceinline__ float value(float x, const Arguments &) {
        return x * (Relu6::value(x + 3.0f, Arguments()) / 6.0f);
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        return k <= -3.0f ? 0.0f : k >= 3.0f ? 1.0f : k / 3.0f + 0.5f;
    }
};

struct Hardsigmoid {
    static __device__ __forceinline__ float value(float x, const Arguments &) {
        return Relu6::value(x + 3.0f, Arguments()) / 6.0f;
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        return k > 0.0f && k < 1.0f ? 1.0f / 6.0f : k == k ? 0.0f : k;
    }
};

// Parameter: factor below 0.
struct Elu {
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) {
        return x > 0.0f ? x : (float)arguments.at[0] * expm1f(x);
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &arguments) {
        return k > 0.0f ? 1.0f : (float)arguments.at[0] * expf(k);
    }
};

// Overwrites its input, so the slope is computed from the output.
struct EluInPlace : Elu {
    static __device__ __forceinline__ float slope(float k, const Arguments &arguments) {
        return k > 0.0f ? 1.0f : k + (float)arguments.at[0];
    }
};

// Parameter: the limit below 0, without its sign.
struct Celu {
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) {
        const float alpha = (float)arguments.at[0];
        return x > 0.0f ? x : alpha * expm1f(x / alpha);
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &arguments) {
        return k > 0.0f ? 1.0f : expf(k / (float)arguments.at[0]);
    }
};

struct CeluInPlace : Celu {
    static __device__ __forceinline__ float slope(float k, const Arguments &arguments) {
        return k > 0.0f ? 1.0f : k / (float)arguments.at[0] + 1.0f;
    }
};

struct Selu {
    static __device__ __forceinline__ float value(float x, const Arguments &) {
        return x > 0.0f ? 1.0507009873554805f * x : 1.7580993408473766f * expm1f(x);
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        return k > 0.0f ? 1.0507009873554805f : 1.7580993408473766f * expf(k);
    }
};

struct SeluInPlace : Selu {
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        return k > 0.0f ? 1.0507009873554805f : k + 1.7580993408473766f;
    }
};

// Parameters: factor of x, and the product above which the result is x itself.
struct Softplus {
    // Returns log(1 + exp(x)), without large intermediate numbers. NaN stays NaN.
    static __device__ __forceinline__ float plain(float x) {
        return (x < 0.0f ? 0.0f : x) + log1pf(expf(-fabsf(x)));
    }
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) {
        const float scaled = (float)arguments.at[0] * x;
        return scaled > (float)arguments.at[1] ? x : plain(scaled) / (float)arguments.at[0];
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &arguments) {
        const float scaled = (float)arguments.at[0] * k;
        return scaled > (float)arguments.at[1] ? 1.0f : Sigmoid::plain(scaled);
    }
};

// Softplus without a threshold.
struct StepSize {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return Softplus::plain(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return -expm1f(-k); }
};

struct Hardtanh {
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) {
        const float least = (float)arguments.at[0], most = (float)arguments.at[1];
        return x < least ? least : x > most ? most : x;
    }
    // The saved output was rounded for memory, so the bounds are rounded too before they are compared.
    static __device__ __forceinline__ float slope(float k, const Arguments &arguments) {
        real least, most;
        narrow((float)arguments.at[0], &least);
        narrow((float)arguments.at[1], &most);
        return k > widen(least) && k < widen(most) ? 1.0f : k == k ? 0.0f : k;
    }
};

// NaN stays NaN, in both values and both slopes.
struct Hardshrink {
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) {
        return fabsf(x) <= (float)arguments.at[0] ? 0.0f : x;
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        return k == 0.0f ? 0.0f : k == k ? 1.0f : k;
    }
};

struct Softshrink : Hardshrink {
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) {
        const float width = (float)arguments.at[0];
        return fabsf(x) <= width ? 0.0f : x > 0.0f ? x - width : x + width;
    }
};

// For small numbers the first terms of its series, since the difference would leave no digits.
struct Tanhshrink {
    static __device__ __forceinline__ float value(float x, const Arguments &) {
        const float square = x * x;
        return fabsf(x) < 0.1f ? x * square * (1.0f / 3.0f - square * (2.0f / 15.0f - square * (17.0f / 315.0f))) : x - tanhf(x);
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return tanhf(k) * tanhf(k); }
};

struct Sin {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return sinf(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return cosf(k); }
};

struct Cos {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return cosf(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return -sinf(k); }
};

struct Softsign {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return x / (1.0f + fabsf(x)); }
    // Divides twice, because the square of a large number would overflow.
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        const float share = 1.0f / (1.0f + fabsf(k));
        return share * share;
    }
};

struct Mish {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return x * tanhf(Softplus::plain(x)); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        const float t = tanhf(Softplus::plain(k));
        return t + k * (1.0f - t * t) * Sigmoid::plain(k);
    }
};

struct QuickGelu {
    static __device__ __forceinline__ float value(float x, const Arguments &) {
        return x * Sigmoid::plain(1.702f * x);
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        const float s = Sigmoid::plain(1.702f * k);
        return s * (1.0f + 1.702f * k * (1.0f - s));
    }
};

struct LogSigmoid {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return -Softplus::plain(-x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return Sigmoid::plain(-k); }
};

struct Abs {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return fabsf(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) {
        return k > 0.0f ? 1.0f : k < 0.0f ? -1.0f : 0.0f * k;
    }
};

struct Sqrt {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return sqrtf(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return 0.5f / k; }
};

struct Log {
    static __device__ __forceinline__ float value(float x, const Arguments &) { return logf(x); }
    static __device__ __forceinline__ float slope(float k, const Arguments &) { return 1.0f / k; }
};

// Parameter: the exponent.
struct Pow {
    static __device__ __forceinline__ float value(float x, const Arguments &arguments) {
        return powf(x, (float)arguments.at[0]);
    }
    static __device__ __forceinline__ float slope(float k, const Arguments &arguments) {
        // The function is constant, even if k is 0.
        if (arguments.at[0] == 0.0) return 0.0f;
        return (float)arguments.at[0] * powf(k, (float)(arguments.at[0] - 1.0));
    }
};
