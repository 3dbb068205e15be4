// Files that the page saves: its pictures, its plan, and its tensors.

/** The least size of a picture, and the height of its parts. */
const LEAST = { width: 900, curve: 220, map: 260 };
const PNG_RATIO = 2;

/** Draws the pictures of a pane one below the other, with a title and the legend, as SVG or PNG. Returns a promise of a blob. */
function pictureFile(format) {
  const pane = panes.find(candidate => candidate.plan === current()) ?? panes[0];
  const { plan } = pane;
  const width = Math.max(LEAST.width, pane.size.curve[0]);
  const heights = {
    curve: Math.max(LEAST.curve, pane.size.curve[1]),
    phases: 38,
    map: Math.max(LEAST.map, pane.size.map[1]),
    host: plan.hasHost ? 62 : 0,
  };
  const top = 58;
  const pictures = Object.values(heights).reduce((sum, height) => sum + height, 0);
  const height = top + pictures + legendHeight(plan, width) + 10;
  const canvas = format === "png" ? element("canvas", { width: width * PNG_RATIO, height: height * PNG_RATIO }) : null;
  const context = canvas ? canvas.getContext("2d") : new SvgContext(width, height);
  if (canvas) context.scale(PNG_RATIO, PNG_RATIO);
  context.fillStyle = inks.panel;
  context.fillRect(0, 0, width, height);
  drawTitle(context, plan);
  let y = top;
  for (const [name, partHeight] of Object.entries(heights)) {
    if (partHeight === 0) continue;
    context.save();
    context.translate(0, y);
    PICTURES[name](pane, context, width, partHeight);
    context.restore();
    y += partHeight;
  }
  eachLegend(plan, width, (category, left, line) => drawLegendEntry(context, plan, category, left, y + 16 + line * LEGEND_LINE));
  if (!canvas) return Promise.resolve(new Blob([context.toString(label(plan))], { type: "image/svg+xml" }));
  return new Promise(done => canvas.toBlob(done, "image/png"));
}

function drawTitle(context, plan) {
  context.textAlign = "left";
  context.textBaseline = "top";
  context.fillStyle = inks.ink;
  context.font = "600 15px system-ui, DejaVu Sans, sans-serif";
  context.fillText(label(plan), 14, 10);
  context.fillStyle = inks.soft;
  context.font = "12px system-ui, DejaVu Sans, sans-serif";
  const { card } = plan.raw;
  const fits = card ? `; ${card.name} has ${bytes(card.usable)}` : "";
  context.fillText(`arena ${bytes(plan.arena)}, peak at operation ${plan.peak}: ${plan.operation(plan.peak)}${fits}`, 14, 33);
}

const LEGEND_LINE = 18;

/** Calls `entry` with each category of the picture, its left edge and its line. Returns the number of lines. */
function eachLegend(plan, width, entry) {
  let left = 14;
  let line = 0;
  plan.categories.forEach((category, index) => {
    if (!plan.present[index] || !isShown(index) || category.where === "host") return;
    const room = 28 + category.name.length * 6.4;
    if (left + room > width) {
      left = 14;
      line += 1;
    }
    entry(index, left, line);
    left += room;
  });
  return line + 1;
}

const legendHeight = (plan, width) => 8 + eachLegend(plan, width, () => {}) * LEGEND_LINE;

function drawLegendEntry(context, plan, category, left, y) {
  context.font = FONT;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillStyle = paint(context, category);
  context.fillRect(left, y - 5, 10, 10);
  context.fillStyle = inks.ink;
  context.fillText(plan.categories[category].name, left + 14, y);
}

/** Returns the tensors as lines of comma-separated values, as `cargo gpumem timeline -o tensors.csv` writes them. */
function csvText(plan) {
  const quoted = text => (/[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text);
  const line = tensor => {
    const category = plan.categories[tensor.category].name.replaceAll(" ", "-");
    const texts = [tensor.name, category, plan.path(tensor.row), tensor.shape].map(quoted);
    return [...texts, tensor.bytes, tensor.offset, tensor.first, tensor.last, quoted(tensor.source)].join(",");
  };
  return ["tensor,category,layer,shape,bytes,offset,first,last,source", ...plan.tensors.map(line), ""].join("\n");
}

async function save(format) {
  const plan = current();
  const texts = { json: () => JSON.stringify(plan.raw), csv: () => csvText(plan) };
  const types = { json: "application/json", csv: "text/csv" };
  const blob = format in texts ? new Blob([texts[format]()], { type: types[format] }) : await pictureFile(format);
  const address = URL.createObjectURL(blob);
  element("a", { href: address, download: `${plan.raw.network.replace(/[^\w]+/g, "-")}-timeline.${format}` }).click();
  // The browser has read the address by then.
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Opens or closes the menu of formats. */
function toggleMenu(isOpen) {
  byId("export").querySelector("[role=menu]").hidden = !isOpen;
  byId("export-button").setAttribute("aria-expanded", isOpen);
}
