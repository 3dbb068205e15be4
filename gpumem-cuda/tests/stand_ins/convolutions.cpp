// cuDNN played by the host, for the card of card.cpp: what the functions that a session calls do by NVIDIA's documentation and
// header, with their numbers. Images, weights and gradients are read with the strides that the descriptors say, and every sum
// is computed from the definition of a convolution when the stream gets there.
//
// The heuristics name algorithms that must not be taken: one that fails, two that need more scratch memory than anybody has,
// one of which says so only when it is asked again, and first of all one whose results depend on the run.
//
// | variable | what goes wrong |
// | --- | --- |
// | GPUMEM_SIMULATED_CUDNN_REFUSES | what there is no algorithm for, separated by commas: forward, data, filter, attention, attention gradient, recurrence, room for it, and only when they are launched recurrence tried and recurrence gradient; property: it is a version without device properties; fused (a bias and what follows in one pass) is refused only when it is launched |
// | GPUMEM_SIMULATED_CUDNN_CRASHES | the same names: what reads a wrong address when the card gets there |
// | GPUMEM_SIMULATED_CUDNN_OLD | functions that do not support the card |
// | GPUMEM_SIMULATED_CUDNN_BREAKS=1 | the choice of an algorithm |
// | GPUMEM_SIMULATED_SLOW | nothing: some algorithms and engines take longer, see elements.h |
//
// graphs.h has the functions for convolutions in 16 bits, recurrences.h those for recurrent layers.
#include "elements.h"
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int
enum {
    SUCCESS = 0, NOT_INITIALIZED = 1001, BAD_PARAM = 2000, NULL_POINTER = 2002, MISALIGNED = 2003,
    SHAPE_MISMATCH = 2008, NOT_SUPPORTED = 3000, ARCH_MISMATCH = 3007, INTERNAL_ERROR = 4000, EXECUTION_FAILED = 5000,
};
enum { FLOAT = 0, HALF = 2, BFLOAT16 = 9 };
enum { DEFAULT_MATH = 0, TENSOR_OP_MATH = 1, FMA_MATH = 3 };
enum { RELU = 1, IDENTITY = 5 };
enum { FORWARD, DATA, FILTER };

struct Tensor {
    int type = -1;
    int size[4] = {};
    int64_t count() const { return (int64_t)size[0] * size[1] * size[2] * size[3]; }
    bool operator==(const Tensor &other) const { return type == other.type && memcmp(size, other.size, sizeof size) == 0; }
};
struct Filter : Tensor {};
struct Windows {
    int pad[2], stride[2], dilation[2], mode = -1, sums = -1, groups = 1, math = DEFAULT_MATH;
};
struct Following {
    int mode = -1;
};
struct Handle {
    void *stream = nullptr;
};
// As in the header: the three kinds differ in the names of their algorithms only.
struct Perf {
    int algorithm, status;
    float time;
    size_t memory;
    int determinism, math, reserved[3];
};

static std::atomic<unsigned long long> handles, objects, enqueued[8];

// Handles and other objects that are alive; forward passes, those with a bias in the same pass, biases added in a pass of
// their own, data gradients and filter gradients that were asked for.
API simulated_convolutions(unsigned long long *counts) {
    counts[0] = handles, counts[1] = objects;
    for (int i = 0; i < 5; i++) counts[2 + i] = enqueued[i];
    return SUCCESS;
}

// Passes of attention and their gradients that were asked for.
API simulated_attentions(unsigned long long *counts) { return counts[0] = enqueued[5], counts[1] = enqueued[6], SUCCESS; }

static bool lists(const char *variable, const char *what) {
    const char *list = getenv(variable);
    return ("," + std::string(list ? list : "") + ",").find("," + std::string(what) + ",") != std::string::npos;
}
static bool refuses(const char *what) { return lists("GPUMEM_SIMULATED_CUDNN_REFUSES", what); }
static const char *const NAMES[] = {"forward", "data", "filter"};

// A function of the card's driver.
template <typename T> static T driver(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library ? (T)dlsym(library, name) : nullptr;
}

