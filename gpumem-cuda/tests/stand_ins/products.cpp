// cuBLASLt played by the host, for the card of card.cpp: what the functions that a session calls do by NVIDIA's documentation
// and header, with their numbers. Attributes of a wrong size are refused, as the library does.
//
// | variable | what goes wrong |
// | --- | --- |
// | GPUMEM_SIMULATED_REFUSES | epilogues, separated by commas, that there is no algorithm for |
// | GPUMEM_SIMULATED_REFUSES_LATE | those that are refused only when they are launched |
// | GPUMEM_SIMULATED_CRASHES | those that read a wrong address when the card gets there |
// | GPUMEM_SIMULATED_BREAKS=1 | the choice of an algorithm |
// | GPUMEM_SIMULATED_LOADS_EACH_TIME=1 | every launch loads a kernel, which no capture allows |
// | GPUMEM_SIMULATED_SLOW | nothing: there are three algorithms, of which some take longer, see elements.h |
// | GPUMEM_SIMULATED_KEEPS_NAN=1 | nothing: a Relu gives NaN for NaN, where it gives 0 otherwise |
// | GPUMEM_SIMULATED_OLD | the function that does not support the card |
#include "elements.h"
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default"))) int
enum {
    SUCCESS = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, ARCH_MISMATCH = 8, EXECUTION_FAILED = 13, INTERNAL_ERROR = 14,
    NOT_SUPPORTED = 15,
};
enum { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum { RELU = 2, BIAS = 4, BGRAD = 16, GELU = 32, DGELU_ALONE = 64, AUX = 128, BGRADA = 256, BGRADB = 512 };

struct Attributes {
    std::map<int, size_t> sizes;
    std::map<int, std::vector<char>> values;
    int set(int attribute, const void *value, size_t bytes) {
        if (!sizes.count(attribute) || sizes[attribute] != bytes) return INVALID_VALUE;
        const char *from = (const char *)value;
        return values[attribute] = std::vector<char>(from, from + bytes), SUCCESS;
    }
    long long get(int attribute, long long otherwise = 0) const {
        const auto found = values.find(attribute);
        if (found == values.end()) return otherwise;
        long long value = 0;
        memcpy(&value, found->second.data(), found->second.size());
        return value;
    }
};
struct Descriptor : Attributes {
    int compute, scale;
};
// A layout's attributes: how many matrices there are, and elements from one to the next.
struct Layout : Attributes {
    int type;
    uint64_t rows, columns;
    int64_t ld;
};
struct Algorithm {
    uint64_t mark, workspace, number, rest[5];
};
struct Result {
    Algorithm algorithm;
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};
// A function of the card's driver.
template <typename T> static T driver(const char *name) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    return library ? (T)dlsym(library, name) : nullptr;
}

// Whether a variable lists an epilogue.
static bool lists(const char *variable, const Descriptor &it) {
    const char *list = getenv(variable);
    return ("," + std::string(list ? list : "") + ",").find("," + std::to_string(it.get(7, 1)) + ",") != std::string::npos;
}

static const uint64_t MARK = 0xb1a5;
static int handle;
static std::atomic<unsigned long long> handles, objects, enqueued;

// Handles and other objects that are alive, and products that were asked for.
API simulated_products(unsigned long long *counts) {
    return counts[0] = handles, counts[1] = objects, counts[2] = enqueued, SUCCESS;
}

