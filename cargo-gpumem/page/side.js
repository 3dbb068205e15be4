// The details beside the pictures: what is live, the chosen tensor, the budget, and alternatives.

const LINE_MEANINGS = {
  weights: "every parameter, in the format of the precision",
  master: "f32 copies of the 16-bit weights that are trained",
  gradients: "kept until the end of the step; 0 if each is used at once",
  optimizer: "state that the optimizer keeps for each parameter",
  ema: "moving averages of the weights, in f32",
  buffers: "running statistics, step counter, seed",
  batch_io: "inputs and targets; in training twice, to fill one half ahead",
  cache: "keys and values of earlier time steps",
  activations: "everything that lives inside the step, packed by live range",
  arena: "all of these in one allocation, each tensor padded to 256 bytes",
  reserve: "context, modules and library handles, beside the arena",
  communication: "the library with which ranks exchange tensors",
  total: "what must be at most the usable memory of the card",
};
/** Entries of a list before its end is folded away. */
const FIRST_ENTRIES = { wide: 60, narrow: 16 };
const MOST_LAYERS = 80;
/** Operations without a use after which a tensor is said to be idle. */
const IDLE = 4;

function drawPanel() {
  const plan = current();
  const tabs = [["live", "Live", liveTab]];
  if (state.tensor) tabs.push(["tensor", "Tensor", tensorTab]);
  tabs.push(state.both ? ["budget", "Difference", differenceTab] : ["budget", "Budget", budgetTab]);
  if (plan.raw.alternatives.length > 0) tabs.push(["alternatives", "What if", alternativesTab]);
  const chosen = tabs.find(([id]) => id === state.tab) ?? tabs[0];
  [state.tab] = chosen;
  const button = ([id, text]) =>
    element("button", { role: "tab", id: `tab-${id}`, "aria-controls": "panel", "aria-selected": String(id === state.tab), on: { click: () => setTab(id) } }, text);
  byId("tabs").replaceChildren(...tabs.map(button));
  byId("panel").setAttribute("aria-labelledby", `tab-${state.tab}`);
  byId("panel").replaceChildren(...chosen[2](plan).filter(Boolean));
}

function setTab(tab) {
  state.tab = tab;
  drawPanel();
}

/** Returns an entry of a list: a name, a size with its share, a bar by category, and a line that says why. */
function item({ name, size, share, parts, most, why, isChosen, click }) {
  const [nameLength, whyLength] = isNarrow() ? [90, 120] : [37, 60];
  const bar = parts.map(([category, part]) => element("i", { style: { width: `${(100 * part) / most}%`, ...fillStyle(category) } }));
  return element(
    "button",
    { class: "item", "aria-pressed": String(isChosen), on: { click } },
    element("span", { class: "name", title: name }, shortened(name, nameLength)),
    element("span", { class: "size", title: exactBytes(size) }, `${bytes(size)} `, element("b", {}, share)),
    element("span", { class: "share" }, bar),
    why ? element("span", { class: "why", title: why }, shortened(why, whyLength)) : null,
  );
}

/** Shows what is live at the chosen operation: tensors, layers or blocks, the largest first. */
function liveTab(plan) {
  const at = operationOf(plan);
  const live = plan.liveAt(at).filter(tensor => isShown(tensor.category)).sort((a, b) => b.room - a.room);
  const sum = live.reduce((total, tensor) => total + tensor.room, 0);
  const grouping = (id, text) => {
    const click = () => {
      state.grouping = id;
      drawPanel();
    };
    return element("button", { "aria-pressed": String(state.grouping === id), on: { click } }, text);
  };
  const groupings = [grouping("tensors", "Tensors"), grouping("layers", "Layers"), grouping("blocks", "Blocks")];
  const below = at === plan.peak ? ": the peak" : `, ${bytes(plan.sum[plan.peak] - plan.sum[at])} below the peak`;
  return [
    element("h3", {}, breakable(plan.operation(at))),
    element("p", {}, `Operation ${at} of ${plan.count}, ${PHASE_NAMES[plan.phases[at]]}. ${bytes(sum)} live in ${plural(live.length, "tensor")}${below}.`),
    sourceOf(plan, plan.raw.operations.layer[at]),
    element("div", { class: "group", role: "group", "aria-label": "Grouping" }, groupings),
    ...(state.grouping === "tensors" ? liveTensors(plan, live, sum, at) : liveGroups(plan, live, sum)),
  ];
}

/** Returns the source lines of a layer; `null` if they are unknown. */
function sourceOf(plan, layer) {
  const places = plan.source(layer);
  if (places.length === 0) return null;
  return element("p", {}, `Written at ${places.join(", called at ")}.`);
}

