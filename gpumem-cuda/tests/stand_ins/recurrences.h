// Recurrent layers of cuDNN's, for convolutions.cpp: one layer of one direction or both, with projections or without, sequences of full length
// with the samples outermost, states that begin at 0. Every sum is computed from the definition of a step when the stream gets there.
//
// Weights are one piece: of each direction those of the map, gate by gate, those of the steps and the projection, then the biases of the
// directions. The reserve keeps the gates after their functions, an LSTM's c, what is projected, and what a GRU's last gate makes of the step
// before; the gradient of the weights needs what the gradient of the data leaves there. The workspace is filled with nonsense before and after
// each call.
#pragma once

struct Dropped {
    float probability = -1;
};
struct Sequences {
    int type = -1, layout, steps = 0, batch, width;
};
struct Layer {
    int cell = -1, bias, type, math, inputs, hidden, outputs, directions;
    int gates() const { return cell == 2 ? 4 : cell == 3 ? 3 : 1; }
    bool projected() const { return outputs < hidden; }
    // Of one direction.
    int64_t matrices() const { return (int64_t)hidden * (gates() * (inputs + outputs) + (projected() ? outputs : 0)); }
    int64_t biases() const { return bias ? (int64_t)2 * gates() * hidden : 0; }
    int64_t weights() const { return directions * (matrices() + biases()); }
    int width() const { return type == FLOAT ? 4 : 2; }
    // Numbers of a unit and step in the reserve, and all of a step of one direction.
    int kept() const { return cell == 2 ? projected() ? 6 : 5 : cell == 3 ? 6 : 1; }
    int64_t of_step() const { return (int64_t)kept() * hidden + (projected() ? outputs : 0); }
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
    if (algorithm || input || precision != FLOAT || layers != 1 || !dropped || dropped->probability != 0) return BAD_PARAM;
    if (cell < 0 || cell > 3 || (bias != 0 && bias != 2) || inputs < 1 || hidden < 1 || flags != 1) return BAD_PARAM;
    if ((direction != 0 && direction != 1) || projected < 1 || projected > hidden || (projected < hidden && cell != 2)) return BAD_PARAM;
    if (math != (type == FLOAT ? FMA_MATH : TENSOR_OP_MATH)) return NOT_SUPPORTED;
    return *it = {cell, bias, type, math, inputs, hidden, projected, direction + 1}, SUCCESS;
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
    return (size_t)it.directions * x.batch * x.steps * it.hidden * 4 + 512;
}
static size_t keeps(const Layer &it, const Sequences &x) {
    return (size_t)it.directions * x.batch * x.steps * it.of_step() * it.width() + 256;
}
API cudnnGetRNNTempSpaceSizes(Handle *, Layer *it, int mode, Sequences *x, size_t *workspace, size_t *reserve) {
    if (mode != 1 || x->width != it->inputs || x->type != it->type) return BAD_PARAM;
    return *workspace = works_with(*it, *x), *reserve = keeps(*it, *x), SUCCESS;
}
API cudnnGetRNNWeightSpaceSize(Handle *, Layer *it, size_t *bytes) { return *bytes = (size_t)it->weights() * it->width(), SUCCESS; }

