// cuDNN's attention, played by the host: what the descriptors of graphs.h say of queries, keys, values and their mask, computed from the
// definition when the stream gets there. The good engine takes what cuDNN 9.28 says for an H200.
#pragma once

enum { OF_ATTENTION = 41, OF_ATTENTION_GRADIENT = 43, OF_MASK = 44 };

// Heads of a tensor, with their strides.
struct Heads {
    int64_t id = 0, size[4] = {}, lies[4] = {};
    int type = -1;
    bool read(const Backend *tensor) {
        const auto sizes = tensor->all<int64_t>(902), strides = tensor->all<int64_t>(903);
        if (sizes.size() != 4 || strides.size() != 4) return false;
        id = tensor->one<int64_t>(906), type = tensor->one<int>(901);
        std::copy(sizes.begin(), sizes.end(), size), std::copy(strides.begin(), strides.end(), lies);
        return true;
    }
    bool is(int64_t b, int64_t h, int64_t t, int64_t w, int of) const {
        return size[0] == b && size[1] == h && size[2] == t && size[3] == w && type == of;
    }
    int64_t at(int64_t b, int64_t h, int64_t t, int64_t w) const { return b * lies[0] + h * lies[1] + t * lies[2] + w * lies[3]; }
};

struct Attends {
    bool is_gradient;
    Heads q, k, v, o, logs, dO, dq, dk, dv;
    int64_t scale, bound, fill;
    bool has_logs;
    std::map<int64_t, void *> places;
    float factor, cut;
    int shift;
    void *workspace;
    size_t bytes;
};

static bool is_number(const Backend *it, int type) {
    return it->has(908) && it->one<bool>(908) && it->one<int>(901) == type && it->all<int64_t>(902) == std::vector<int64_t>(4, 1);
}

static bool is_attention(const Backend *graph) {
    const int kind = graph->all<Backend *>(801).at(0)->kind;
    return kind == OF_ATTENTION || kind == OF_ATTENTION_GRADIENT;
}
static bool is_mask(const Backend *graph) { return graph->all<Backend *>(801).at(0)->kind == OF_MASK; }

static int describe(const Backend *graph, Attends *to) {
    const auto operations = graph->all<Backend *>(801);
    const Backend *it = operations.at(0);
    to->is_gradient = it->kind == OF_ATTENTION_GRADIENT;
    const int base = to->is_gradient ? 2851 : 2800, mask_at = to->is_gradient ? 2867 : 2811;
    const auto heads = [&](int name, Heads *heads) { return it->has(name) && heads->read(it->one<Backend *>(name)); };
    if (operations.size() != 1 || !heads(base, &to->q) || !heads(base + 1, &to->k) || !heads(base + 2, &to->v) || !heads(base + 3, &to->o))
        return BAD_PARAM;
    to->has_logs = heads(base + 4, &to->logs);
    const int64_t b = to->q.size[0], h = to->q.size[1], t = to->q.size[2], w = to->q.size[3], shared = to->k.size[1];
    const int type = to->q.type;
    if (type == FLOAT || w % 8 || shared < 1 || h % shared) return NOT_SUPPORTED;
    if (!to->k.is(b, shared, t, w, type) || !to->v.is(b, shared, t, w, type) || !to->o.is(b, h, t, w, type)) return SHAPE_MISMATCH;
    if (to->has_logs && !to->logs.is(b, h, t, 1, FLOAT)) return SHAPE_MISMATCH;
    if (to->is_gradient) {
        if (!to->has_logs || !heads(2859, &to->dq) || !heads(2860, &to->dk) || !heads(2861, &to->dv) || !heads(2862, &to->dO)) return BAD_PARAM;
        if (!to->dq.is(b, h, t, w, type) || !to->dk.is(b, shared, t, w, type) || !to->dv.is(b, shared, t, w, type)) return SHAPE_MISMATCH;
        if (!to->dO.is(b, h, t, w, type)) return SHAPE_MISMATCH;
    }
    const Backend *scale = it->one<Backend *>(base + 5), *mask = it->one<Backend *>(mask_at);
    if (!is_number(scale, FLOAT) || !mask->final || !is_mask(mask)) return BAD_PARAM;
    const Backend *band = mask->all<Backend *>(801).at(0);
    const Backend *from = band->one<Backend *>(3000), *masked = band->one<Backend *>(3006);
    const Backend *bound = band->one<Backend *>(3004), *fill = band->one<Backend *>(3005);
    if (from->one<int64_t>(906) != it->one<int64_t>(mask_at + 1) || masked->one<int64_t>(906) != it->one<int64_t>(mask_at + 2)) return BAD_PARAM;
    // A key stays where its place is at most the query's and the bound.
    if (band->one<int>(3007) != 303 || !is_number(bound, 4) || !is_number(fill, FLOAT)) return NOT_SUPPORTED;
    Heads scores;
    if (!scores.read(from) || !scores.is(b, h, t, t, FLOAT) || !from->one<bool>(907) || !masked->one<bool>(907)) return BAD_PARAM;
    to->scale = scale->one<int64_t>(906), to->bound = bound->one<int64_t>(906), to->fill = fill->one<int64_t>(906);
    return SUCCESS;
}

static size_t engine_takes(const Attends &it) {
    if (!it.is_gradient) return 256;
    const int64_t *size = it.q.size;
    const size_t rows = (size_t)(size[0] * size[1] * ((size[2] + 7) / 8 * 8));
    const size_t shared = it.k.size[1] < size[1] ? size[3] : 0;
    return rows * (size[3] + shared + 1) * 4 + 256;
}