function liveTensors(plan, live, sum, at) {
  const first = state.more + (isNarrow() ? FIRST_ENTRIES.narrow : FIRST_ENTRIES.wide);
  const entry = tensor =>
    item({
      name: tensor.name,
      size: tensor.room,
      share: percent(tensor.room, sum),
      parts: [[tensor.category, tensor.room]],
      most: live[0].room,
      why: waitsFor(plan, tensor, at),
      isChosen: state.tensor?.tensor === tensor,
      click: () => selectTensor(plan, tensor, at),
    });
  const entries = live.slice(0, first).map(entry);
  const rest = live.slice(first);
  if (rest.length > 0) {
    const size = rest.reduce((total, tensor) => total + tensor.room, 0);
    const more = () => {
      state.more += 400;
      drawPanel();
    };
    entries.push(element("p", {}, link(`and ${number(rest.length)} smaller ones, ${bytes(size)}`, more)));
  }
  return entries;
}

/** Says why a tensor is live at an operation. */
function waitsFor(plan, tensor, at) {
  if (!tensor.inside) return plan.categories[tensor.category].meaning;
  if (tensor.first === at && tensor.last === at) return "of this operation alone";
  if (tensor.last === at) return "used here for the last time";
  const next = tensor.uses.find(use => use.at > at);
  const isUsedHere = tensor.uses.some(use => use.at === at);
  if (!next) return `kept until ${tensor.last}  ${plan.operation(tensor.last)}`;
  return `${isUsedHere ? "used here, then by" : "waits for"} ${next.at}  ${plan.operation(next.at)}`;
}

function liveGroups(plan, live, sum) {
  const key = state.grouping === "layers" ? tensor => tensor.layer : tensor => blockOf(tensor.layer);
  const groups = bySize(live, key);
  const entry = ([name, size]) => {
    const own = live.filter(tensor => key(tensor) === name);
    const row = plan.raw.layers.path.indexOf(name);
    const [source] = plan.source(row);
    const facts = [plural(own.length, "tensor"), row >= 0 ? plan.raw.layers.kind[row] : "", source ?? ""];
    return item({
      name,
      size,
      share: percent(size, sum),
      parts: bySize(own, tensor => tensor.category).sort((a, b) => a[0] - b[0]),
      most: groups[0][1],
      why: facts.filter(Boolean).join("  "),
      isChosen: state.layer === name,
      click: () => selectLayer(name),
    });
  };
  return groups.slice(0, MOST_LAYERS).map(entry);
}

/** Shows the chosen tensor: its facts and its uses. */
function tensorTab() {
  const { plan, tensor } = state.tensor;
  const category = plan.categories[tensor.category];
  const lives = tensor.inside ? `operations ${tensor.first} to ${tensor.last}: ${tensor.last - tensor.first + 1} of ${plan.count}` : "as long as the network";
  const facts = [
    ["category", `${category.name}: ${category.meaning}`],
    ["layer", tensor.layer],
    ["source", plan.source(tensor.row).join(", called at ")],
    ["shape", tensor.shape + (tensor.shape.startsWith("B") ? `, B = ${plan.raw.samples}` : "")],
    ["bytes", exactBytes(tensor.bytes) + (tensor.room > tensor.bytes ? `, padded to ${number(tensor.room)}` : "")],
    ["offset", exactBytes(tensor.offset) + (tensor.onHost ? " in host memory" : "")],
    ["live", lives],
  ];
  const list = facts.filter(([, value]) => value).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]);
  return [
    element("h3", {}, swatch(tensor.category), breakable(tensor.name)),
    element("dl", {}, list),
    idleWords(plan, tensor),
    ...livesItems(plan, tensor),
    element("p", {}, link("mark all tensors of this layer", () => selectLayer(tensor.layer))),
    element("h3", {}, `Used by ${plural(tensor.uses.length, "operation")}`),
    ...tensor.uses.slice(0, MOST_LAYERS).map(use => useItem(plan, use)),
  ];
}

/** Returns the lives of a tensor that goes to host memory and back, each to choose. Empty for other tensors. */
function livesItems(plan, tensor) {
  const lives = plan.livesOf(tensor);
  if (lives.length < 2) return [];
  const places = ["in the arena, until it leaves", "in host memory", "in the arena again"];
  const entry = (life, index) =>
    element(
      "button",
      { class: "item", "aria-pressed": String(life === tensor), on: { click: () => selectTensor(plan, life) } },
      element("span", { class: "name" }, places[index]),
      element("span", { class: "size" }, `${life.first} to ${life.last}`),
    );
  return [element("h3", {}, "Parked in host memory"), ...lives.map(entry)];
}

