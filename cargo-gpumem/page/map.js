// The arena as a map: operations across, offsets upwards, a rectangle for each tensor.

/** The share of opacity of tensors that are hidden or do not match a search, and of those that are not chosen. */
const HIDDEN = 0.08;
const NOT_CHOSEN = 0.28;

/** Returns the vertical scale of a map of this height. */
function mapScale(pane, height) {
  const [low, high] = pane.offsetRange();
  return {
    low,
    high,
    y: offset => height - 2 - ((offset - low) / (high - low)) * (height - 22),
    offset: y => low + ((height - 2 - y) / (height - 22)) * (high - low),
  };
}

/** Returns how opaque a tensor is. */
function opacity(tensor, plan) {
  if (!isShown(tensor.category) || !matches(tensor, plan)) return HIDDEN;
  if (state.layer !== null) return belongsTo(tensor, state.layer) ? 1 : NOT_CHOSEN;
  if (state.tensor !== null && state.tensor.plan === plan) return plan.livesOf(state.tensor.tensor).includes(tensor) ? 1 : NOT_CHOSEN;
  return 1;
}

/**
 * Draws all tensors that are in view. Rectangles lie on whole rows of pixels, so that neighbours meet. One that is thinner than a row is drawn
 * only where no other has painted that row yet, so that thousands of them cost little.
 */
function drawMap(pane, context, width, height) {
  const { plan, edges } = pane;
  const x = pane.across(width);
  const { low, high, y } = mapScale(pane, height);
  drawGrid(context, [width, height], [low, high], y, 5, state.range === "all" ? 0 : plan.base);
  clipped(context, width, height);
  const paintedUntil = new Float64Array(Math.ceil(height) + 2).fill(-Infinity);
  const labels = [];
  pane.drawn = 0;
  pane.merged = 0;
  for (const tensor of plan.byFirst) {
    const left = x(edges[tensor.first]);
    const right = x(edges[tensor.last + 1]);
    const top = y(tensor.offset + tensor.room);
    const bottom = y(tensor.offset);
    if (right < LEFT || left > width - RIGHT || bottom < 0 || top > height) continue;
    if (bottom - top < 1) {
      const row = Math.max(0, Math.floor(top));
      if (paintedUntil[row] >= right - 0.5) {
        pane.merged += 1;
        continue;
      }
      paintedUntil[row] = right;
    }
    const alpha = opacity(tensor, plan);
    context.globalAlpha = alpha;
    context.fillStyle = paint(context, tensor.category);
    const upper = Math.round(top);
    const lower = Math.max(upper + 1, Math.round(bottom));
    // A hair of background between rectangles that have room for it.
    const gap = bottom - top > 5 ? 1 : bottom - top > 3 ? 0.5 : 0;
    context.fillRect(left, upper, Math.max(right - left - (right - left > 4 ? 0.6 : 0), 0.8), lower - upper - gap);
    pane.drawn += 1;
    if (bottom - top > 12 && right - left > 46 && alpha === 1) {
      labels.push({ tensor, left: Math.max(left, LEFT), right: Math.min(right, width - RIGHT), middle: (top + bottom) / 2 });
    }
  }
  context.globalAlpha = 1;
  labels.forEach(label => drawLabel(context, label));
  if (state.range === "all" && plan.base > low && plan.base < high) horizontal(context, width, Math.round(y(plan.base)) + 0.5, inks.ink, [2, 3]);
  if (y(plan.arena) > 4) horizontal(context, width, Math.round(y(plan.arena)) + 0.5, inks.ink, [5, 3]);
  context.restore();
}

/** Writes the name of a tensor into its rectangle, or the end of the name that has room there. */
function drawLabel(context, { tensor, left, right, middle }) {
  const parts = tensor.name.split(".");
  const names = parts.map((_, from) => parts.slice(from).join("."));
  names.push(tensor.layer.split(".").pop());
  context.font = `10.5px ${FONT.slice(5)}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  const name = names.find(text => context.measureText(text).width <= right - left - 8);
  if (!name) return;
  const colour = colourOf(tensor.category);
  if (isHatched(tensor.category)) {
    context.fillStyle = colour;
    context.fillRect(left + 2, middle - 6, context.measureText(name).width + 5, 12);
  }
  context.fillStyle = inkOn(colour);
  context.fillText(name, left + 4, middle + 0.5);
}

/** Draws a frame around a tensor, and returns the middle of its height. */
function drawFrame(pane, context, tensor, [width, height], colour, lineWidth) {
  const x = pane.across(width);
  const { y } = mapScale(pane, height);
  const left = x(pane.edges[tensor.first]);
  const top = y(tensor.offset + tensor.room);
  const frameWidth = Math.max(2, x(pane.edges[tensor.last + 1]) - left);
  const frameHeight = Math.max(2, y(tensor.offset) - top);
  context.strokeStyle = colour;
  context.lineWidth = lineWidth;
  context.strokeRect(left - 0.5, top - 0.5, frameWidth + 1, frameHeight + 1);
  return top + frameHeight / 2;
}

/** Draws dashed frames around the other lives of a chosen tensor, and a line from each to the next. */
function drawLives(pane, context, tensor, [width, height]) {
  const lives = pane.plan.livesOf(tensor).filter(life => !life.onHost);
  if (lives.length < 2) return;
  const x = pane.across(width);
  context.setLineDash([4, 3]);
  const middles = lives.map(life => drawFrame(pane, context, life, [width, height], inks.ink, 1.5));
  context.beginPath();
  lives.slice(1).forEach((life, index) => {
    context.moveTo(x(pane.edges[lives[index].last + 1]), middles[index]);
    context.lineTo(x(pane.edges[life.first]), middles[index + 1]);
  });
  context.stroke();
  context.setLineDash([]);
}

/** Draws the frame of a chosen tensor, with a square at each of its uses: full for a write, empty for a read. */
function drawUses(pane, context, tensor, [width, height]) {
  const x = pane.across(width);
  const middle = drawFrame(pane, context, tensor, [width, height], inks.ink, 2.5);
  for (const use of tensor.uses) {
    const place = x((pane.edges[use.at] + pane.edges[use.at + 1]) / 2);
    if (place < LEFT || place > width) continue;
    context.fillStyle = use.writes ? inks.ink : inks.panel;
    context.strokeStyle = inks.ink;
    context.lineWidth = 1.5;
    context.beginPath();
    context.rect(place - 3.5, middle - 3.5, 7, 7);
    context.fill();
    context.stroke();
  }
}

/** Returns the tensor at a place of the map, or one that is at most three pixels away. */
function tensorAt(pane, px, py) {
  const [width, height] = pane.size.map;
  const at = pane.operationAt(width, px);
  const { offset } = mapScale(pane, height);
  const here = offset(py);
  const bytesPerPixel = Math.abs(offset(0) - offset(1));
  let found = null;
  let nearest = 3;
  for (const tensor of pane.plan.tensors) {
    if (tensor.onHost || tensor.first > at || tensor.last < at || !isShown(tensor.category)) continue;
    const end = tensor.offset + tensor.room;
    const distance = here < tensor.offset ? (tensor.offset - here) / bytesPerPixel : here >= end ? (here - end) / bytesPerPixel : 0;
    if (distance < nearest) {
      nearest = distance;
      found = tensor;
    }
  }
  return found;
}