static void attend(void *data) {
    Attends &it = *(Attends *)data;
    spoil(it.workspace, it.bytes);
    const int type = it.q.type;
    const auto get = [&](const Heads &heads, int64_t b, int64_t h, int64_t t, int64_t w) {
        return (double)Of::load(heads.type, it.places.at(heads.id), heads.at(b, h, t, w));
    };
    const auto set = [&](const Heads &heads, int64_t b, int64_t h, int64_t t, int64_t w, double value) {
        Of::store(heads.type, it.places.at(heads.id), heads.at(b, h, t, w), (float)value);
    };
    const int64_t B = it.q.size[0], H = it.q.size[1], T = it.q.size[2], W = it.q.size[3], group = H / it.k.size[1];
    std::vector<double> dk((size_t)(T * W)), dv((size_t)(T * W));
    for (int64_t b = 0; b < B; b++)
        for (int64_t h = 0; h < H; h++) {
            if (h % group == 0) std::fill(dk.begin(), dk.end(), 0.0), std::fill(dv.begin(), dv.end(), 0.0);
            for (int64_t i = 0; i < T; i++) {
                std::vector<double> scores;
                double largest = -INFINITY, sum = 0;
                for (int64_t j = 0; j < T; j++) {
                    double score = 0;
                    for (int64_t w = 0; w < W; w++) score += get(it.q, b, h, i, w) * get(it.k, b, h / group, j, w);
                    scores.push_back(i + it.shift >= j ? score * it.factor : it.cut);
                    largest = std::max(largest, scores.back());
                }
                for (double score : scores) sum += exp(score - largest);
                const double log = it.is_gradient ? get(it.logs, b, h, i, 0) : largest + ::log(sum);
                if (!it.is_gradient) {
                    for (int64_t w = 0; w < W; w++) {
                        double value = 0;
                        for (int64_t j = 0; j < T; j++) value += exp(scores[j] - log) * get(it.v, b, h / group, j, w);
                        set(it.o, b, h, i, w, value);
                    }
                    if (it.has_logs) set(it.logs, b, h, i, 0, log);
                    continue;
                }
                double delta = 0;
                for (int64_t w = 0; w < W; w++) delta += get(it.dO, b, h, i, w) * get(it.o, b, h, i, w);
                std::vector<double> dq((size_t)W);
                for (int64_t j = 0; j < T; j++) {
                    const double weight = exp(scores[j] - log);
                    double slope = -delta;
                    for (int64_t w = 0; w < W; w++) slope += get(it.dO, b, h, i, w) * get(it.v, b, h / group, j, w);
                    slope *= weight * it.factor;
                    for (int64_t w = 0; w < W; w++) {
                        dq[w] += slope * get(it.k, b, h / group, j, w);
                        dk[j * W + w] += slope * get(it.q, b, h, i, w);
                        dv[j * W + w] += weight * get(it.dO, b, h, i, w);
                    }
                }
                for (int64_t w = 0; w < W; w++) set(it.dq, b, h, i, w, dq[w]);
            }
            if (!it.is_gradient || h % group != group - 1) continue;
            for (int64_t j = 0; j < T; j++)
                for (int64_t w = 0; w < W; w++) {
                    set(it.dk, b, h / group, j, w, dk[j * W + w]);
                    set(it.dv, b, h / group, j, w, dv[j * W + w]);
                }
        }
    spoil(it.workspace, it.bytes);
    (void)type;
}

static int attend(Handle *with, Backend *plan, Backend *pack) {
    Attends it;
    const int code = describe(plan->graph, &it);
    if (code != SUCCESS) return code;
    const auto ids = pack->all<int64_t>(1000);
    const auto pointers = pack->all<void *>(1001);
    for (size_t index = 0; index < ids.size(); index++) it.places[ids[index]] = pointers.at(index);
    std::vector<const Heads *> needed = {&it.q, &it.k, &it.v, &it.o};
    if (it.has_logs) needed.push_back(&it.logs);
    if (it.is_gradient) needed.insert(needed.end(), {&it.dO, &it.dq, &it.dk, &it.dv});
    for (const Heads *heads : needed) {
        if (!it.places.count(heads->id) || !it.places[heads->id]) return NULL_POINTER;
        if ((uintptr_t)it.places[heads->id] % 16) return MISALIGNED;
    }
    for (int64_t number : {it.scale, it.bound, it.fill})
        if (!it.places.count(number) || !it.places[number]) return NULL_POINTER;
    // Numbers of the host's are read when the call is made.
    it.factor = *(const float *)it.places[it.scale], it.shift = *(const int *)it.places[it.bound], it.cut = *(const float *)it.places[it.fill];
    it.bytes = engine_takes(it);
    it.workspace = pack->has(1003) ? pack->one<void *>(1003) : nullptr;
    if (!it.workspace) return EXECUTION_FAILED;
    std::vector<int> kernel = {1000 + it.is_gradient, it.q.type, it.has_logs};
    for (int axis = 0; axis < 4; axis++) kernel.push_back((int)it.q.size[axis]), kernel.push_back((int)it.k.size[axis]);
    if (!load(kernel)) return INTERNAL_ERROR;
    return enqueue(with, it.is_gradient ? 6 : 5, attend, new Attends(it));
}