extern "C" size_t cublasLtGetVersion() { return 130000; }
// Of a function that may not support the card.
#define SUPPORTED() if (getenv("GPUMEM_SIMULATED_OLD") && !strcmp(getenv("GPUMEM_SIMULATED_OLD"), __func__)) return ARCH_MISMATCH
API cublasLtCreate(void **made) {
    SUPPORTED();
    if (driver<int (*)(long long)>("simulated_take")(16 << 20)) return INTERNAL_ERROR;
    return handles++, *made = &handle, SUCCESS;
}
API cublasLtDestroy(void *) { return driver<int (*)(long long)>("simulated_take")(-(16 << 20)), handles--, SUCCESS; }
API cublasLtMatmulDescCreate(Descriptor **made, int compute, int scale) {
    if ((compute != 68 && compute != 77) || scale != R_32F) return INVALID_VALUE;
    *made = new Descriptor;
    // Transposition of A and B, epilogue, address of the vector and of the matrix, the matrix's leading dimension.
    (*made)->sizes = {{3, 4}, {4, 4}, {7, 4}, {8, 8}, {11, 8}, {12, 8}};
    return (*made)->compute = compute, (*made)->scale = scale, objects++, SUCCESS;
}
API cublasLtMatmulDescSetAttribute(Descriptor *it, int attribute, const void *value, size_t bytes) {
    return it->set(attribute, value, bytes);
}
API cublasLtMatmulDescDestroy(Descriptor *it) { return delete it, objects--, SUCCESS; }
API cublasLtMatrixLayoutCreate(Layout **made, int type, uint64_t rows, uint64_t columns, int64_t ld) {
    *made = new Layout{{{{5, 4}, {6, 8}}, {}}, type, rows, columns, ld};
    return objects++, SUCCESS;
}
API cublasLtMatrixLayoutSetAttribute(Layout *it, int attribute, const void *value, size_t bytes) {
    return it->set(attribute, value, bytes);
}
API cublasLtMatrixLayoutDestroy(Layout *it) { return delete it, objects--, SUCCESS; }
API cublasLtMatmulPreferenceCreate(Attributes **made) {
    *made = new Attributes;
    // Bytes of workspace, reductions, alignments.
    (*made)->sizes = {{1, 8}, {3, 4}, {5, 4}, {6, 4}, {7, 4}, {8, 4}};
    return objects++, SUCCESS;
}
API cublasLtMatmulPreferenceSetAttribute(Attributes *it, int attribute, const void *value, size_t bytes) {
    return it->set(attribute, value, bytes);
}
API cublasLtMatmulPreferenceDestroy(Attributes *it) { return delete it, objects--, SUCCESS; }

// op(A) is m x k, op(B) k x n, C and D are m x n; leading dimensions are at least a column.
static bool consistent(const Descriptor &it, const Layout &a, const Layout &b, const Layout &d) {
    const bool ta = it.get(3), tb = it.get(4);
    const uint64_t m = ta ? a.columns : a.rows, k = ta ? a.rows : a.columns;
    const uint64_t depth = tb ? b.columns : b.rows, n = tb ? b.rows : b.columns;
    for (const Layout *layout : {&a, &b, &d})
        if (layout->ld < (int64_t)layout->rows || layout->type != d.type) return false;
    const long long epilogue = it.get(7, 1), count = d.get(5, 1);
    if (a.get(5, 1) != count || b.get(5, 1) != count || count < 1) return false;
    // No two results share an element, and nobody has said what each of them adds.
    if (count > 1 && (d.get(6) < d.ld * (int64_t)n || (epilogue & ~(RELU | 1)))) return false;
    if ((epilogue & (BIAS | BGRAD | BGRADA | BGRADB)) && !it.get(8)) return false;
    if ((epilogue & AUX) && (!it.get(11) || it.get(12) % 8 || it.get(12) < (long long)m)) return false;
    return m == d.rows && n == d.columns && k == depth;
}

API cublasLtMatmulAlgoGetHeuristic(void *with, Descriptor *it, Layout *a, Layout *b, Layout *c, Layout *d, Attributes *wishes,
                                   int wanted, Result *results, int *count) {
    SUPPORTED();
    *count = 0;
    if (with != &handle) return NOT_INITIALIZED;
    if (wanted < 1 || c != d || !consistent(*it, *a, *b, *d)) return INVALID_VALUE;
    if (getenv("GPUMEM_SIMULATED_BREAKS")) return INTERNAL_ERROR;
    if (lists("GPUMEM_SIMULATED_REFUSES", *it)) return NOT_SUPPORTED;
    // There are three, if it matters.
    const int known = getenv("GPUMEM_SIMULATED_SLOW") ? 3 : 1;
    for (*count = 0; *count < wanted && *count < known; ++*count) {
        Result &result = results[*count];
        memset(&result, 0, sizeof result);
        result.algorithm.mark = MARK, result.algorithm.number = (uint64_t)*count;
        result.algorithm.workspace = result.workspace = (size_t)wishes->get(1);
    }
    return SUCCESS;
}

// The algorithm's number, and ten times the setting and one. The last two are of 16 bits, the last of all is not known to this version.
API cublasLtMatmulAlgoConfigGetAttribute(const Algorithm *algorithm, int attribute, void *value, size_t bytes, size_t *written) {
    if (algorithm->mark != MARK || attribute > 7 || bytes != (attribute < 7 ? 4 : 2)) return INVALID_VALUE;
    const uint32_t answer = (uint32_t)attribute * 10 + 1 + (uint32_t)algorithm->number;
    return memcpy(value, &answer, bytes), *written = bytes, SUCCESS;
}

typedef Elements<R_32F, R_16BF> Of;

struct Call {
    Descriptor it;
    Layout a, b, d;
    float alpha, beta;
    const void *A, *B, *C;
    void *D, *workspace;
    size_t bytes;
};

