// Keys, buttons, and the start of the page.

const KEYS = [
  ["\u2190 \u2192", "an operation back or on; with Shift ten"],
  ["[ ]", "the largest change of live bytes within the 60 operations before or after"],
  ["P", "the peak"],
  ["Home End", "the first and the last operation"],
  ["+ \u2212 0", "zoom in, out, all"],
  ["\u2191 \u2193", "in the table: the tensor above or below"],
  ["/", "search"],
  ["X", "operations or time"],
  ["M", "whole arena or inside the step"],
  ["1 2 3 4", "live, tensor, budget, what if"],
  ["T", "light or dark"],
  ["Esc", "choose nothing"],
  ["wheel", "zoom along operations; with Shift over the map along offsets"],
  ["drag", "move"],
  ["double\u00a0click", "all again"],
];
const NEARBY = 60;

/** Goes to the operation near the chosen one at which live bytes change most. */
function jump(direction) {
  const plan = current();
  const from = operationOf(plan);
  let best = from;
  let most = 0;
  for (let step = 1; step <= NEARBY; step += 1) {
    const at = from + direction * step;
    if (at < 1 || at >= plan.count) break;
    const change = Math.abs(plan.sum[at] - plan.sum[at - 1]);
    if (change > most) [most, best] = [change, at];
  }
  setOperation(plan, best);
}

/** Returns what a key does; `undefined` if nothing. */
function actionOf(event) {
  const plan = current();
  const at = operationOf(plan);
  const pane = panes.find(candidate => candidate.plan === plan) ?? panes[0];
  const step = event.shiftKey ? 10 : 1;
  const isInTable = document.activeElement === byId("rows");
  const actions = {
    ArrowLeft: () => setOperation(plan, at - step),
    ArrowRight: () => setOperation(plan, at + step),
    "[": () => jump(-1),
    "]": () => jump(1),
    p: () => {
      state.tab = "live";
      setOperation(plan, plan.peak);
    },
    Home: () => setOperation(plan, 0),
    End: () => setOperation(plan, plan.count - 1),
    "+": () => pane.zoom(0.7, 0.5),
    "=": () => pane.zoom(0.7, 0.5),
    "-": () => pane.zoom(1 / 0.7, 0.5),
    0: showAll,
    "/": () => byId("search").focus(),
    x: hasTimes() ? () => setAxis(state.axis === "operations" ? "time" : "operations") : undefined,
    m: () => setRange(state.range === "all" ? "step" : "all"),
    t: () => setTheme(isDark() ? "light" : "dark"),
    "?": () => byId("keys").showModal(),
    Escape: () => {
      toggleMenu(false);
      selectTensor(plan, null);
    },
    ArrowUp: isInTable ? () => moveRow(-1) : undefined,
    ArrowDown: isInTable ? () => moveRow(1) : undefined,
    1: () => setTab("live"),
    2: () => setTab("tensor"),
    3: () => setTab("budget"),
    4: () => setTab("alternatives"),
  };
  return actions[event.key.length === 1 ? event.key.toLowerCase() : event.key];
}

function pressed(event) {
  if (event.target.id === "search") {
    if (event.key === "Escape") {
      event.target.value = "";
      event.target.blur();
      search("");
    }
    return;
  }
  // Home, End and the arrows scroll lists that have the focus.
  const isList = document.activeElement === byId("panel");
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open || (isList && /^(Home|End|Arrow)/.test(event.key))) return;
  const action = actionOf(event);
  if (!action) return;
  event.preventDefault();
  action();
}

function search(text) {
  state.words = text.toLowerCase().split(/\s+/).filter(Boolean);
  drawTable();
  redraw();
}

function drawKeys() {
  const key = text => [element("kbd", {}, text), " "];
  const row = ([keys, about]) => element("tr", {}, element("td", {}, keys.split(" ").flatMap(key)), element("td", {}, about));
  const close = element("button", { class: "close", on: { click: () => byId("keys").close() } }, "Close");
  byId("keys").replaceChildren(element("h3", {}, "Keys"), element("table", {}, KEYS.map(row)), close);
}

/** Draws everything, after other plans are shown. */
function drawAll() {
  panes = shownPlans().map(plan => new Pane(plan));
  byId("panes").replaceChildren(...panes.map(pane => pane.node));
  document.body.classList.toggle("two", panes.length > 1);
  drawHead();
  drawTable();
  drawPanel();
  redraw();
}

function listen() {
  const on = (id, event, listener) => byId(id).addEventListener(event, listener);
  on("axis-operations", "click", () => setAxis("operations"));
  on("axis-time", "click", () => setAxis("time"));
  on("range-all", "click", () => setRange("all"));
  on("range-step", "click", () => setRange("step"));
  on("fit", "click", showAll);
  on("theme", "click", () => setTheme(isDark() ? "light" : "dark"));
  on("help", "click", () => byId("keys").showModal());
  on("export-button", "click", event => {
    event.stopPropagation();
    toggleMenu(byId("export-button").getAttribute("aria-expanded") !== "true");
  });
  document.addEventListener("click", () => toggleMenu(false));
  document.querySelectorAll("[data-format]").forEach(button => button.addEventListener("click", () => save(button.dataset.format)));
  on("search", "input", event => search(event.target.value));
  on("only-live", "change", event => {
    state.onlyLive = event.target.checked;
    drawTable();
  });
  byId("rows").addEventListener("scroll", drawRows, { passive: true });
  document.addEventListener("keydown", pressed);
  const resized = () => {
    panes.forEach(pane => (pane.size = null));
    redraw();
    drawRows();
  };
  new ResizeObserver(resized).observe(byId("panes"));
}

function start() {
  const begun = performance.now();
  const place = readAddress();
  const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  document.documentElement.dataset.theme = ["light", "dark"].includes(place.theme) ? place.theme : preferred;
  readInks();
  byId("axis").hidden = !hasTimes();
  if (state.axis === "time") byId("axis-time").setAttribute("aria-pressed", true);
  if (state.axis === "time") byId("axis-operations").setAttribute("aria-pressed", false);
  if (state.both) state.tab = "budget";
  if (place.tab) state.tab = place.tab;
  drawKeys();
  drawAll();
  // Where most of the arena lasts, the pictures begin with the rest of it.
  const lasting = current().base / current().arena;
  const isStep = lasting > 0.5 && !state.both && !current().raw.reference;
  setRange(["all", "step"].includes(place.range) ? place.range : isStep ? "step" : "all");
  listen();
  // For tests and scripts.
  window.gpumem = {
    plans, state, colourOf, isHatched, opacity, setView, setRange, setTheme, setOperation, selectTensor, pictureFile, csvText,
    panes: () => panes,
    mapScale,
    frameTimes: () => frameTimes,
    ready: performance.now() - begun,
  };
}

start();
