// The state of the page, and the changes of it that several parts of the page make.

const plans = JSON.parse(byId("data").textContent).map(raw => new Plan(raw));

const state = {
  /** Index of the plan that lists and table show; `both` is true if the pictures show two. */
  plan: 0,
  both: plans.length > 1,
  /** The chosen operation of each plan. */
  operations: plans.map(plan => plan.peak),
  /** The chosen tensor with its plan, and the chosen layer. At most one of them is not `null`. */
  tensor: null,
  layer: null,
  /** The horizontal axis, `operations` or `time`, and the part of it that is shown, from 0 to 1. */
  axis: "operations",
  view: [0, 1],
  /** The range of the arena: `all`, or `step` for what lives inside the step. */
  range: "all",
  /** Numbers of hidden categories. */
  hidden: new Set(),
  words: [],
  onlyLive: false,
  sort: { key: "bytes", ascending: false },
  tab: "live",
  grouping: "tensors",
  /** The number of entries of a long list that are shown beyond the first ones. */
  more: 0,
  /** What the pointer is over: `{ pane, at, tensor }`. */
  hover: null,
};

const current = () => plans[state.plan];
const shownPlans = () => (state.both ? plans : [current()]);
const letterOf = plan => String.fromCharCode(65 + plans.indexOf(plan));
const operationOf = plan => state.operations[plans.indexOf(plan)];
const isNarrow = () => window.innerWidth <= 1080;

/** True if pictures show a category. */
const isShown = category => !state.hidden.has(category);

/** True if the curve of live bytes has a category. */
const isStacked = category => {
  const where = current().categories[category].where;
  return isShown(category) && where !== "host" && (state.range === "all" || where === "step");
};

/** True if a tensor has all words that were searched for. */
function matches(tensor, plan) {
  if (state.words.length === 0) return true;
  tensor.text ??= [tensor.name, tensor.layer, plan.categories[tensor.category].name, tensor.source, tensor.shape].join(" ").toLowerCase();
  return state.words.every(word => tensor.text.includes(word));
}

// Colours.

const isDark = () => document.documentElement.dataset.theme === "dark";
let inks = {};

/** Reads the colours of the style sheet, which canvases cannot use by name. */
function readInks() {
  const style = getComputedStyle(document.documentElement);
  const names = ["panel", "ink", "soft", "faint", "line", "grid", "accent", "bad"];
  inks = Object.fromEntries(names.map(name => [name, style.getPropertyValue(`--${name}`).trim()]));
}

const colourOf = category => plans[0].categories[category][isDark() ? "dark" : "light"];
const isHatched = category => plans[0].categories[category].hatched;

/** Returns the style of a piece of HTML in the colour of a category. */
const fillStyle = category => ({
  backgroundColor: colourOf(category),
  backgroundImage: isHatched(category) ? "repeating-linear-gradient(45deg, transparent 0 2px, var(--panel) 2px 3.5px)" : "none",
});
const swatch = category => element("i", { class: "swatch", style: fillStyle(category) });

