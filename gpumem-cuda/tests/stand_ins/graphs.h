// cuDNN's backend, played by the host: descriptors with attributes, and graphs of a convolution with its bias and a Relu;
// attention.h has those of attention.
//
// An engine that is named must not be taken before it is looked at: the first gives other bits in each run, the second rounds its
// operands, of the third no plan can be made, the fourth has no tensor cores. The good one takes what cuDNN 9.28 says for an
// H200: 131 bytes where channels are last and whole 16 bytes, and copies of all three tensors otherwise.
#pragma once
#include <map>

enum { HANDLE_TYPE = 0, DATA_TYPE = 1, BOOLEAN = 2, INT64 = 3, FLOAT_TYPE = 4, VOID_PTR = 6, DESCRIPTOR = 15, NOTE = 11, CHAR = 24 };
enum { POINTWISE = 0, CONVOLUTION = 1, ENGINE = 2, SETTINGS = 3, HEURISTIC = 4, PLAN = 5, KNOB = 7, OF_FORWARD = 10, OF_FILTER = 11, OF_DATA = 12,
       OF_POINTWISE = 13, GRAPH = 15, PACK = 16, TENSOR = 17, DEVICE = 38 };
enum { TENSOR_CORE = 0, DOWN_CONVERT = 1, NONDETERMINISTIC = 4 };

struct Backend {
    int kind;
    bool final = false;
    // Of engines and their settings.
    int engine = -1;
    Backend *graph = nullptr;
    std::map<int, std::pair<int, std::vector<char>>> attributes;

    bool has(int name) const { return attributes.count(name); }
    template <typename T> std::vector<T> all(int name) const {
        const std::vector<char> &bytes = attributes.at(name).second;
        return std::vector<T>((const T *)bytes.data(), (const T *)(bytes.data() + bytes.size()));
    }
    template <typename T> T one(int name) const { return all<T>(name).at(0); }
};

static size_t size_of(int type) {
    switch (type) {
        case INT64: case VOID_PTR: case DESCRIPTOR: case HANDLE_TYPE: case 5: return 8;
        case BOOLEAN: case CHAR: return 1;
        default: return 4;
    }
}

API cudnnBackendCreateDescriptor(int kind, Backend **made) { return objects++, (*made = new Backend)->kind = kind, SUCCESS; }
API cudnnBackendDestroyDescriptor(Backend *it) { return objects--, delete it, SUCCESS; }
API cudnnBackendSetAttribute(Backend *it, int name, int type, int64_t count, const void *values) {
    if (it->final || count < 1) return BAD_PARAM;
    const char *from = (const char *)values;
    it->attributes[name] = {type, std::vector<char>(from, from + count * size_of(type))};
    return SUCCESS;
}

// A graph as it was described.
struct Described {
    Call call;
    int64_t bias;
    int64_t ids[3];
    bool channels_last, is_packed;
};

static void fill(const Backend *tensor, Tensor *to, int64_t *strides) {
    const auto sizes = tensor->all<int64_t>(902), given = tensor->all<int64_t>(903);
    to->type = tensor->one<int>(901);
    for (int axis = 0; axis < 4; axis++) to->size[axis] = (int)sizes.at(axis), strides[axis] = given.at(axis);
}