static void run(void *data) {
    Call &call = *(Call *)data;
    if (lists("GPUMEM_SIMULATED_CRASHES", call.it)) return (void)driver<int (*)()>("simulated_fail")();
    const bool ta = call.it.get(3), tb = call.it.get(4);
    const long long epilogue = call.it.get(7, 1), aux_ld = call.it.get(12);
    void *vector = (void *)call.it.get(8), *aux = (void *)call.it.get(11);
    const int type = call.d.type;
    const uint64_t m = call.d.rows, n = call.d.columns, k = ta ? call.a.rows : call.a.columns;
    uint64_t sample = 0;
    const auto A = [&](uint64_t i, uint64_t l) {
        return Of::load(type, call.A, sample * call.a.get(6) + (ta ? i * call.a.ld + l : l * call.a.ld + i));
    };
    const auto B = [&](uint64_t l, uint64_t j) {
        return Of::load(type, call.B, sample * call.b.get(6) + (tb ? l * call.b.ld + j : j * call.b.ld + l));
    };
    spoil(call.workspace, call.bytes);
    for (; sample < (uint64_t)call.d.get(5, 1); sample++)
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < m; i++) {
            float sum = 0;
            for (uint64_t l = 0; l < k; l++) sum += A(i, l) * B(l, j);
            float x = call.alpha * sum;
            if (call.beta != 0) x += call.beta * Of::load(type, call.C, sample * call.d.get(6) + j * call.d.ld + i);
            if (epilogue & BIAS) x += Of::load(type, vector, i);
            if (epilogue & RELU) x = x > 0 || (std::isnan(x) && getenv("GPUMEM_SIMULATED_KEEPS_NAN")) ? x : 0;
            if ((epilogue & GELU) && (epilogue & AUX)) Of::store(type, aux, j * aux_ld + i, x);
            if (epilogue & GELU) x = 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
            if (epilogue & DGELU_ALONE) {
                const float z = Of::load(type, aux, j * aux_ld + i), t = tanhf(0.7978845608f * (z + 0.044715f * z * z * z));
                x *= 0.5f * (1 + t) + 0.5f * z * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * z * z);
            }
            Of::store(type, call.D, sample * call.d.get(6) + j * call.d.ld + i, x);
        }
    sample = 0;
    for (uint64_t j = 0; (epilogue & BGRADB) && j < n; j++) {
        float sum = 0;
        for (uint64_t l = 0; l < k; l++) sum += B(l, j);
        Of::store(type, vector, j, sum);
    }
    spoil(call.workspace, call.bytes);
}

API cublasLtMatmul(void *with, Descriptor *it, const float *alpha, const void *A, Layout *a, const void *B, Layout *b,
                   const float *beta, const void *C, Layout *c, void *D, Layout *d, const Algorithm *algorithm,
                   void *workspace, size_t bytes, void *stream) {
    SUPPORTED();
    if (with != &handle) return NOT_INITIALIZED;
    if (c != d || !consistent(*it, *a, *b, *d) || algorithm->mark != MARK) return INVALID_VALUE;
    if (bytes < algorithm->workspace || (uintptr_t)workspace % 256 || (bytes && !workspace)) return INVALID_VALUE;
    // The card's queue. Work that is captured into a graph runs any number of times, so what it works on is never freed.
    if (lists("GPUMEM_SIMULATED_REFUSES_LATE", *it)) return NOT_SUPPORTED;
    const auto enqueue = driver<int (*)(void *, void (*)(void *), void *)>("simulated_enqueue");
    if (!enqueue) return EXECUTION_FAILED;
    // The library loads a kernel when it is first launched.
    static Kernels<uint64_t> kernels;
    const std::vector<uint64_t> kernel = {(uint64_t)it->compute, (uint64_t)d->type,        (uint64_t)it->get(3), (uint64_t)it->get(4),
                                          (uint64_t)it->get(7, 1), d->rows, d->columns, it->get(3) ? a->rows : a->columns,
                                          (uint64_t)d->get(5, 1)};
    if ((!kernels.has(kernel) || getenv("GPUMEM_SIMULATED_LOADS_EACH_TIME")) && driver<int (*)()>("simulated_load")()) return INTERNAL_ERROR;
    kernels.add(kernel);
    enqueued++;
    for (int left = delay((int)algorithm->number); left > 0; left--)
        if (enqueue(stream, nothing, nullptr)) return EXECUTION_FAILED;
    return enqueue(stream, run, new Call{*it, *a, *b, *d, *alpha, *beta, A, B, C, D, workspace, bytes}) ? EXECUTION_FAILED : SUCCESS;
}
