// Recurrent layers of cuDNN's, for convolutions.cpp: one layer of one direction, sequences of full length with the samples outermost, states
// that begin at 0. Every sum is computed from the definition of a step when the stream gets there.
//
// Weights are one piece: those of the map, gate by gate, those of the steps, then both's biases. The reserve keeps the gates after their
// functions, an LSTM's c and what a GRU's last gate makes of the step before; the gradient of the weights needs what the gradient of the data
// leaves there. The workspace is filled with nonsense before and after each call.
#pragma once

struct Dropped {
    float probability = -1;
};
struct Sequences {
    int type = -1, layout, steps = 0, batch, width;
};
struct Layer {
    int cell = -1, bias, type, math, inputs, hidden;
    int gates() const { return cell == 2 ? 4 : cell == 3 ? 3 : 1; }
    int64_t weights() const { return (int64_t)gates() * hidden * (inputs + hidden + (bias ? 2 : 0)); }
    int width() const { return type == FLOAT ? 4 : 2; }
    // Numbers of a unit and step in the reserve.
    int kept() const { return cell == 2 ? 5 : cell == 3 ? 6 : 1; }
};

static unsigned long long recurrences[3];
// Passes of recurrent layers that were asked for: forward, of the data, of the weights.
API simulated_recurrences(unsigned long long *counts) { return memcpy(counts, recurrences, sizeof recurrences), SUCCESS; }

API cudnnCreateDropoutDescriptor(Dropped **made) { return objects++, *made = new Dropped, SUCCESS; }
API cudnnDestroyDropoutDescriptor(Dropped *it) { return objects--, delete it, SUCCESS; }
API cudnnSetDropoutDescriptor(Dropped *it, Handle *with, float probability, void *, size_t, unsigned long long) {
    return it->probability = probability, with && probability == 0 ? SUCCESS : BAD_PARAM;
}
API cudnnCreateRNNDescriptor(Layer **made) { return objects++, *made = new Layer, SUCCESS; }
API cudnnDestroyRNNDescriptor(Layer *it) { return objects--, delete it, SUCCESS; }
API cudnnSetRNNDescriptor_v8(Layer *it, int algorithm, int cell, int bias, int direction, int input, int type, int precision, int math,
                             int inputs, int hidden, int projected, int layers, Dropped *dropped, unsigned flags) {
    if (lists("GPUMEM_SIMULATED_CUDNN_REFUSES", "recurrence")) return NOT_SUPPORTED;
    if (algorithm || direction || input || precision != FLOAT || layers != 1 || !dropped || dropped->probability != 0) return BAD_PARAM;
    if (cell < 0 || cell > 3 || (bias != 0 && bias != 2) || inputs < 1 || hidden < 1 || projected != hidden || flags != 1) return BAD_PARAM;
    if (math != (type == FLOAT ? FMA_MATH : TENSOR_OP_MATH)) return NOT_SUPPORTED;
    return *it = {cell, bias, type, math, inputs, hidden}, SUCCESS;
}
API cudnnCreateRNNDataDescriptor(Sequences **made) { return objects++, *made = new Sequences, SUCCESS; }
API cudnnDestroyRNNDataDescriptor(Sequences *it) { return objects--, delete it, SUCCESS; }
API cudnnSetRNNDataDescriptor(Sequences *it, int type, int layout, int steps, int batch, int width, const int *lengths, const void *fill) {
    if (layout != 2 || steps < 1 || batch < 1 || width < 1 || !fill) return BAD_PARAM;
    for (int sample = 0; sample < batch; sample++)
        if (lengths[sample] != steps) return NOT_SUPPORTED;
    return *it = {type, layout, steps, batch, width}, SUCCESS;
}
API cudnnSetTensorNdDescriptor(Tensor *it, int type, int axes, const int *size, const int *stride) {
    if (axes != 3 || stride[2] != 1 || stride[1] != size[2] || stride[0] != size[1] * size[2]) return BAD_PARAM;
    return set(*it, type, size[0], size[1], size[2], 1);
}

