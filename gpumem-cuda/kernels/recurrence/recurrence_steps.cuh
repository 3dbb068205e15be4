// A time step of a recurrent layer: sums over the units of the previous time step, and the cell's functions of them.
//
// The constants are those of recurrence.cuh, and
// SAMPLES    samples that a block works on: 16 or 32
//
// A block of 256 threads has 8 units of SAMPLES samples. Warps divide the terms of each sum, 64 of them at a time, and add up their results, always
// in the same order.
//
// No include guard: the tests include it once for each kernel they compile.
#include "recurrence.cuh"

constexpr int UNITS = 8, TERMS = 64, PITCH = TERMS + 4;
// Warps that divide the terms, terms of each, and products of a thread: one unit, SPAN samples.
constexpr int PARTS = 8 / (SAMPLES / 16), SLICE = TERMS / PARTS, SPAN = 4;

union __align__(16) Rooms {
    struct {
        float samples[SAMPLES][PITCH];
        float weights[GATES * UNITS][PITCH];
    } operands;
    float partial[PARTS][GATES][SAMPLES][UNITS];
};

// Outputs or gradients of a time step for some samples: element k of sample `row` of the block.
template <class Element> struct Rows {
    // The first sample's elements, and elements from one sample to the next.
    const Element *from;
    u64 pitch;
    u32 samples, length;

    __device__ __forceinline__ float at(u32 row, u32 k) const {
        return row < samples && k < length ? widen(from[row * pitch + k]) : 0.0f;
    }
};

// Rows of a weight [gates, COUNT, LENGTH], for the block's units and each gate.
template <u32 COUNT, u32 LENGTH> struct Forth {
    static constexpr bool ALONG_TERMS = true;
    const real *weight;
    u32 unit;

    __device__ __forceinline__ float at(u32 gate, u32 own, u32 k) const {
        const u32 j = unit + own;
        return j < COUNT && k < LENGTH ? widen(weight[((u64)gate * COUNT + j) * LENGTH + k]) : 0.0f;
    }
};

// Columns of a weight [LENGTH, COUNT], for the block's units.
template <u32 COUNT, u32 LENGTH> struct Back {
    static constexpr bool ALONG_TERMS = false;
    const real *weight;
    u32 unit;

    __device__ __forceinline__ float at(u32, u32 own, u32 k) const {
        const u32 j = unit + own;
        return j < COUNT && k < LENGTH ? widen(weight[(u64)k * COUNT + j]) : 0.0f;
    }
};

// Registers of a thread for the next terms.
template <int OUT> struct Held {
    static constexpr int OF_SAMPLES = SAMPLES * TERMS / 256, OF_WEIGHTS = OUT * UNITS * TERMS / 256;
    float samples[OF_SAMPLES], weights[OF_WEIGHTS];
};

template <int OUT, class Right> static __device__ __forceinline__ void weight_spot(int i, u32 *row, u32 *k) {
    const u32 e = threadIdx.x + 256 * i;
    *row = Right::ALONG_TERMS ? e / TERMS : e / (UNITS * TERMS) * UNITS + e % UNITS;
    *k = Right::ALONG_TERMS ? e % TERMS : e / UNITS % TERMS;
}

template <int OUT, class Left, class Right>
static __device__ __forceinline__ void fetch(const Left &left, const Right &right, u32 first, Held<OUT> &held) {
#pragma unroll
    for (int i = 0; i < Held<OUT>::OF_SAMPLES; i++) {
        const u32 e = threadIdx.x + 256 * i;
        held.samples[i] = left.at(e / TERMS, first + e % TERMS);
    }
#pragma unroll
    for (int i = 0; i < Held<OUT>::OF_WEIGHTS; i++) {
        u32 row, k;
        weight_spot<OUT, Right>(i, &row, &k);
        held.weights[i] = right.at(row / UNITS, row % UNITS, first + k);
    }
}

template <int OUT, class Right> static __device__ __forceinline__ void put(const Held<OUT> &held, Rooms &rooms) {
#pragma unroll
    for (int i = 0; i < Held<OUT>::OF_SAMPLES; i++) {
        const u32 e = threadIdx.x + 256 * i;
        rooms.operands.samples[e / TERMS][e % TERMS] = held.samples[i];
    }
#pragma unroll
    for (int i = 0; i < Held<OUT>::OF_WEIGHTS; i++) {
        u32 row, k;
        weight_spot<OUT, Right>(i, &row, &k);
        rooms.operands.weights[row][k] = held.weights[i];
    }
}