extern "C" size_t cudnnGetVersion() { return 91002; }
extern "C" size_t cudnnGetCudartVersion() { return 13000; }
// Of a function that may not support the card.
#define SUPPORTED() if (lists("GPUMEM_SIMULATED_CUDNN_OLD", __func__)) return ARCH_MISMATCH
API cudnnCreate(Handle **made) {
    SUPPORTED();
    if (driver<int (*)(long long)>("simulated_take")(16 << 20)) return INTERNAL_ERROR;
    return handles++, *made = new Handle, SUCCESS;
}
API cudnnDestroy(Handle *it) { return driver<int (*)(long long)>("simulated_take")(-(16 << 20)), handles--, delete it, SUCCESS; }
API cudnnSetStream(Handle *it, void *stream) { return it->stream = stream, SUCCESS; }

API cudnnCreateTensorDescriptor(Tensor **made) { return objects++, *made = new Tensor, SUCCESS; }
API cudnnDestroyTensorDescriptor(Tensor *it) { return objects--, delete it, SUCCESS; }
static int set(Tensor &it, int type, int a, int b, int c, int d) {
    if ((type != FLOAT && type != HALF && type != BFLOAT16) || a < 1 || b < 1 || c < 1 || d < 1) return BAD_PARAM;
    it.type = type;
    const int size[] = {a, b, c, d};
    return memcpy(it.size, size, sizeof size), SUCCESS;
}
// Format 0 is NCHW.
API cudnnSetTensor4dDescriptor(Tensor *it, int format, int type, int n, int c, int h, int w) {
    return format == 0 ? set(*it, type, n, c, h, w) : NOT_SUPPORTED;
}
API cudnnCreateFilterDescriptor(Filter **made) { return objects++, *made = new Filter, SUCCESS; }
API cudnnDestroyFilterDescriptor(Filter *it) { return objects--, delete it, SUCCESS; }
API cudnnSetFilter4dDescriptor(Filter *it, int type, int format, int k, int c, int h, int w) {
    return format == 0 ? set(*it, type, k, c, h, w) : NOT_SUPPORTED;
}
API cudnnCreateConvolutionDescriptor(Windows **made) { return objects++, *made = new Windows, SUCCESS; }
API cudnnDestroyConvolutionDescriptor(Windows *it) { return objects--, delete it, SUCCESS; }
API cudnnSetConvolution2dDescriptor(Windows *it, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
                                    int dilation_w, int mode, int sums) {
    if (pad_h < 0 || pad_w < 0 || stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1) return BAD_PARAM;
    it->pad[0] = pad_h, it->pad[1] = pad_w, it->stride[0] = stride_h, it->stride[1] = stride_w;
    it->dilation[0] = dilation_h, it->dilation[1] = dilation_w, it->mode = mode, it->sums = sums;
    return SUCCESS;
}
API cudnnSetConvolutionGroupCount(Windows *it, int groups) { return it->groups = groups, groups < 1 ? BAD_PARAM : SUCCESS; }
API cudnnSetConvolutionMathType(Windows *it, int math) { return it->math = math, math < 0 || math > 3 ? BAD_PARAM : SUCCESS; }
API cudnnCreateActivationDescriptor(Following **made) { return objects++, *made = new Following, SUCCESS; }
API cudnnDestroyActivationDescriptor(Following *it) { return objects--, delete it, SUCCESS; }
API cudnnSetActivationDescriptor(Following *it, int mode, int, double) { return it->mode = mode, SUCCESS; }

API cudnnGetConvolution2dForwardOutputDim(const Windows *it, const Tensor *x, const Filter *w, int *n, int *c, int *h, int *wide) {
    if (x->size[1] != w->size[1] * it->groups || w->size[0] % it->groups) return SHAPE_MISMATCH;
    int out[2];
    for (int axis = 0; axis < 2; axis++) {
        const int reach = (w->size[2 + axis] - 1) * it->dilation[axis] + 1;
        const int room = x->size[2 + axis] + 2 * it->pad[axis] - reach;
        if (room < 0) return BAD_PARAM;
        out[axis] = room / it->stride[axis] + 1;
    }
    return *n = x->size[0], *c = w->size[0], *h = out[0], *wide = out[1], SUCCESS;
}
// The descriptors describe one convolution, not mirrored, with sums of f32.
static int consistent(const Windows &it, const Tensor &x, const Filter &w, const Tensor &y) {
    Tensor expected;
    expected.type = x.type;
    int *size = expected.size;
    const int code = cudnnGetConvolution2dForwardOutputDim(&it, &x, &w, size, size + 1, size + 2, size + 3);
    if (code != SUCCESS) return code;
    if (!(expected == y)) return SHAPE_MISMATCH;
    return it.mode == 1 && it.sums == FLOAT && w.type == x.type ? SUCCESS : BAD_PARAM;
}