function useItem(plan, use) {
  const name = plan.operation(use.at);
  const what = [use.reads ? "reads" : "", use.writes ? "writes" : ""].filter(Boolean).join(", ");
  return element(
    "button",
    { class: "item", on: { click: () => setOperation(plan, use.at) } },
    element("span", { class: "name", title: name }, `${use.at}  ${shortened(name, isNarrow() ? 90 : 38)}`),
    element("span", { class: "size" }, what),
  );
}

/** Says how long nothing touches a tensor: memory that recomputation or offload could give back. */
function idleWords(plan, tensor) {
  let idle = null;
  tensor.uses.forEach((use, index) => {
    const before = tensor.uses[index - 1];
    if (before && use.at - before.at > (idle ? idle.to - idle.from : IDLE)) idle = { from: before.at, to: use.at };
  });
  if (!tensor.inside || !idle) return null;
  const has = idle.from < plan.peak && plan.peak < idle.to ? "" : "not ";
  return element("p", {}, `Nothing touches it between operations ${idle.from} and ${idle.to}. The peak is ${has}between them.`);
}

/** Shows the lines of the budget, and what the page counted again. */
function budgetTab(plan) {
  const { raw } = plan;
  const lasting = { weights: 0, master: 1, optimizer: 2, ema: 3, buffers: 4, gradients: 5, batch_io: 6, cache: 7, activations: 8 };
  const sums = ["arena", "reserve", "total"];
  const row = name => {
    const isPart = name in lasting;
    const size = plan.line[name];
    return element(
      "tr",
      { class: isPart ? "" : "sum" },
      element("td", {}, isPart ? swatch(lasting[name]) : null, name, element("small", {}, LINE_MEANINGS[name] ?? "")),
      element("td", { class: "right", title: exactBytes(size) }, bytes(size), isPart ? element("small", {}, percent(size, plan.arena)) : null),
    );
  };
  const rows = [...Object.keys(lasting), "arena", "reserve", "communication", "total"].filter(name => plan.line[name] > 0 || sums.includes(name));
  const host = raw.budget.host > 0 ? [hostRow(raw.budget)] : [];
  return [element("p", {}, "In the order in which they lie in the arena."), element("table", { class: "budget" }, rows.map(row), host), checkedWords(plan)];
}

function hostRow(budget) {
  const meaning = `page-locked memory of the host; ${bytes(budget.fetched)} go each way in a step`;
  return element("tr", { class: "sum" }, element("td", {}, "host", element("small", {}, meaning)), element("td", { class: "right" }, bytes(budget.host)));
}

function checkedWords(plan) {
  const packed = `packed ${((100 * plan.raw.budget.lower_bound) / plan.arena).toFixed(1)} %: no plan is smaller than ${bytes(plan.raw.budget.lower_bound)}. `;
  const wrong = Object.entries(plan.checks).filter(([, holds]) => !holds);
  const counted = wrong.length === 0
    ? `This page counted again: ${Object.keys(plan.checks).join("; ")}.`
    : element("b", { class: "over" }, `This page counted again and disagrees. Not so: ${wrong.map(([fact]) => fact).join("; ")}.`);
  return element("p", { class: "checked" }, packed, counted);
}

/** Shows two plans line by line, then layer by layer at their peaks. */
function differenceTab() {
  const [a, b] = plans;
  const colour = change => (change === 0 ? {} : { color: `var(--${change > 0 ? "bad" : "good"})` });
  const cells = (name, x, y) => [
    element("td", { title: name }, shortened(name, 18)),
    ...[x, y].map(size => element("td", { class: "right", title: exactBytes(size) }, bytes(size))),
    element("td", { class: "right", style: colour(y - x) }, difference(y - x)),
  ];
  const lines = a.raw.lines.filter(name => a.line[name] > 0 || b.line[name] > 0);
  const row = name => element("tr", { class: ["arena", "total"].includes(name) ? "sum" : "" }, cells(name, a.line[name], b.line[name]));
  const heading = element("tr", {}, ["", "A", "B", `B ${MINUS} A`].map(text => element("th", { class: "right dim" }, text)));
  const [ofA, ofB] = [a, b].map(plan => new Map(bySize(plan.liveAt(plan.peak), tensor => tensor.layer)));
  const layers = [...new Set([...ofA.keys(), ...ofB.keys()])]
    .map(name => ({ name, x: ofA.get(name) ?? 0, y: ofB.get(name) ?? 0 }))
    .filter(({ x, y }) => x !== y)
    .sort((p, q) => Math.abs(q.y - q.x) - Math.abs(p.y - p.x));
  const entry = ({ name, x, y }) =>
    element(
      "button",
      { class: "item", "aria-pressed": String(state.layer === name), on: { click: () => selectLayer(name) } },
      element("span", { class: "name", title: name }, shortened(name, isNarrow() ? 90 : 37)),
      element("span", { class: "size", style: colour(y - x) }, difference(y - x)),
      element("span", { class: "why" }, `${bytes(x)} \u2192 ${bytes(y)}`),
    );
  return [
    element("h3", {}, "Budget, line by line"),
    element("p", {}, `A: ${label(a)}. B: ${label(b)}.`),
    element("table", { class: "budget" }, heading, lines.map(row)),
    element("h3", {}, "Layers at each peak"),
    layers.length === 0 ? element("p", {}, "No layer differs.") : null,
    ...layers.slice(0, MOST_LAYERS).map(entry),
  ];
}