/** Returns black or white, whichever is read better on a colour. */
function inkOn(colour) {
  const [r, g, b] = [1, 3, 5].map(at => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.3 ? "#101215" : "#fff";
}

// Drawing: once for each frame, however much has changed.

let panes = [];
let frame = null;
const frameTimes = [];

/** Draws the pictures in the next frame; with `onlyPointer` only the layers that follow the pointer. */
function redraw(onlyPointer = false) {
  if (frame) {
    frame.onlyPointer &&= onlyPointer;
    return;
  }
  frame = { onlyPointer };
  requestAnimationFrame(() => {
    const begun = performance.now();
    const { onlyPointer: only } = frame;
    frame = null;
    if (!only) measureScale();
    panes.forEach(pane => (only ? pane.drawPointer() : pane.draw()));
    frameTimes.push(performance.now() - begun);
    if (frameTimes.length > 240) frameTimes.shift();
  });
}

/** The largest sizes of all plans that are shown, so that they have one scale. */
let scale = null;

function measureScale() {
  const shown = shownPlans();
  let live = 1;
  for (const plan of shown) {
    const stacked = plan.live.filter((_, category) => isStacked(category));
    for (let at = 0; at < plan.count; at += 1) live = Math.max(live, stacked.reduce((sum, sizes) => sum + sizes[at], 0));
    const reference = state.range === "all" && state.hidden.size === 0 ? plan.raw.reference : null;
    if (reference) for (const [, size] of [...reference.live, ...reference.reserved]) live = Math.max(live, size);
  }
  const most = of => Math.max(...shown.map(of));
  scale = {
    live: live * 1.13,
    arena: most(plan => plan.arena),
    step: most(plan => plan.arena - plan.base) || 1,
    host: most(plan => plan.host.reduce((a, b) => Math.max(a, b), 0)) || 1,
  };
}

// Changes.

function say(text) {
  byId("said").textContent = text;
}

/** Shows a part of the horizontal axis, as wide as asked, moved so that it is inside of it. */
function setView([from, to]) {
  const width = Math.min(1, to - from);
  const start = Math.max(0, Math.min(1 - width, from));
  state.view = [start, start + width];
  redraw();
  saveAddress();
}

/** Chooses an operation, and shows it if it is out of view. */
function setOperation(plan, wanted) {
  const at = Math.max(0, Math.min(plan.count - 1, wanted));
  state.operations[plans.indexOf(plan)] = at;
  const edges = plan.edges[state.axis];
  const [from, to] = state.view;
  const place = edges[at] / edges[plan.count];
  if (place < from || place >= to) setView([place - (to - from) / 2, place + (to - from) / 2]);
  redraw(true);
  drawPanel();
  if (state.onlyLive) drawTable();
  saveAddress();
  say(`operation ${at}, ${plan.operation(at)}, ${bytes(plan.sum[at])} live`);
}

/** Chooses a tensor, or none. `at` is the operation to choose with it. */
function selectTensor(plan, tensor, at) {
  state.tensor = tensor ? { plan, tensor } : null;
  state.layer = null;
  state.plan = plans.indexOf(plan);
  if (tensor) {
    state.tab = "tensor";
    const now = operationOf(plan);
    const isLive = tensor.first <= now && now <= tensor.last;
    state.operations[state.plan] = at ?? (isLive ? now : tensor.first);
    say(`${tensor.name}, ${bytes(tensor.bytes)}, live from operation ${tensor.first} to ${tensor.last}`);
  } else if (state.tab === "tensor") {
    state.tab = "live";
  }
  redraw();
  drawPanel();
  drawTable({ reveal: true });
  saveAddress();
}

/** Chooses a layer or a block, or none if it is chosen already. */
function selectLayer(layer) {
  state.layer = state.layer === layer ? null : layer;
  state.tensor = null;
  redraw();
  drawPanel();
}

function setAxis(axis) {
  state.axis = axis;
  byId("axis-operations").setAttribute("aria-pressed", axis === "operations");
  byId("axis-time").setAttribute("aria-pressed", axis === "time");
  setView([0, 1]);
}

function setRange(range) {
  state.range = range;
  panes.forEach(pane => (pane.offsets = null));
  byId("range-all").setAttribute("aria-pressed", range === "all");
  byId("range-step").setAttribute("aria-pressed", range === "step");
  redraw();
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  readInks();
  drawHead();
  drawPanel();
  drawTable();
  redraw();
}

/** Shows all operations, and the whole range of the arena. */
function showAll() {
  panes.forEach(pane => (pane.offsets = null));
  setView([0, 1]);
}

// The address keeps the place, so that it can be sent together with the file.

let saving = 0;

function saveAddress() {
  clearTimeout(saving);
  saving = setTimeout(() => {
    const place = new URLSearchParams();
    if (operationOf(current()) !== current().peak) place.set("op", operationOf(current()));
    if (state.tensor) place.set("tensor", state.tensor.tensor.index);
    if (state.view[1] - state.view[0] < 1) place.set("view", state.view.map(edge => edge.toFixed(4)).join("-"));
    if (state.axis !== "operations") place.set("axis", state.axis);
    // A file in some frames may not change its address. The page does without.
    try {
      history.replaceState(null, "", `#${place}`);
    } catch {}
  }, 300);
}

/** Returns a number of the address that is at least 0 and below `end`; `null` if it has none. */
function placeNumber(place, name, end) {
  const value = Number(place.get(name) ?? NaN);
  return Number.isInteger(value) && value >= 0 && value < end ? value : null;
}

/** Takes over the place in the address. Whatever is not of this plan is left alone. */
function readAddress() {
  const place = new URLSearchParams(location.hash.slice(1));
  const plan = current();
  const at = placeNumber(place, "op", plan.count);
  if (at !== null) state.operations[0] = at;
  const index = placeNumber(place, "tensor", plan.tensors.length);
  if (index !== null) {
    state.tensor = { plan, tensor: plan.tensors[index] };
    state.tab = "tensor";
  }
  const view = (place.get("view") ?? "").split("-").map(Number);
  if (view.length === 2 && view.every(edge => edge >= 0 && edge <= 1) && view[0] < view[1]) state.view = view;
  if (place.get("axis") === "time" && hasTimes()) state.axis = "time";
  return { theme: place.get("theme"), tab: place.get("tab"), range: place.get("range") };
}

/** True if the card's rates are known, so that operations have times. */
const hasTimes = () => plans.every(plan => plan.raw.least_us > 0);

/** Returns what a plan is, in one line. */
function label(plan) {
  const { raw } = plan;
  const parts = raw.micro_batches > 1 ? ` in ${raw.micro_batches} micro-batches` : "";
  const ranks = raw.ranks > 1 ? `${raw.ranks} ranks` : "";
  return [raw.title, `batch ${raw.batch}${parts}`, raw.precision, ranks, ...raw.settings, raw.card?.name].filter(Boolean).join(", ");
}