// What an algorithm takes, by its number: the first gives other bits in each run, the second fails, the third and the fourth
// need too much. The others are good; the numbers are real ones of all three kinds.
static const int ALGORITHMS[] = {3, 5, 2, 4, 1, 0};
static size_t memory_of(int algorithm, int math, const Filter &w) {
    switch (algorithm) {
        case 2:
        case 4: return (size_t)1 << 40;
        // The fast one works on a transformed copy of the weight.
        case 1: return (size_t)w.count() * (math == TENSOR_OP_MATH ? 2 : 4);
        default: return 0;
    }
}
static int ranked(Handle *with, int pass, const Windows &it, const Tensor &x, const Filter &w, const Tensor &y, int wanted,
                  int *count, Perf *results) {
    *count = 0;
    if (!with) return NOT_INITIALIZED;
    if (getenv("GPUMEM_SIMULATED_CUDNN_BREAKS")) return INTERNAL_ERROR;
    const int code = consistent(it, x, w, y);
    if (code != SUCCESS) return code;
    if (refuses(NAMES[pass])) return NOT_SUPPORTED;
    for (int algorithm : ALGORITHMS) {
        if (*count == wanted) break;
        Perf &perf = results[(*count)++];
        memset(&perf, 0, sizeof perf);
        perf.algorithm = algorithm;
        perf.status = algorithm == 5 ? NOT_SUPPORTED : SUCCESS;
        perf.time = -1;
        perf.determinism = algorithm != 3;
        // The fast one does without tensor cores, and means that.
        perf.math = algorithm == 1 && x.type != FLOAT ? (int)DEFAULT_MATH : it.math;
        perf.memory = algorithm == 4 ? 0 : memory_of(algorithm, perf.math, w);
    }
    return SUCCESS;
}
API cudnnGetConvolutionForwardAlgorithm_v7(Handle *with, Tensor *x, Filter *w, Windows *it, Tensor *y, int wanted, int *count,
                                           Perf *results) {
    SUPPORTED();
    return ranked(with, FORWARD, *it, *x, *w, *y, wanted, count, results);
}
API cudnnGetConvolutionBackwardDataAlgorithm_v7(Handle *with, Filter *w, Tensor *dy, Windows *it, Tensor *dx, int wanted,
                                                int *count, Perf *results) {
    SUPPORTED();
    return ranked(with, DATA, *it, *dx, *w, *dy, wanted, count, results);
}
API cudnnGetConvolutionBackwardFilterAlgorithm_v7(Handle *with, Tensor *x, Tensor *dy, Windows *it, Filter *dw, int wanted,
                                                  int *count, Perf *results) {
    SUPPORTED();
    return ranked(with, FILTER, *it, *x, *dw, *dy, wanted, count, results);
}
static int workspace(const Windows &it, const Tensor &x, const Filter &w, const Tensor &y, int algorithm, size_t *bytes) {
    const int code = consistent(it, x, w, y);
    return *bytes = memory_of(algorithm, it.math, w), code;
}
API cudnnGetConvolutionForwardWorkspaceSize(Handle *, Tensor *x, Filter *w, Windows *it, Tensor *y, int algorithm, size_t *bytes) {
    return workspace(*it, *x, *w, *y, algorithm, bytes);
}
API cudnnGetConvolutionBackwardDataWorkspaceSize(Handle *, Filter *w, Tensor *dy, Windows *it, Tensor *dx, int algorithm,
                                                 size_t *bytes) {
    return workspace(*it, *dx, *w, *dy, algorithm, bytes);
}
API cudnnGetConvolutionBackwardFilterWorkspaceSize(Handle *, Tensor *x, Tensor *dy, Windows *it, Filter *dw, int algorithm,
                                                   size_t *bytes) {
    return workspace(*it, *x, *dw, *dy, algorithm, bytes);
}

typedef Elements<FLOAT, BFLOAT16> Of;

// A convolution as it was asked for. Descriptors are copied: they are read when the call is made.
struct Call {
    int pass;
    Windows it;
    Tensor x, y;
    Filter w;
    float alpha, beta;
    void *X, *W, *Y;
    const void *bias;
    int following;
    void *workspace;
    size_t bytes;
    // Elements between neighbours along each axis; 0 where they follow from the sizes.
    int64_t x_lies[4] = {}, w_lies[4] = {}, y_lies[4] = {};
};