/** Shows every alternative that was planned, the smallest first. */
function alternativesTab(plan) {
  const { raw } = plan;
  const totalAt = raw.lines.indexOf("total");
  const rows = raw.alternatives.map(each => ({ ...each, total: each.bytes[totalAt] })).sort((a, b) => a.total - b.total);
  const most = Math.max(raw.card?.usable ?? 0, plan.total, ...rows.map(row => row.total));
  const own = alternative(plan, most, { change: `batch ${raw.batch}, ${raw.precision}`, bytes: raw.budget.bytes, total: plan.total, isOwn: true });
  const mark = raw.card ? ` The mark is what ${article(raw.card.name)} ${raw.card.name} has.` : "";
  const times = raw.least_us > 0 ? " Times are the least that the card's rates allow." : "";
  const auto = raw.settings.includes("checkpoint=Auto") ? " Under checkpoint=Auto each recomputes as little as it takes to fit the card." : "";
  const more = " cargo gpumem advise also tries two changes at once, and more cards.";
  const about = `Each was planned with the functions of the compiler, so sizes are exact.${times}${auto}${mark}${more}`;
  return [element("p", {}, about), own, ...rows.map(row => alternative(plan, most, row))];
}

function alternative(plan, most, row) {
  const { card, lines } = plan.raw;
  const parts = ["weights", "master", "optimizer", "ema", "buffers", "gradients", "batch_io", "cache", "activations"];
  const width = size => `${(100 * size) / most}%`;
  const scaleParts = parts.map((name, category) => {
    const size = row.bytes[lines.indexOf(name)];
    return element("i", { title: `${name} ${bytes(size)}`, style: { width: width(size), ...fillStyle(category) } });
  });
  const mark = card ? element("u", { title: `${card.name} ${bytes(card.usable)}`, style: { left: `calc(${width(card.usable)} - 2px)` } }) : null;
  const change = row.total - plan.total;
  const colour = change === 0 ? "soft" : change > 0 ? "bad" : "good";
  const changed = row.isOwn ? "" : element("span", { style: { marginLeft: "8px", color: `var(--${colour})` } }, change === 0 ? "the same" : difference(change));
  const left = card ? plan.room - row.total : 0;
  const fits = left >= 0 ? `fits, ${bytes(left)} to spare` : `does not fit, ${bytes(-left)} too much`;
  return element(
    "div",
    { class: "alternative" },
    element("div", { class: "head" }, element("b", {}, row.change), row.isOwn ? element("span", { class: "dim" }, "this plan") : null, element("span", {}, bytes(row.total), changed)),
    element("div", { class: "scale" }, scaleParts, mark),
    element("small", {}, [card ? fits : "", row.isOwn ? "" : price(plan, row)].filter(Boolean).join(", ")),
  );
}

/** Says what an alternative costs: time for each sample, recomputed operations, and the bus. */
function price(plan, row) {
  const words = [];
  const own = plan.raw.least_us / plan.raw.batch;
  if (own > 0 && row.least_us > 0) {
    const more = 100 * (row.least_us / row.batch / own - 1);
    const size = Math.abs(more).toFixed(Math.abs(more) < 10 ? 1 : 0);
    words.push(Math.abs(more) < 0.05 ? "as much time a sample" : `${more > 0 ? "+" : MINUS}${size}${NARROW_SPACE}% time a sample`);
  }
  if (row.recomputed > 0) words.push(`${plural(row.recomputed, "operation")} recomputed`);
  if (row.host > 0) words.push(`${bytes(row.host)} in host memory`);
  if (row.bus_us > 0) words.push(`${time(row.bus_us)} of the bus a step`);
  if (row.note) words.push(row.note);
  return words.join(", ");
}
