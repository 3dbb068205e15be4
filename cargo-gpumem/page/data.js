// Plans: the data of the page, with what follows from it. Nothing here draws.

const ALIGNMENT = 256;
/** Numbers of phases in the data, and their names. */
const PHASE = { forward: 0, backward: 1, update: 2, loss: 3, again: 4, toHost: 5, fromHost: 6, exchange: 7 };
const PHASE_NAMES = ["forward", "backward", "update", "loss", "recomputed", "to the host", "from the host", "exchange between ranks"];

const withPadding = size => Math.ceil(size / ALIGNMENT) * ALIGNMENT;

/** A step that was planned. */
class Plan {
  constructor(raw) {
    if (raw.format !== "gpumem-timeline" || raw.version !== 1) throw new Error("this page cannot read the plan: its format has another version");
    this.raw = raw;
    this.categories = raw.categories;
    this.count = raw.operations.verb.length;
    this.phases = raw.operations.phase;
    const loss = this.phases.indexOf(PHASE.loss);
    /** The first operation of the loss; the number of operations in a forward pass. */
    this.loss = loss < 0 ? this.count : loss;
    this.line = Object.fromEntries(raw.lines.map((name, index) => [name, raw.budget.bytes[index]]));
    this.arena = this.line.arena;
    this.total = this.line.total;
    this.room = raw.card ? raw.card.usable - raw.card.headroom : null;
    this.edges = edges(raw, this.count);
    this.tensors = raw.tensors.bytes.map((_, index) => this.tensor(index));
    /** The lives of a tensor that goes to host memory and back, by the index of each: before, in host memory, after. */
    this.lives = new Map(raw.parked.flatMap(lives => lives.map(index => [index, lives.map(other => this.tensors[other])])));
    const inArena = this.tensors.filter(tensor => !tensor.onHost && tensor.room > 0);
    /** Tensors of the arena with a byte or more, in the order in which they begin to live. */
    this.byFirst = inArena.slice().sort((a, b) => a.first - b.first || b.room - a.room);
    this.sumUp();
    /** The offset at which the part of the arena begins that tensors inside the step share. */
    this.base = inArena.filter(tensor => tensor.inside).reduce((least, tensor) => Math.min(least, tensor.offset), this.arena);
    this.checks = checks(this);
  }

  /** Returns a tensor with its columns as fields. */
  tensor(index) {
    const columns = this.raw.tensors;
    const category = this.categories[columns.category[index]];
    const layer = columns.layer[index];
    const name = this.tensorName(index);
    const uses = [];
    let at = 0;
    for (const step of columns.uses[index]) {
      at += step >> 2;
      uses.push({ at, reads: (step & 1) !== 0, writes: (step & 2) !== 0 });
    }
    return {
      index,
      name,
      category: columns.category[index],
      inside: category.where === "step",
      onHost: category.where === "host",
      row: layer,
      // A tensor of no layer, such as an input or the loss, stands for itself.
      layer: layer >= 0 ? this.path(layer) : name.split(" ")[0],
      shape: this.raw.shapes[columns.shape[index]],
      bytes: columns.bytes[index],
      room: withPadding(columns.bytes[index]),
      offset: columns.offset[index] * ALIGNMENT,
      first: columns.first[index],
      last: columns.last[index],
      uses,
      source: this.source(layer)[0] ?? "",
    };
  }

  /** Returns the name of a tensor. Most have the name of their layer with their part after it. */
  tensorName(index) {
    const { name, layer, part } = this.raw.tensors;
    return name[index] >= 0 ? this.raw.names[name[index]] : `${this.path(layer[index])} ${this.raw.parts[part[index]]}`;
  }

  path(layer) {
    return layer < 0 ? "network" : this.raw.layers.path[layer];
  }

  operation(at) {
    const layer = this.raw.operations.layer[at];
    return (layer < 0 ? "" : `${this.path(layer)} `) + this.raw.verbs[this.raw.operations.verb[at]];
  }

  /** Returns the source line of a layer and those of the calls around it, the innermost first, as `src/net.rs:12`. */
  source(layer) {
    const { files, lines } = this.raw.sources;
    const places = [];
    let next = layer < 0 ? -1 : this.raw.layers.source[layer];
    while (next >= 0) {
      const [file, line, caller] = lines[next];
      places.push(`${files[file]}:${line}`);
      next = caller;
    }
    return places;
  }