// Where an element is.
static int64_t at(const Tensor &it, const int64_t *lies, int a, int b, int c, int d) {
    if (!lies[0]) return (((int64_t)a * it.size[1] + b) * it.size[2] + c) * it.size[3] + d;
    return a * lies[0] + b * lies[1] + c * lies[2] + d * lies[3];
}

static void run(void *data) {
    const Call &call = *(Call *)data;
    if (lists("GPUMEM_SIMULATED_CUDNN_CRASHES", NAMES[call.pass])) return (void)driver<int (*)()>("simulated_fail")();
    const Windows &it = call.it;
    const int type = call.x.type;
    spoil(call.workspace, call.bytes);
    const Tensor &written = call.pass == FORWARD ? call.y : call.pass == DATA ? call.x : call.w;
    void *to = call.pass == FORWARD ? call.Y : call.pass == DATA ? call.X : call.W;
    std::vector<double> sums(written.count());
    const int *xs = call.x.size, *ws = call.w.size, *ys = call.y.size;
    const int of_group = ws[0] / it.groups;
    for (int n = 0; n < ys[0]; n++)
        for (int k = 0; k < ys[1]; k++)
            for (int p = 0; p < ys[2]; p++)
                for (int q = 0; q < ys[3]; q++)
                    for (int c = 0; c < ws[1]; c++)
                        for (int r = 0; r < ws[2]; r++)
                            for (int s = 0; s < ws[3]; s++) {
                                const int row = p * it.stride[0] - it.pad[0] + r * it.dilation[0];
                                const int column = q * it.stride[1] - it.pad[1] + s * it.dilation[1];
                                if (row < 0 || row >= xs[2] || column < 0 || column >= xs[3]) continue;
                                const int channel = k / of_group * ws[1] + c;
                                const int64_t i = at(call.x, call.x_lies, n, channel, row, column);
                                const int64_t j = at(call.w, call.w_lies, k, c, r, s);
                                const int64_t o = at(call.y, call.y_lies, n, k, p, q);
                                if (call.pass == FORWARD) sums[o] += (double)Of::load(type, call.X, i) * Of::load(type, call.W, j);
                                if (call.pass == DATA) sums[i] += (double)Of::load(type, call.Y, o) * Of::load(type, call.W, j);
                                if (call.pass == FILTER) sums[j] += (double)Of::load(type, call.Y, o) * Of::load(type, call.X, i);
                            }
    for (int64_t index = 0; index < written.count(); index++) {
        float value = (float)(call.alpha * sums[index]);
        if (call.beta != 0) value += call.beta * Of::load(type, to, index);
        const int64_t *lies = call.pass == DATA ? call.x_lies : call.y_lies;
        const bool is_last = lies[0] && lies[1] == 1;
        const int *size = written.size;
        if (call.bias) value += Of::load(type, call.bias, index / (is_last ? 1 : (int64_t)size[2] * size[3]) % size[1]);
        if (call.following == RELU && value < 0) value = 0;
        Of::store(type, to, index, value);
    }
    spoil(call.workspace, call.bytes);
}

// The card's queue. Work that is captured into a graph runs any number of times, so what it works on is never freed.
static int enqueue(Handle *with, int kind, void (*work)(void *), void *data, int algorithm = -1) {
    const auto to = driver<int (*)(void *, void (*)(void *), void *)>("simulated_enqueue");
    if (!to || !with->stream) return EXECUTION_FAILED;
    for (int left = delay(algorithm); left > 0; left--)
        if (to(with->stream, nothing, nullptr)) return EXECUTION_FAILED;
    enqueued[kind]++;
    return to(with->stream, work, data) ? EXECUTION_FAILED : SUCCESS;
}

// The library loads a kernel when it is first launched.
static bool load(const std::vector<int> &kernel) {
    static Kernels<int> kernels;
    if (kernels.has(kernel)) return true;
    if (driver<int (*)()>("simulated_load")()) return false;
    return kernels.add(kernel), true;
}