// In front of a gate's row of a matrix of a direction, or of its projection, and of a bias.
static int64_t matrix_at(const Layer &it, int direction, int number) {
    const int gates = it.gates(), side = number / gates;
    const int64_t before = side == 0 ? 0 : (int64_t)gates * it.hidden * (it.inputs + (side == 2 ? it.outputs : 0));
    return direction * it.matrices() + before + (int64_t)(number % gates) * it.hidden * (side == 0 ? it.inputs : it.outputs);
}
static int64_t bias_at(const Layer &it, int direction, int number) {
    return it.directions * it.matrices() + direction * it.biases() + (int64_t)number * it.hidden;
}
API cudnnGetRNNWeightParams(Handle *, Layer *it, int layer, size_t bytes, const void *weights, int number, Tensor *, void **matrix,
                            Tensor *, void **bias) {
    if (layer < 0 || layer >= it->directions || number < 0 || number > 2 * it->gates() || !weights) return BAD_PARAM;
    if ((number == 2 * it->gates() && it->cell != 2) || bytes != (size_t)it->weights() * it->width()) return BAD_PARAM;
    const bool of_gates = number < 2 * it->gates();
    *matrix = of_gates || it->projected() ? (char *)weights + matrix_at(*it, layer, number) * it->width() : nullptr;
    *bias = of_gates && it->bias ? (char *)weights + bias_at(*it, layer, number) * it->width() : nullptr;
    return SUCCESS;
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

// One direction of one sample.
struct Way {
    const Recurrent &call;
    const Layer &it;
    int64_t sample;
    int direction, H, D, P, G, T;

    Way(const Recurrent &call, int64_t sample, int direction)
        : call(call), it(call.it), sample(sample), direction(direction), H(it.hidden), D(it.inputs), P(it.outputs), G(it.gates()), T(call.x.steps) {}
    double get(const void *from, int64_t at) const { return (double)Of::load(it.type, from, at); }
    void put(void *to, int64_t at, double value) const { Of::store(it.type, to, at, (float)value); }
    // Where the number of a step on the way lies.
    int64_t row(int step) const { return sample * T + (direction ? T - 1 - step : step); }
    int64_t matrix(int number, int row, int column) const {
        return matrix_at(it, direction, number) + (int64_t)row * (number < G ? D : number < 2 * G ? P : H) + column;
    }
    double weight(int number, int row, int column) const { return get(call.W, matrix(number, row, column)); }
    double bias(int number, int row) const { return it.bias ? get(call.W, bias_at(it, direction, number) + row) : 0.0; }
    int64_t output(int step, int k) const { return (row(step) * it.directions + direction) * P + k; }
    double y(int step, int k) const { return step < 0 ? 0.0 : get(call.Y, output(step, k)); }
    double x(int step, int column) const { return get(call.X, row(step) * D + column); }
    // In the reserve: of a unit, and, behind all of them, of an output.
    int64_t room(int step, int which, int unit) const {
        return (row(step) * it.directions + direction) * it.of_step() + (int64_t)which * H + unit;
    }
    double kept(int step, int which, int unit) const { return get(call.reserve, room(step, which, unit)); }
    double sum(int number, int step, int unit) const {
        double sum = bias(number, unit);
        for (int k = 0; k < (number < G ? D : P); k++) sum += weight(number, unit, k) * (number < G ? x(step, k) : y(step - 1, k));
        return sum;
    }

    void outputs() const {
        const auto sigmoid = [](double x) { return 1 / (1 + exp(-x)); };
        std::vector<double> c((size_t)H);
        for (int step = 0; step < T; step++) {
            for (int unit = 0; unit < H; unit++) {
                double gates[6], h;
                for (int gate = 0; gate < G; gate++) gates[gate] = sum(gate, step, unit);
                const double last = sum(2 * G - 1, step, unit);
                for (int gate = 0; gate < G; gate++) gates[gate] += it.cell == 3 && gate == 2 ? 0 : sum(G + gate, step, unit);
                if (it.cell == 2) {
                    for (int gate = 0; gate < 4; gate++) gates[gate] = gate == 2 ? tanh(gates[2]) : sigmoid(gates[gate]);
                    gates[4] = c[unit] = gates[1] * c[unit] + gates[0] * gates[2];
                    h = gates[5] = gates[3] * tanh(c[unit]);
                } else if (it.cell == 3) {
                    gates[0] = sigmoid(gates[0]), gates[1] = sigmoid(gates[1]);
                    gates[2] = tanh(gates[2] + gates[0] * last), gates[3] = last, gates[4] = gates[5] = 0;
                    h = (1 - gates[1]) * gates[2] + gates[1] * y(step - 1, unit);
                } else {
                    h = gates[0] = it.cell == 1 ? tanh(gates[0]) : gates[0] > 0 ? gates[0] : 0;
                }
                for (int which = 0; which < it.kept(); which++) put(call.reserve, room(step, which, unit), gates[which]);
                if (!it.projected()) put(call.Y, output(step, unit), h);
            }
            for (int k = 0; it.projected() && k < P; k++) {
                double h = 0;
                for (int unit = 0; unit < H; unit++) h += weight(2 * G, k, unit) * kept(step, 5, unit);
                put(call.Y, output(step, k), h);
            }
        }
    }

    // In place of what was kept: the gradient of each gate, behind the map and behind the steps where that is another one, and of outputs.
    void slopes(double *dx) const {
        std::vector<double> dh((size_t)P), dc((size_t)H), next((size_t)P), du((size_t)H);
        for (int step = T; step-- > 0;) {
            for (int k = 0; k < P; k++) dh[k] = next[k] + get(call.dY, output(step, k)), next[k] = 0;
            for (int k = 0; it.projected() && k < P; k++) put(call.reserve, room(step, it.kept(), k), dh[k]);
            for (int unit = 0; unit < H; unit++) {
                du[unit] = it.projected() ? 0 : dh[unit];
                for (int k = 0; it.projected() && k < P; k++) du[unit] += dh[k] * weight(2 * G, k, unit);
            }
            for (int unit = 0; unit < H; unit++) {
                double slope[6] = {}, direct = 0;
                const double d = du[unit];
                const auto gate = [&](int which) { return kept(step, which, unit); };
                if (it.cell == 2) {
                    const double squashed = tanh(gate(4)), before = step ? kept(step - 1, 4, unit) : 0;
                    const double of_c = dc[unit] + d * gate(3) * (1 - squashed * squashed);
                    slope[0] = of_c * gate(2) * gate(0) * (1 - gate(0)), slope[1] = of_c * before * gate(1) * (1 - gate(1));
                    slope[2] = of_c * gate(0) * (1 - gate(2) * gate(2)), slope[3] = d * squashed * gate(3) * (1 - gate(3));
                    dc[unit] = of_c * gate(1);
                } else if (it.cell == 3) {
                    const double of_n = d * (1 - gate(1)) * (1 - gate(2) * gate(2));
                    slope[0] = of_n * gate(3) * gate(0) * (1 - gate(0)), slope[1] = d * (y(step - 1, unit) - gate(2)) * gate(1) * (1 - gate(1));
                    slope[2] = of_n, slope[3] = of_n * gate(0), direct = d * gate(1);
                } else {
                    slope[0] = it.cell == 1 ? d * (1 - gate(0) * gate(0)) : gate(0) > 0 ? d : 0;
                }
                if (it.cell == 3) next[unit] += direct;
                for (int which = 0; which < G; which++) {
                    const double behind = it.cell == 3 && which == 2 ? slope[3] : slope[which];
                    for (int k = 0; k < P; k++) next[k] += behind * weight(G + which, unit, k);
                }
                for (int which = 0; which < (it.cell == 3 ? 4 : G); which++) put(call.reserve, room(step, which, unit), slope[which]);
            }
            for (int k = 0; k < D; k++)
                for (int which = 0; which < G; which++)
                    for (int unit = 0; unit < H; unit++) dx[row(step) * D + k] += kept(step, which, unit) * weight(which, unit, k);
        }
    }

    void sums() const {
        const auto add = [&](int64_t at, double value) { put(call.dW, at, get(call.dW, at) + value); };
        for (int number = 0; number < 2 * G; number++)
            for (int unit = 0; unit < H; unit++) {
                const int which = it.cell == 3 && number == 5 ? 3 : number % G;
                for (int k = 0; k < (number < G ? D : P); k++) {
                    double value = 0;
                    for (int step = 0; step < T; step++) value += kept(step, which, unit) * (number < G ? x(step, k) : y(step - 1, k));
                    add(matrix(number, unit, k), value);
                }
                double value = 0;
                for (int step = 0; step < T; step++) value += kept(step, which, unit);
                if (it.bias) add(bias_at(it, direction, number) + unit, value);
            }
        for (int k = 0; it.projected() && k < P; k++)
            for (int unit = 0; unit < H; unit++) {
                double value = 0;
                for (int step = 0; step < T; step++) value += kept(step, it.kept(), k) * kept(step, 5, unit);
                add(matrix(2 * G, k, unit), value);
            }
    }
};

static void recur(void *data) {
    Recurrent &call = *(Recurrent *)data;
    const int64_t arriving = (int64_t)call.x.batch * call.x.steps * call.it.inputs;
    spoil(call.workspace, call.bytes);
    std::vector<double> dx((size_t)(call.pass == SLOPES ? arriving : 0));
    for (int sample = 0; sample < call.x.batch; sample++) {
        if (call.lengths[sample] != call.x.steps) driver<int (*)()>("simulated_fail")();
        for (int direction = 0; direction < call.it.directions; direction++) {
            const Way way(call, sample, direction);
            call.pass == OUTPUTS ? way.outputs() : call.pass == SLOPES ? way.slopes(dx.data()) : way.sums();
        }
    }
    for (size_t at = 0; at < dx.size(); at++) Of::store(call.it.type, call.dX, (int64_t)at, (float)dx[at]);
    spoil(call.workspace, call.bytes);
}

static int recur(Handle *with, Layer *it, Sequences *x, Sequences *y, size_t weights, size_t reserve, Recurrent call) {
    if (x->width != it->inputs || y->width != it->directions * it->outputs || x->steps != y->steps || x->batch != y->batch || x->type != it->type) return SHAPE_MISMATCH;
    if (weights != (size_t)it->weights() * it->width() || call.bytes < works_with(*it, *x) || reserve < keeps(*it, *x)) return BAD_PARAM;
    if (!call.lengths || !call.workspace || !call.reserve || !(call.pass == SUMS ? call.dW : call.W) || !call.Y) return NULL_POINTER;
    if (!(call.pass == SLOPES ? call.dX && call.dY : call.X != nullptr)) return NULL_POINTER;
    if ((uintptr_t)call.workspace % 256 || (uintptr_t)call.reserve % 256) return MISALIGNED;
    if (!load({2000 + call.pass, it->cell, it->bias, it->type, it->inputs, it->hidden, it->outputs, it->directions, x->steps, x->batch})) return INTERNAL_ERROR;
    if (refuses(call.pass == OUTPUTS ? "recurrence tried" : "recurrence gradient")) return NOT_SUPPORTED;
    call.it = *it, call.x = *x;
    recurrences[call.pass]++;
    return enqueue(with, 7, recur, new Recurrent(call));
}
// What goes from step to step is described for each direction, though nobody gives any.
static bool has_states(const Layer &it, const Sequences *x, const Tensor *h, const Tensor *c) {
    const auto is = [&](const Tensor *state, int units) {
        return state && state->size[0] == it.directions && state->size[1] == x->batch && state->size[2] == units;
    };
    return is(h, it.outputs) && (!c || is(c, it.hidden));
}
API cudnnRNNForward(Handle *with, Layer *it, int mode, const int *lengths, Sequences *x, const void *X, Sequences *y, void *Y, Tensor *h,
                    const void *hx, void *hy, Tensor *c, const void *cx, void *cy, size_t weights, const void *W, size_t bytes,
                    void *workspace, size_t reserve_bytes, void *reserve) {
    if (mode != 1 || !has_states(*it, x, h, c) || hx || hy || cx || cy) return BAD_PARAM;
    return recur(with, it, x, y, weights, reserve_bytes, {OUTPUTS, {}, {}, lengths, X, nullptr, W, Y, nullptr, nullptr, workspace, reserve, bytes});
}
API cudnnRNNBackwardData_v8(Handle *with, Layer *it, const int *lengths, Sequences *y, const void *Y, const void *dY, Sequences *x, void *dX,
                            Tensor *h, const void *hx, const void *dhy, void *dhx, Tensor *c, const void *cx, const void *dcy, void *dcx,
                            size_t weights, const void *W, size_t bytes, void *workspace, size_t reserve_bytes, void *reserve) {
    if (!has_states(*it, x, h, c) || hx || dhy || dhx || cx || dcy || dcx) return BAD_PARAM;
    return recur(with, it, x, y, weights, reserve_bytes, {SLOPES, {}, {}, lengths, nullptr, dY, W, (void *)Y, dX, nullptr, workspace, reserve, bytes});
}
API cudnnRNNBackwardWeights_v8(Handle *with, Layer *it, int mode, const int *lengths, Sequences *x, const void *X, Tensor *h, const void *hx,
                               Sequences *y, const void *Y, size_t weights, void *dW, size_t bytes, void *workspace, size_t reserve_bytes,
                               void *reserve) {
    if (mode != 0 || !has_states(*it, x, h, nullptr) || hx) return NOT_SUPPORTED;
    return recur(with, it, x, y, weights, reserve_bytes, {SUMS, {}, {}, lengths, X, nullptr, nullptr, (void *)Y, nullptr, dW, workspace, reserve, bytes});
}