// In f32 in any case; with `room` among what is refused, more than anybody has.
static size_t works_with(const Layer &it, const Sequences &x) {
    if (refuses("room")) return (size_t)1 << 40;
    return (size_t)x.batch * x.steps * it.hidden * 4 + 512;
}
static size_t keeps(const Layer &it, const Sequences &x) { return (size_t)x.batch * x.steps * it.hidden * it.kept() * it.width() + 256; }
API cudnnGetRNNTempSpaceSizes(Handle *, Layer *it, int mode, Sequences *x, size_t *workspace, size_t *reserve) {
    if (mode != 1 || x->width != it->inputs || x->type != it->type) return BAD_PARAM;
    return *workspace = works_with(*it, *x), *reserve = keeps(*it, *x), SUCCESS;
}
API cudnnGetRNNWeightSpaceSize(Handle *, Layer *it, size_t *bytes) { return *bytes = (size_t)it->weights() * it->width(), SUCCESS; }

// In front of a gate's row of a matrix, and of a bias.
static int64_t matrix_at(const Layer &it, int number) {
    const int gates = it.gates(), each = number < gates ? it.inputs : it.hidden;
    const int64_t before = number < gates ? 0 : (int64_t)gates * it.hidden * it.inputs;
    return before + (int64_t)(number % gates) * it.hidden * each;
}
static int64_t bias_at(const Layer &it, int number) {
    return (int64_t)it.gates() * it.hidden * (it.inputs + it.hidden) + (int64_t)number * it.hidden;
}
API cudnnGetRNNWeightParams(Handle *, Layer *it, int layer, size_t bytes, const void *weights, int number, Tensor *, void **matrix,
                            Tensor *, void **bias) {
    if (layer || number < 0 || number >= 2 * it->gates() || bytes != (size_t)it->weights() * it->width() || !weights) return BAD_PARAM;
    *matrix = (char *)weights + matrix_at(*it, number) * it->width();
    return *bias = it->bias ? (char *)weights + bias_at(*it, number) * it->width() : nullptr, SUCCESS;
}

enum { OUTPUTS, SLOPES, SUMS };
struct Recurrent {
    int pass;
    Layer it;
    Sequences x;
    const int *lengths;
    const void *X, *dY, *W;
    void *Y, *dX, *dW, *workspace, *reserve;
    size_t bytes;
};