static int start(Handle *with, int algorithm, const Call &call) {
    const int code = consistent(call.it, call.x, call.w, call.y);
    if (code != SUCCESS) return code;
    if (!call.X || !call.W || !call.Y) return NULL_POINTER;
    if (algorithm == 2 || algorithm == 5) return NOT_SUPPORTED;
    const size_t needed = memory_of(algorithm, call.it.math, call.w);
    // The library would write beyond it.
    if (call.bytes < needed || (needed && !call.workspace)) return EXECUTION_FAILED;
    if ((uintptr_t)call.workspace % 256) return MISALIGNED;
    // Nobody asked for less than f32.
    if (call.x.type == FLOAT && call.it.math != FMA_MATH) return EXECUTION_FAILED;
    if (call.x.type != FLOAT && algorithm == 1 && call.it.math != DEFAULT_MATH) return EXECUTION_FAILED;
    std::vector<int> kernel = {call.pass, algorithm, call.it.math, call.x.type, call.bias != nullptr, call.following};
    for (const Tensor *it : {&call.x, (const Tensor *)&call.w, &call.y}) kernel.insert(kernel.end(), it->size, it->size + 4);
    if (!load(kernel)) return INTERNAL_ERROR;
    const int kind = call.pass == FORWARD ? (call.bias ? 1 : 0) : call.pass == DATA ? 3 : 4;
    return enqueue(with, kind, run, new Call(call), algorithm);
}
API cudnnConvolutionForward(Handle *with, const float *alpha, Tensor *x, void *X, Filter *w, void *W, Windows *it, int algorithm,
                            void *workspace, size_t bytes, const float *beta, Tensor *y, void *Y) {
    SUPPORTED();
    return start(with, algorithm, {FORWARD, *it, *x, *y, *w, *alpha, *beta, X, W, Y, nullptr, IDENTITY, workspace, bytes});
}
API cudnnConvolutionBiasActivationForward(Handle *with, const float *alpha1, Tensor *x, void *X, Filter *w, void *W, Windows *it,
                                          int algorithm, void *workspace, size_t bytes, const float *alpha2, Tensor *z, void *Z,
                                          Tensor *bias, const void *B, Following *following, Tensor *y, void *Y) {
    SUPPORTED();
    if (!B || !Z) return NULL_POINTER;
    if (!(*z == *y) || Z != Y || bias->size[1] != y->size[1] || bias->count() != y->size[1]) return SHAPE_MISMATCH;
    if (following->mode != RELU && following->mode != IDENTITY) return NOT_SUPPORTED;
    // Without an activation this is the only one.
    if (following->mode == IDENTITY && algorithm != 1) return BAD_PARAM;
    if (refuses("fused")) return NOT_SUPPORTED;
    return start(with, algorithm, {FORWARD, *it, *x, *y, *w, *alpha1, *alpha2, X, W, Y, B, following->mode, workspace, bytes});
}
API cudnnConvolutionBackwardData(Handle *with, const float *alpha, Filter *w, void *W, Tensor *dy, void *DY, Windows *it,
                                 int algorithm, void *workspace, size_t bytes, const float *beta, Tensor *dx, void *DX) {
    SUPPORTED();
    return start(with, algorithm, {DATA, *it, *dx, *dy, *w, *alpha, *beta, DX, W, DY, nullptr, IDENTITY, workspace, bytes});
}
API cudnnConvolutionBackwardFilter(Handle *with, const float *alpha, Tensor *x, void *X, Tensor *dy, void *DY, Windows *it,
                                   int algorithm, void *workspace, size_t bytes, const float *beta, Filter *dw, void *DW) {
    SUPPORTED();
    return start(with, algorithm, {FILTER, *it, *x, *dy, *dw, *alpha, *beta, X, DW, DY, nullptr, IDENTITY, workspace, bytes});
}

struct Addition {
    Tensor a, c;
    float alpha, beta;
    const void *A;
    void *C;
};
static void add(void *data) {
    const Addition &it = *(Addition *)data;
    const int64_t pixels = (int64_t)it.c.size[2] * it.c.size[3];
    for (int64_t index = 0; index < it.c.count(); index++) {
        const float bias = Of::load(it.a.type, it.A, index / pixels % it.c.size[1]);
        Of::store(it.c.type, it.C, index, it.alpha * bias + it.beta * Of::load(it.c.type, it.C, index));
    }
}
API cudnnAddTensor(Handle *with, const float *alpha, Tensor *a, const void *A, const float *beta, Tensor *c, void *C) {
    if (!A || !C) return NULL_POINTER;
    if (a->size[1] != c->size[1] || a->count() != c->size[1] || a->type != c->type) return SHAPE_MISMATCH;
    if (!load({c->type, c->size[0], c->size[1], c->size[2], c->size[3]})) return INTERNAL_ERROR;
    return enqueue(with, 2, add, new Addition{*a, *c, *alpha, *beta, A, C});
}

#include "graphs.h"
#include "recurrences.h"