// Reads a graph: a convolution, and what follows it through tensors that do not exist.
static int describe(const Backend *graph, Described *to) {
    const auto operations = graph->all<Backend *>(801);
    const Backend *first = operations.at(0);
    const int pass = first->kind == OF_FORWARD ? FORWARD : first->kind == OF_DATA ? DATA : FILTER;
    const int names = pass == FORWARD ? 700 : pass == DATA ? 706 : 712;
    const Backend *windows = first->one<Backend *>(names + 2);
    const Backend *w = first->one<Backend *>(pass == FORWARD ? 703 : pass == DATA ? 709 : 715);
    const Backend *x = first->one<Backend *>(pass == FORWARD ? 704 : pass == DATA ? 710 : 716);
    const Backend *y = first->one<Backend *>(pass == FORWARD ? 705 : pass == DATA ? 711 : 717);
    Call &call = to->call;
    call = Call();
    call.pass = pass, call.alpha = first->one<float>(names), call.beta = first->one<float>(names + 1);
    call.following = IDENTITY;
    if (windows->one<int>(100) != FLOAT || windows->one<int>(101) != 1) return BAD_PARAM;
    for (int axis = 0; axis < 2; axis++) {
        call.it.dilation[axis] = (int)windows->all<int64_t>(102).at(axis), call.it.stride[axis] = (int)windows->all<int64_t>(103).at(axis);
        call.it.pad[axis] = (int)windows->all<int64_t>(105).at(axis);
    }
    if (windows->all<int64_t>(104) != windows->all<int64_t>(105)) return NOT_SUPPORTED;
    call.it.mode = 1, call.it.sums = FLOAT;
    to->bias = 0;
    // What the convolution writes, and then what is made of that.
    const Backend *&last = pass == DATA ? x : pass == FILTER ? w : y;
    for (size_t index = 1; index < operations.size(); index++) {
        const Backend *next = operations[index];
        if (next->kind != OF_POINTWISE || next->one<Backend *>(751) != last || !last->one<bool>(907)) return NOT_SUPPORTED;
        const int mode = next->one<Backend *>(750)->one<int>(0);
        if (mode == 0) to->bias = next->one<Backend *>(752)->one<int64_t>(906);
        else if (mode == 100) call.following = RELU;
        else return NOT_SUPPORTED;
        last = next->one<Backend *>(753);
    }
    if (last->one<bool>(907)) return BAD_PARAM;
    fill(x, &call.x, call.x_lies), fill(w, &call.w, call.w_lies), fill(y, &call.y, call.y_lies);
    call.it.groups = call.x.size[1] / call.w.size[1];
    to->ids[0] = x->one<int64_t>(906), to->ids[1] = w->one<int64_t>(906), to->ids[2] = y->one<int64_t>(906);
    const auto are_last = [](const Tensor &it, const int64_t *lies) { return lies[1] == 1 || it.size[1] == 1; };
    to->channels_last = are_last(call.x, call.x_lies) && are_last(call.w, call.w_lies) && are_last(call.y, call.y_lies);
    to->is_packed = call.x.size[1] % 8 == 0 && call.y.size[1] % 8 == 0;
    return consistent(call.it, call.x, call.w, call.y);
}

static size_t engine_takes(const Described &it) {
    const bool is_fast = it.channels_last && it.is_packed;
    return is_fast ? (it.call.pass == FILTER ? 0 : 131) : 2 * (size_t)(it.call.x.count() + it.call.w.count() + it.call.y.count());
}

static const int GOOD = 4;

#include "attention.h"

API cudnnBackendFinalize(Backend *it) {
    if (it->final) return BAD_PARAM;
    Described described;
    Attends attends;
    if (it->kind == GRAPH) {
        SUPPORTED();
        if (!it->has(800)) return BAD_PARAM;
        const int code = is_mask(it) ? SUCCESS : is_attention(it) ? describe(it, &attends) : describe(it, &described);
        if (code != SUCCESS) return code;
    }
    if (it->kind == TENSOR && (!it->has(900) || !it->has(901) || !it->has(902) || !it->has(903) || !it->has(906))) return BAD_PARAM;
    // Versions before 9.8 have no device property.
    if (it->kind == DEVICE && (refuses("property") || !it->has(2701))) return NOT_SUPPORTED;
    if (it->kind == HEURISTIC) {
        if (getenv("GPUMEM_SIMULATED_CUDNN_BREAKS")) return INTERNAL_ERROR;
        it->graph = it->one<Backend *>(201);
        if (!it->graph->final) return BAD_PARAM;
        if (is_attention(it->graph)) {
            describe(it->graph, &attends);
            if (refuses(attends.is_gradient ? "attention gradient" : "attention")) return NOT_SUPPORTED;
        } else {
            describe(it->graph, &described);
            if (refuses(NAMES[described.call.pass])) return NOT_SUPPORTED;
        }
    }
    if (it->kind == PLAN) {
        const Backend *settings = it->one<Backend *>(401);
        if (!it->has(400)) return BAD_PARAM;
        it->engine = settings->engine, it->graph = settings->graph;
        // Of the third there is no plan.
        if (it->engine == 2) return NOT_SUPPORTED;
    }
    return it->final = true, SUCCESS;
}