static void recur(void *data) {
    Recurrent &call = *(Recurrent *)data;
    const Layer &it = call.it;
    const int H = it.hidden, D = it.inputs, G = it.gates(), T = call.x.steps, kept = it.kept();
    memset(call.workspace, 0xff, call.bytes);
    const auto get = [&](const void *from, int64_t at) { return (double)Of::load(it.type, from, at); };
    const auto put = [&](void *to, int64_t at, double value) { Of::store(it.type, to, at, (float)value); };
    const auto weight = [&](int number, int row, int column) {
        return get(call.W, matrix_at(it, number) + (int64_t)row * (number < G ? D : H) + column);
    };
    const auto bias = [&](int number, int row) { return it.bias ? get(call.W, bias_at(it, number) + row) : 0.0; };
    const auto sigmoid = [](double x) { return 1 / (1 + exp(-x)); };
    for (int b = 0; b < call.x.batch; b++) {
        if (call.lengths[b] != T) driver<int (*)()>("simulated_fail")();
        const auto room = [&](int t, int which, int unit) { return (((int64_t)b * T + t) * kept + which) * H + unit; };
        const auto y = [&](int t, int unit) { return t < 0 ? 0.0 : get(call.Y, ((int64_t)b * T + t) * H + unit); };
        const auto x = [&](int t, int column) { return get(call.X, ((int64_t)b * T + t) * D + column); };
        const auto back = [&](int t, int which, int unit) { return get(call.reserve, room(t, which, unit)); };
        const auto sum = [&](int number, int t, int unit) {
            double sum = bias(number, unit);
            for (int k = 0; k < (number < G ? D : H); k++) sum += weight(number, unit, k) * (number < G ? x(t, k) : y(t - 1, k));
            return sum;
        };
        if (call.pass == OUTPUTS) {
            std::vector<double> c((size_t)H);
            for (int t = 0; t < T; t++)
                for (int unit = 0; unit < H; unit++) {
                    double gates[6], h;
                    for (int gate = 0; gate < G; gate++) gates[gate] = sum(gate, t, unit);
                    const double last = sum(2 * G - 1, t, unit);
                    for (int gate = 0; gate < G; gate++) gates[gate] += it.cell == 3 && gate == 2 ? 0 : sum(G + gate, t, unit);
                    if (it.cell == 2) {
                        for (int gate = 0; gate < 4; gate++) gates[gate] = gate == 2 ? tanh(gates[2]) : sigmoid(gates[gate]);
                        gates[4] = c[unit] = gates[1] * c[unit] + gates[0] * gates[2];
                        h = gates[3] * tanh(c[unit]);
                    } else if (it.cell == 3) {
                        gates[0] = sigmoid(gates[0]), gates[1] = sigmoid(gates[1]);
                        gates[2] = tanh(gates[2] + gates[0] * last), gates[3] = last, gates[4] = gates[5] = 0;
                        h = (1 - gates[1]) * gates[2] + gates[1] * y(t - 1, unit);
                    } else {
                        h = gates[0] = it.cell == 1 ? tanh(gates[0]) : gates[0] > 0 ? gates[0] : 0;
                    }
                    for (int which = 0; which < kept; which++) put(call.reserve, room(t, which, unit), gates[which]);
                    put(call.Y, ((int64_t)b * T + t) * H + unit, h);
                }
        } else if (call.pass == SLOPES) {
            // In place of what was kept: the gradient of each gate, behind the map and behind the steps where that is another one.
            std::vector<double> dh((size_t)H), dc((size_t)H), next((size_t)H);
            for (int t = T; t-- > 0;) {
                std::fill(next.begin(), next.end(), 0.0);
                for (int unit = 0; unit < H; unit++) {
                    double slope[6] = {}, direct = 0;
                    const double d = get(call.dY, ((int64_t)b * T + t) * H + unit) + dh[unit];
                    const auto gate = [&](int which) { return back(t, which, unit); };
                    if (it.cell == 2) {
                        const double squashed = tanh(gate(4)), before = t ? back(t - 1, 4, unit) : 0;
                        const double of_c = dc[unit] + d * gate(3) * (1 - squashed * squashed);
                        slope[0] = of_c * gate(2) * gate(0) * (1 - gate(0)), slope[1] = of_c * before * gate(1) * (1 - gate(1));
                        slope[2] = of_c * gate(0) * (1 - gate(2) * gate(2)), slope[3] = d * squashed * gate(3) * (1 - gate(3));
                        dc[unit] = of_c * gate(1);
                    } else if (it.cell == 3) {
                        const double of_n = d * (1 - gate(1)) * (1 - gate(2) * gate(2));
                        slope[0] = of_n * gate(3) * gate(0) * (1 - gate(0)), slope[1] = d * (y(t - 1, unit) - gate(2)) * gate(1) * (1 - gate(1));
                        slope[2] = of_n, slope[3] = of_n * gate(0), direct = d * gate(1);
                    } else {
                        slope[0] = it.cell == 1 ? d * (1 - gate(0) * gate(0)) : gate(0) > 0 ? d : 0;
                    }
                    next[unit] += direct;
                    for (int which = 0; which < G; which++) {
                        const double behind = it.cell == 3 && which == 2 ? slope[3] : slope[which];
                        for (int k = 0; k < H; k++) next[k] += behind * weight(G + which, unit, k);
                    }
                    for (int which = 0; which < (it.cell == 3 ? 4 : G); which++) put(call.reserve, room(t, which, unit), slope[which]);
                }
                dh = next;
                for (int k = 0; k < D; k++) {
                    double value = 0;
                    for (int which = 0; which < G; which++)
                        for (int unit = 0; unit < H; unit++) value += back(t, which, unit) * weight(which, unit, k);
                    put(call.dX, ((int64_t)b * T + t) * D + k, value);
                }
            }
        } else {
            for (int number = 0; number < 2 * G; number++)
                for (int unit = 0; unit < H; unit++) {
                    const int which = it.cell == 3 && number == 5 ? 3 : number % G;
                    const auto add = [&](int64_t at, double value) { put(call.dW, at, get(call.dW, at) + value); };
                    for (int k = 0; k < (number < G ? D : H); k++) {
                        double value = 0;
                        for (int t = 0; t < T; t++) value += back(t, which, unit) * (number < G ? x(t, k) : y(t - 1, k));
                        add(matrix_at(it, number) + (int64_t)unit * (number < G ? D : H) + k, value);
                    }
                    double value = 0;
                    for (int t = 0; t < T; t++) value += back(t, which, unit);
                    if (it.bias) add(bias_at(it, number) + unit, value);
                }
        }
    }
    memset(call.workspace, 0xff, call.bytes);
}

