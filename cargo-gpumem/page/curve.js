// The curve of live bytes, the ribbon of phases below it, and the curve of host memory.

/** Pixels beside the pictures, for labels of the vertical axis and for air. */
const LEFT = 62;
const RIGHT = 14;
const FONT = "11px system-ui, DejaVu Sans, sans-serif";
const BOLD = `600 ${FONT}`;

const PHASE_COLOURS = {
  light: ["#c9dcef", "#f3d9b4", "#e3cfe0", "#6b7280", "#1f8e5a", "#9aa1ab", "#5d6470", "#40569b"],
  dark: ["#2c4560", "#5d4522", "#523a4e", "#aab0ba", "#46b77c", "#6a717c", "#99a1ae", "#98b1fa"],
};

/** Limits drawing to the picture without its margins. Ends with `restore`. */
function clipped(context, width, height) {
  context.save();
  context.beginPath();
  context.rect(LEFT, 0, width - LEFT - RIGHT, height);
  context.clip();
}

function horizontal(context, width, y, colour, dash = []) {
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.setLineDash(dash);
  context.beginPath();
  context.moveTo(LEFT, y);
  context.lineTo(width - RIGHT, y);
  context.stroke();
  context.setLineDash([]);
}

/** Draws lines at multiples of a power of two, about `wanted` of them, with their sizes counted from `zero`. */
function drawGrid(context, [width, height], [low, high], y, wanted, zero = 0) {
  const span = high - low;
  let step = 2 ** Math.floor(Math.log2(Math.max(1, span / wanted)));
  while (span / step > wanted * 1.6) step *= 2;
  context.font = FONT;
  context.textAlign = "right";
  context.textBaseline = "middle";
  for (let size = Math.ceil((low - zero) / step) * step; size <= high - zero; size += step) {
    const line = Math.round(y(size + zero)) + 0.5;
    if (line < 8 || line > height - 3) continue;
    horizontal(context, width, line, inks.grid);
    context.fillStyle = inks.soft;
    context.fillText(axisSize(size), LEFT - 6, line);
  }
}

/**
 * Returns the columns of a picture, each with its operations and the one with most live bytes. If there are more operations than pixels, a column
 * of one pixel has several, and shows the largest, so that no peak is lost.
 */
function columnsOf(plan, edges, x, from, to) {
  const columns = [];
  let pixel = -Infinity;
  for (let at = from; at <= to; at += 1) {
    const here = Math.floor(x(edges[at]));
    const last = columns[columns.length - 1];
    if (last && here <= pixel) {
      last.end = at + 1;
      if (plan.sum[at] > plan.sum[last.largest]) last.largest = at;
    } else {
      columns.push({ first: at, end: at + 1, largest: at });
      pixel = here;
    }
  }
  return columns.map(column => ({ ...column, left: x(edges[column.first]), right: x(edges[column.end]) }));
}

/** Draws live bytes by category, one above the other. */
function drawCurve(pane, context, width, height) {
  const { plan } = pane;
  const y = size => height - 1 - (size / scale.live) * (height - 8);
  const x = pane.across(width);
  drawGrid(context, [width, height], [0, scale.live], y, 5);
  const from = pane.operationAt(width, LEFT);
  const to = pane.operationAt(width, width - RIGHT);
  clipped(context, width, height);
  const columns = columnsOf(plan, pane.edges, x, from, to);
  const below = new Float64Array(columns.length);
  const isFaded = state.layer !== null || state.tensor !== null;
  plan.live.forEach((sizes, category) => {
    if (!isStacked(category) || !columns.some(column => sizes[column.largest] > 0)) return;
    context.beginPath();
    columns.forEach((column, index) => {
      const top = y(below[index] + sizes[column.largest]);
      if (index === 0) context.moveTo(column.left, top);
      else context.lineTo(column.left, top);
      context.lineTo(column.right, top);
    });
    for (let index = columns.length - 1; index >= 0; index -= 1) {
      context.lineTo(columns[index].right, y(below[index]));
      context.lineTo(columns[index].left, y(below[index]));
    }
    context.closePath();
    context.fillStyle = paint(context, category);
    context.globalAlpha = isFaded ? 0.45 : 1;
    context.fill();
    context.globalAlpha = 1;
    columns.forEach((column, index) => (below[index] += sizes[column.largest]));
  });
  drawChosen(pane, context, x, y, from, to);
  if (state.hidden.size === 0) {
    if (state.range === "all") drawReference(plan, context, x, y, pane.edges);
    drawLimits(plan, context, width, y);
  }
  context.restore();
  horizontal(context, width, height - 0.5, inks.line);
}