API cudnnBackendGetAttribute(Backend *it, int name, int, int64_t room, int64_t *count, void *values) {
    if (it->kind == HEURISTIC && name == 202) {
        if (!it->final || room < GOOD + 1) return BAD_PARAM;
        // The fallback of the second mode is the same.
        for (int engine = 0; engine <= GOOD; engine++) {
            Backend *settings = ((Backend **)values)[engine];
            settings->engine = engine, settings->graph = it->graph, settings->final = true;
        }
        return *count = GOOD + 1, SUCCESS;
    }
    if (it->kind == SETTINGS && name == 300) {
        Backend *engine = *(Backend **)values;
        return engine->engine = it->engine, engine->final = true, *count = 1, SUCCESS;
    }
    // One setting, its kind and value.
    if (it->kind == SETTINGS && name == 302) {
        Backend *knob = *(Backend **)values;
        return knob->engine = it->engine, knob->final = true, *count = 1, SUCCESS;
    }
    if (it->kind == KNOB && name == 600) return *(int *)values = 14, *count = 1, SUCCESS;
    if (it->kind == KNOB && name == 601) return *(int64_t *)values = 100 + it->engine, *count = 1, SUCCESS;
    if (it->kind == DEVICE && name == 2702) {
        static const char TEXT[] = "{\"deviceVer\":800,\"multiProcessorCount\":4}";
        if (!it->final) return BAD_PARAM;
        *count = sizeof TEXT;
        if (room >= (int64_t)sizeof TEXT) memcpy(values, TEXT, sizeof TEXT);
        return SUCCESS;
    }
    if (it->kind == ENGINE && name == 1301) return *(int64_t *)values = it->engine, *count = 1, SUCCESS;
    if (it->kind == ENGINE && name == 1303) {
        static const std::vector<int> NOTES[] = {{TENSOR_CORE, NONDETERMINISTIC}, {TENSOR_CORE, DOWN_CONVERT}, {TENSOR_CORE}, {}, {TENSOR_CORE}};
        const std::vector<int> &notes = NOTES[it->engine];
        if (room < (int64_t)notes.size()) return BAD_PARAM;
        memcpy(values, notes.data(), notes.size() * sizeof(int));
        return *count = (int64_t)notes.size(), SUCCESS;
    }
    if (it->kind == PLAN && name == 402) {
        Described described;
        Attends attends;
        if (is_attention(it->graph)) {
            describe(it->graph, &attends);
            return *(int64_t *)values = (int64_t)engine_takes(attends), *count = 1, SUCCESS;
        }
        describe(it->graph, &described);
        return *(int64_t *)values = it->engine == GOOD ? (int64_t)engine_takes(described) : 0, *count = 1, SUCCESS;
    }
    return BAD_PARAM;
}

API cudnnBackendExecute(Handle *with, Backend *plan, Backend *pack) {
    SUPPORTED();
    if (!plan->final || !pack->final) return BAD_PARAM;
    if (is_attention(plan->graph)) return attend(with, plan, pack);
    Described it;
    const int code = describe(plan->graph, &it);
    if (code != SUCCESS) return code;
    Call &call = it.call;
    const auto ids = pack->all<int64_t>(1000);
    const auto pointers = pack->all<void *>(1001);
    const auto place = [&](int64_t id) -> void * {
        for (size_t index = 0; index < ids.size(); index++)
            if (ids[index] == id) return pointers.at(index);
        return nullptr;
    };
    call.X = place(it.ids[0]), call.W = place(it.ids[1]), call.Y = place(it.ids[2]);
    call.bias = it.bias ? place(it.bias) : nullptr;
    if (!call.X || !call.W || !call.Y || (it.bias && !call.bias)) return NULL_POINTER;
    for (const void *address : {(const void *)call.X, (const void *)call.W, (const void *)call.Y})
        if ((uintptr_t)address % 16) return MISALIGNED;
    call.bytes = plan->engine == GOOD ? engine_takes(it) : 0;
    call.workspace = pack->has(1003) ? pack->one<void *>(1003) : nullptr;
    if (call.bytes && !call.workspace) return EXECUTION_FAILED;
    if (call.bias && refuses("fused")) return NOT_SUPPORTED;
    std::vector<int> kernel = {call.pass, 100 + plan->engine, call.x.type, call.bias != nullptr, call.following, it.channels_last};
    for (const Tensor *tensor : {(const Tensor *)&call.x, (const Tensor *)&call.w, (const Tensor *)&call.y}) kernel.insert(kernel.end(), tensor->size, tensor->size + 4);
    if (!load(kernel)) return INTERNAL_ERROR;
    const int kind = call.pass == FORWARD ? (call.bias ? 1 : 0) : call.pass == DATA ? 3 : 4;
    return enqueue(with, kind, run, new Call(call), plan->engine);
}