  /** Adds up live bytes, with padding, at each operation. */
  sumUp() {
    this.live = this.categories.map(() => new Float64Array(this.count + 1));
    for (const tensor of this.tensors) {
      this.live[tensor.category][tensor.first] += tensor.room;
      this.live[tensor.category][tensor.last + 1] -= tensor.room;
    }
    for (const sizes of this.live) for (let at = 1; at <= this.count; at += 1) sizes[at] += sizes[at - 1];
    this.sum = new Float64Array(this.count);
    this.host = new Float64Array(this.count);
    this.categories.forEach((category, index) => {
      const into = category.where === "host" ? this.host : this.sum;
      for (let at = 0; at < this.count; at += 1) into[at] += this.live[index][at];
    });
    this.present = this.categories.map((_, index) => this.tensors.some(tensor => tensor.category === index && tensor.bytes > 0));
    let peak = 0;
    for (let at = 0; at < this.count; at += 1) if (this.sum[at] > this.sum[peak]) peak = at;
    // Of several operations with the most live bytes, the budget names the first.
    this.peak = this.sum[this.raw.budget.peak] === this.sum[peak] ? this.raw.budget.peak : peak;
    this.hasHost = this.tensors.some(tensor => this.categories[tensor.category].name === "parked activations");
  }

  /** Returns a tensor, with its other lives if it goes to host memory and back. */
  livesOf(tensor) {
    return this.lives.get(tensor.index) ?? [tensor];
  }

  liveAt(at) {
    return this.tensors.filter(tensor => !tensor.onHost && tensor.first <= at && at <= tensor.last);
  }
}

/** Returns the left edge of each operation's column, and the right edge of the last one, by number and by time. */
function edges(raw, count) {
  const byNumber = new Float64Array(count + 1);
  const byTime = new Float64Array(count + 1);
  for (let at = 0; at < count; at += 1) {
    byNumber[at + 1] = at + 1;
    // An operation without a known time still has a column.
    byTime[at + 1] = byTime[at] + Math.max(raw.operations.us[at], 0.02);
  }
  return { operations: byNumber, time: byTime };
}

/** Counts the plan again, by itself. Returns for each fact whether it holds. */
function checks(plan) {
  const { raw, tensors } = plan;
  const lasting = { weights: "weights", "master copies": "master", gradients: "gradients", optimizer: "optimizer", "moving averages": "ema", buffers: "buffers", batch: "batch_io", cache: "cache" };
  const sums = Object.fromEntries(Object.values(lasting).map(line => [line, 0]));
  for (const tensor of tensors) {
    const line = lasting[plan.categories[tensor.category].name];
    if (line) sums[line] += tensor.bytes;
  }
  return {
    "live bytes at the peak are those of the budget": plan.sum[plan.peak] === raw.budget.lower_bound,
    "the peak is at the operation that the budget names": plan.sum[raw.budget.peak] === plan.sum[plan.peak],
    "each line that lasts from step to step adds up": Object.entries(sums).every(([line, sum]) => sum === plan.line[line]),
    "no tensor lies outside of the arena": tensors.every(tensor => tensor.onHost || tensor.offset + tensor.room <= plan.arena),
    "no two live tensors overlap": !overlaps(plan),
  };
}

/** True if a tensor lies on another that is live at one of its operations. */
function overlaps(plan) {
  let active = [];
  let next = 0;
  for (let at = 0; at < plan.count; at += 1) {
    const begun = [];
    for (; next < plan.byFirst.length && plan.byFirst[next].first === at; next += 1) begun.push(plan.byFirst[next]);
    active = active.filter(tensor => tensor.last >= at);
    if (begun.length === 0) continue;
    active = active.concat(begun).sort((a, b) => a.offset - b.offset);
    for (let index = 1; index < active.length; index += 1) {
      const below = active[index - 1];
      if (below.offset + below.room > active[index].offset) return true;
    }
  }
  return false;
}

/** Returns the block of a layer: its path up to the first index. */
const blockOf = path => /^([^.[]+(?:\[[^\]]*\])?(?:\.[^.[]+\[[^\]]*\])?)/.exec(path)?.[1] ?? path;

/** True if a tensor belongs to a layer, or to a layer inside of this block. */
const belongsTo = (tensor, layer) =>
  tensor.layer === layer || [".", "["].some(end => tensor.layer.startsWith(layer + end)) || tensor.name.startsWith(`${layer}.`);