/** Draws the chosen layer or tensor as a curve of its own, from the bottom. */
function drawChosen(pane, context, x, y, from, to) {
  const { plan, edges } = pane;
  const lives = state.tensor?.plan === plan ? plan.livesOf(state.tensor.tensor) : [];
  const isChosen = tensor => (state.layer !== null ? belongsTo(tensor, state.layer) : lives.includes(tensor));
  const chosen = plan.tensors.filter(tensor => isStacked(tensor.category) && isChosen(tensor));
  if (chosen.length === 0) return;
  const sizes = new Float64Array(plan.count + 1);
  for (const tensor of chosen) {
    sizes[tensor.first] += tensor.room;
    sizes[tensor.last + 1] -= tensor.room;
  }
  for (let at = 1; at < plan.count; at += 1) sizes[at] += sizes[at - 1];
  context.beginPath();
  context.moveTo(x(edges[from]), y(0));
  for (let at = from; at <= to; at += 1) {
    context.lineTo(x(edges[at]), y(sizes[at]));
    context.lineTo(x(edges[at + 1]), y(sizes[at]));
  }
  context.lineTo(x(edges[to + 1]), y(0));
  context.closePath();
  context.globalAlpha = 0.92;
  context.fillStyle = inks.accent;
  context.fill();
  context.globalAlpha = 1;
}

/** Draws the size of the arena, and what the card has for it. */
function drawLimits(plan, context, width, y) {
  const inside = state.range === "step";
  const base = inside ? plan.base : 0;
  const arena = plan.arena - base;
  const line = Math.round(y(arena)) + 0.5;
  horizontal(context, width, line, inks.ink, [5, 3]);
  const room = plan.room === null ? Infinity : plan.room - plan.line.reserve - plan.line.communication - base;
  const roomLine = Math.round(y(room)) + 0.5;
  // Labels of close lines stand on both sides of them.
  const isClose = Math.abs(roomLine - line) < 15;
  const write = (text, at, colour, isBelow) => writeOver(context, text, width - RIGHT - 4, at + (isBelow ? 16 : -2), "right", colour);
  write(`${inside ? "activations" : "arena"} ${bytes(arena)}`, line, inks.ink, isClose && roomLine < line);
  if (room < scale.live) {
    horizontal(context, width, roomLine, inks.bad);
    write(`${plan.raw.card.name} has ${bytes(room)} for ${inside ? "activations" : "the arena"}`, roomLine, inks.bad, isClose && roomLine > line);
  }
}

/** Draws the curves of another framework: bytes of its tensors, and bytes that its allocator holds. */
function drawReference(plan, context, x, y, edges) {
  const { reference } = plan.raw;
  if (!reference) return;
  // Positions are hundredths of an operation.
  const place = position => {
    const at = Math.min(plan.count - 1, Math.floor(position / 100));
    return x(edges[at] + (position / 100 - at) * (edges[at + 1] - edges[at]));
  };
  const end = x(edges[plan.count]);
  const draw = (points, dash) => {
    context.strokeStyle = inks.ink;
    context.lineWidth = 1.3;
    context.setLineDash(dash);
    context.beginPath();
    points.forEach(([position, size], index) => {
      if (index === 0) context.moveTo(x(edges[0]), y(size));
      else context.lineTo(place(position), y(points[index - 1][1]));
      context.lineTo(place(position), y(size));
    });
    context.lineTo(end, y(points[points.length - 1][1]));
    context.stroke();
    context.setLineDash([]);
  };
  const { live, reserved, name } = reference;
  if (live.length === 0 || reserved.length === 0) return;
  draw(reserved, [2, 2]);
  draw(live, []);
  const largest = points => points.reduce((best, point) => (point[1] > best[1] ? point : best));
  const [position, most] = largest(live);
  const held = largest(reserved)[1];
  writeOver(context, `${name}, reserved ${bytes(held)}`, end - 4, y(held) - 3, "right");
  // The largest sum of tensors is often close to what the allocator holds: then its label is below.
  const isClose = y(most) - y(held) < 16;
  const isLeft = place(position) < (x(edges[0]) + end) / 2;
  writeOver(context, `${name}, live ${bytes(most)}`, place(position) + (isLeft ? 5 : -5), y(most) + (isClose ? 14 : -3), isLeft ? "left" : "right");
}

/** Writes a text on a patch of the panel's colour, so that it is read over lines and areas. */
function writeOver(context, text, x, y, align, colour = inks.ink) {
  context.font = BOLD;
  context.textAlign = align;
  context.textBaseline = "bottom";
  const width = context.measureText(text).width;
  context.globalAlpha = 0.8;
  context.fillStyle = inks.panel;
  context.fillRect(align === "right" ? x - width - 2 : x - 2, y - 13, width + 4, 14);
  context.globalAlpha = 1;
  context.fillStyle = colour;
  context.fillText(text, x, y);
}