static int recur(Handle *with, Layer *it, Sequences *x, Sequences *y, size_t weights, size_t reserve, Recurrent call) {
    if (x->width != it->inputs || y->width != it->hidden || x->steps != y->steps || x->batch != y->batch || x->type != it->type) return SHAPE_MISMATCH;
    if (weights != (size_t)it->weights() * it->width() || call.bytes < works_with(*it, *x) || reserve < keeps(*it, *x)) return BAD_PARAM;
    if (!call.lengths || !call.workspace || !call.reserve || !(call.pass == SUMS ? call.dW : call.W) || !call.Y) return NULL_POINTER;
    if (!(call.pass == SLOPES ? call.dX && call.dY : call.X != nullptr)) return NULL_POINTER;
    if ((uintptr_t)call.workspace % 256 || (uintptr_t)call.reserve % 256) return MISALIGNED;
    if (!load({2000 + call.pass, it->cell, it->bias, it->type, it->inputs, it->hidden, x->steps, x->batch})) return INTERNAL_ERROR;
    if (refuses(call.pass == OUTPUTS ? "recurrence tried" : "recurrence gradient")) return NOT_SUPPORTED;
    call.it = *it, call.x = *x;
    recurrences[call.pass]++;
    return enqueue(with, 7, recur, new Recurrent(call));
}
API cudnnRNNForward(Handle *with, Layer *it, int mode, const int *lengths, Sequences *x, const void *X, Sequences *y, void *Y, Tensor *h,
                    const void *hx, void *hy, Tensor *c, const void *cx, void *cy, size_t weights, const void *W, size_t bytes,
                    void *workspace, size_t reserve_bytes, void *reserve) {
    if (mode != 1 || !h || !c || hx || hy || cx || cy) return BAD_PARAM;
    return recur(with, it, x, y, weights, reserve_bytes, {OUTPUTS, {}, {}, lengths, X, nullptr, W, Y, nullptr, nullptr, workspace, reserve, bytes});
}
API cudnnRNNBackwardData_v8(Handle *with, Layer *it, const int *lengths, Sequences *y, const void *Y, const void *dY, Sequences *x, void *dX,
                            Tensor *h, const void *hx, const void *dhy, void *dhx, Tensor *c, const void *cx, const void *dcy, void *dcx,
                            size_t weights, const void *W, size_t bytes, void *workspace, size_t reserve_bytes, void *reserve) {
    if (!h || !c || hx || dhy || dhx || cx || dcy || dcx) return BAD_PARAM;
    return recur(with, it, x, y, weights, reserve_bytes, {SLOPES, {}, {}, lengths, nullptr, dY, W, (void *)Y, dX, nullptr, workspace, reserve, bytes});
}
API cudnnRNNBackwardWeights_v8(Handle *with, Layer *it, int mode, const int *lengths, Sequences *x, const void *X, Tensor *h, const void *hx,
                               Sequences *y, const void *Y, size_t weights, void *dW, size_t bytes, void *workspace, size_t reserve_bytes,
                               void *reserve) {
    if (mode != 0 || !h || hx) return NOT_SUPPORTED;
    return recur(with, it, x, y, weights, reserve_bytes, {SUMS, {}, {}, lengths, X, nullptr, nullptr, (void *)Y, nullptr, dW, workspace, reserve, bytes});
}