static __device__ __forceinline__ float dot(const float4 &a, const float4 &b, float sum) {
    return sum + a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

// Computes OUT sums over `length` terms for the thread's unit and sample, see `OwnOf`.
template <int OUT, class Left, class Right>
static __device__ __forceinline__ void multiply(const Left &left, const Right &right, u32 length, Rooms &rooms, float *out) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, unit = lane % UNITS;
    const u32 sample = warp / PARTS * 16 + lane / UNITS, first = warp % PARTS * SLICE;
    float sums[OUT][SPAN] = {};
    Held<OUT> held;
    fetch(left, right, 0, held);
    for (u32 done = 0; done < length; done += TERMS) {
        __syncthreads();
        put<OUT, Right>(held, rooms);
        __syncthreads();
        if (done + TERMS < length) fetch(left, right, done + TERMS, held);
#pragma unroll
        for (int k = 0; k < SLICE; k += 4) {
            float4 samples[SPAN];
#pragma unroll
            for (int i = 0; i < SPAN; i++) samples[i] = *(const float4 *)&rooms.operands.samples[sample + 4 * i][first + k];
#pragma unroll
            for (int o = 0; o < OUT; o++) {
                const float4 weights = *(const float4 *)&rooms.operands.weights[o * UNITS + unit][first + k];
#pragma unroll
                for (int i = 0; i < SPAN; i++) sums[o][i] = dot(samples[i], weights, sums[o][i]);
            }
        }
    }
    __syncthreads();
#pragma unroll
    for (int o = 0; o < OUT; o++)
#pragma unroll
        for (int i = 0; i < SPAN; i++) rooms.partial[warp % PARTS][o][sample + 4 * i][unit] = sums[o][i];
    __syncthreads();
    const u32 own = threadIdx.x / UNITS % SAMPLES;
#pragma unroll
    for (int o = 0; o < OUT; o++) {
        out[o] = 0.0f;
#pragma unroll
        for (int part = 0; part < PARTS; part++) out[o] += rooms.partial[part][o][own][threadIdx.x % UNITS];
    }
}

// The work of a thread after the sums: a unit of a sample, or an output. There are COUNT of them, so it may not exist.
template <u32 COUNT> struct OwnOf {
    u32 direction, first_unit, unit;
    u64 first_sample, sample;
    bool exists;

    __device__ __forceinline__ OwnOf() {
        direction = blockIdx.z;
        first_unit = blockIdx.x * UNITS;
        unit = first_unit + threadIdx.x % UNITS;
        first_sample = (u64)blockIdx.y * SAMPLES;
        sample = first_sample + threadIdx.x / UNITS;
        exists = threadIdx.x < UNITS * SAMPLES && unit < COUNT && sample < BATCH;
    }
    // Returns the number of samples of the block.
    __device__ __forceinline__ u32 samples() const {
        return BATCH - first_sample < SAMPLES ? (u32)(BATCH - first_sample) : SAMPLES;
    }
    // Return the places of a time step's gates of a sample, and of its output.
    static __device__ __forceinline__ u64 gates(u64 sample, u32 t) { return (sample * STEPS + t) * WIDTH; }
    __device__ __forceinline__ u64 output(u64 sample, u32 t) const {
        return (sample * STEPS + t) * FEATURES + direction * OUTPUTS;
    }
    // Returns the output of a time step for the block's samples.
    __device__ __forceinline__ Rows<real> outputs(const real *y, u32 t) const {
        return {y + output(first_sample, t), (u64)STEPS * FEATURES, samples(), OUTPUTS};
    }
};

typedef OwnOf<HIDDEN> Own;

static __device__ __forceinline__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Returns a unit's output at a time step, from p and the sums. Computes `gates` after their functions, and updates c of an LSTM. `last` is the
// previous output, for a GRU.
static __device__ __forceinline__ float step_of(const float arrived[GATES], const float s[GATES], float gates[GATES], float *c, float last) {
#if CELL == LSTM
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) {
        const float sum = arrived[gate] + s[gate];
        gates[gate] = gate == 2 ? tanhf(sum) : sigmoid(sum);
    }
    *c = gates[1] * *c + gates[0] * gates[2];
    return gates[3] * tanhf(*c);
#elif CELL == GRU
    gates[0] = sigmoid(arrived[0] + s[0]);
    gates[1] = sigmoid(arrived[1] + s[1]);
    gates[2] = tanhf(arrived[2] + gates[0] * s[2]);
    return gates[2] + gates[1] * (last - gates[2]);
#elif CELL == PLAIN_TANH
    return gates[0] = tanhf(arrived[0] + s[0]);
#else
    const float sum = arrived[0] + s[0];
    // NaN stays NaN.
    return gates[0] = sum <= 0.0f ? 0.0f : sum;
#endif
}