/** Draws the phases of the step with their names, below them the phase of each operation, and the axis. */
function drawPhases(pane, context, width, height) {
  const { plan, edges } = pane;
  const { phases } = plan;
  const x = pane.across(width);
  const colours = PHASE_COLOURS[isDark() ? "dark" : "light"];
  clipped(context, width, height);
  const end = pane.operationAt(width, width - RIGHT);
  for (let first = pane.operationAt(width, LEFT); first <= end; ) {
    let last = first;
    while (last < end && phases[last + 1] === phases[first]) last += 1;
    context.fillStyle = colours[phases[first]];
    context.fillRect(x(edges[first]), 15, Math.max(x(edges[last + 1]) - x(edges[first]), 0.6), 6);
    first = last + 1;
  }
  context.font = FONT;
  context.textAlign = "center";
  context.textBaseline = "middle";
  for (const { first, after, phase, names } of stretches(plan)) {
    const left = Math.max(LEFT, x(edges[first]));
    const right = Math.min(width - RIGHT, x(edges[after]));
    if (right <= left) continue;
    context.globalAlpha = 0.55;
    context.fillStyle = colours[phase];
    context.fillRect(left, 1, Math.max(right - left - 1, 1), 14);
    context.globalAlpha = 1;
    const name = names.find(text => context.measureText(text).width + 8 < right - left);
    context.fillStyle = inks.ink;
    if (name) context.fillText(name, (left + right) / 2, 8.5);
  }
  drawAxis(pane, context, width, x);
  context.restore();
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillStyle = inks.soft;
  context.font = FONT;
  context.fillText(state.axis === "operations" ? "operation" : "at least", LEFT - 6, 30);
}

/** Returns the large parts of a step, each with names of which the first that has room is shown. */
function stretches(plan) {
  const { phases, count, loss } = plan;
  const all = [{ first: 0, after: loss, phase: PHASE.forward, names: ["forward"] }];
  if (loss === count) return all;
  const afterLoss = Math.max(phases.lastIndexOf(PHASE.loss), loss) + 1;
  const backward = Math.max(phases.lastIndexOf(PHASE.backward) + 1, afterLoss);
  const updates = phases.some((phase, at) => phase === PHASE.update && at < backward) ? ", updates as gradients complete" : "";
  const again = phases.includes(PHASE.again) ? ", some recomputed" : "";
  all.push({ first: loss, after: afterLoss, phase: PHASE.loss, names: ["loss"] });
  all.push({ first: afterLoss, after: backward, phase: PHASE.backward, names: [`backward${updates}${again}`, "backward"] });
  all.push({ first: backward, after: count, phase: PHASE.update, names: ["update"] });
  return all;
}

function drawAxis(pane, context, width, x) {
  const { plan, edges } = pane;
  const [from, to] = pane.domain();
  let step = 10 ** Math.floor(Math.log10((to - from) / 6));
  step *= [1, 2, 5, 10].find(factor => (to - from) / (step * factor) <= 9) ?? 10;
  if (state.axis === "operations") step = Math.max(1, step);
  context.textBaseline = "top";
  context.fillStyle = inks.soft;
  for (let value = Math.ceil(from / step) * step; value <= to; value += step) {
    const place = x(value);
    if (place < LEFT + 8 || place > width - RIGHT - 22) continue;
    context.fillText(state.axis === "operations" ? String(Math.round(value)) : time(value), place, 25);
    context.fillRect(place - 0.5, 21, 1, 3);
  }
  const { repeated, micro_batches: parts, samples } = plan.raw;
  if (repeated === 0) return;
  const right = Math.min(x(edges[repeated]), width - RIGHT);
  const text = `${parts} times, once for each micro-batch of ${samples}`;
  context.font = BOLD;
  context.textAlign = "right";
  context.fillStyle = inks.ink;
  context.fillRect(LEFT, 21.5, Math.max(0, right - LEFT), 1.5);
  context.fillStyle = inks.panel;
  const room = context.measureText(text).width + 8;
  context.fillRect(right - room, 23, room, 14);
  context.fillStyle = inks.ink;
  context.fillText(text, right - 4, 25);
}

/** Draws the bytes in host memory. */
function drawHost(pane, context, width, height) {
  const { plan, edges } = pane;
  const most = scale.host * 1.25;
  const x = pane.across(width);
  const y = size => height - 2 - (size / most) * (height - 8);
  drawGrid(context, [width, height], [0, most], y, 2);
  clipped(context, width, height);
  context.beginPath();
  context.moveTo(x(0), y(0));
  for (let at = 0; at < plan.count; at += 1) {
    context.lineTo(x(edges[at]), y(plan.host[at]));
    context.lineTo(x(edges[at + 1]), y(plan.host[at]));
  }
  context.lineTo(x(edges[plan.count]), y(0));
  context.closePath();
  context.fillStyle = colourOf(plan.categories.findIndex(category => category.where === "host"));
  context.fill();
  context.restore();
}
