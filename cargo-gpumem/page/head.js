// What stands above the pictures: title, verdict, the bar of the whole card, and the legend.

function drawHead() {
  const plan = current();
  const { raw } = plan;
  if (state.both) {
    byId("title").textContent = `${[...new Set(plans.map(each => each.raw.title))].join(" and ")}: two plans on one scale`;
    byId("facts").textContent = "";
    byId("words").replaceChildren(...compareWords());
  } else {
    const parts = raw.micro_batches > 1 ? ` in ${raw.micro_batches} micro-batches of ${raw.samples}` : "";
    const program = raw.program === "train" ? "training step" : "forward pass";
    const facts = [program, `batch ${raw.batch}${parts}`, raw.precision, raw.ranks > 1 ? `${raw.ranks} ranks` : "", ...raw.settings, raw.card?.name];
    byId("title").textContent = raw.title;
    byId("facts").textContent = facts.filter(Boolean).join(" \u00b7 ");
    byId("words").replaceChildren(element("p", { class: "first" }, fitWords(plan)), element("p", {}, peakWords(plan)));
  }
  byId("bars").replaceChildren(...shownPlans().map(barOf));
  drawWhich();
  drawLegend();
}

/** Says whether the step fits the card, and by how much. */
function fitWords(plan) {
  const { card } = plan.raw;
  if (!card) return ["It needs ", element("b", {}, bytes(plan.total)), ". Name a card with --card to compare it with one."];
  const left = plan.room - plan.total;
  const headroom = card.headroom > 0 ? ` with ${bytes(card.headroom)} left to others` : "";
  return [
    element("span", { class: left >= 0 ? "fits" : "over" }, left >= 0 ? "It fits" : "It does not fit"),
    ` ${article(card.name)} ${card.name}${headroom}: `,
    element("b", {}, bytes(plan.total)),
    ` of ${bytes(card.usable)}, ${left >= 0 ? `${bytes(left)} to spare` : `${bytes(-left)} too much`}.`,
  ];
}

/** Says what is live at the peak, and which layers to look at. */
function peakWords(plan) {
  const { raw, peak } = plan;
  const live = plan.liveAt(peak);
  const sumOf = tensors => tensors.reduce((sum, tensor) => sum + tensor.room, 0);
  const inside = live.filter(tensor => tensor.inside);
  const lasting = sumOf(live.filter(tensor => !tensor.inside));
  const saved = sumOf(live.filter(tensor => plan.categories[tensor.category].name === "saved for backward"));
  const peakLink = link(`operation ${peak}, ${plan.operation(peak)}`, () => {
    state.tab = "live";
    setOperation(plan, peak);
  });
  const shares = `${percent(lasting, plan.sum[peak])} of them there for the whole step and ${percent(saved, plan.sum[peak])} saved for the backward pass. `;
  const words = ["Most is live at ", peakLink, `: ${bytes(plan.sum[peak])} in ${plural(live.length, "tensor")}, ${shares}`];
  if (inside.length > 0) {
    const largest = inside.reduce((best, tensor) => (tensor.room > best.room ? tensor : best));
    const [block, size] = bySize(inside, tensor => blockOf(tensor.layer))[0];
    words.push("The largest inside the step is ", link(largest.name, () => selectTensor(plan, largest, peak)), `, ${bytes(largest.room)}; `);
    words.push("the block with most is ", link(block, () => selectLayer(block)), `, ${bytes(size)}. `);
  }
  const again = plan.phases.filter(phase => phase === PHASE.again).length;
  if (again > 0) words.push(`${plural(again, "operation")} ${again === 1 ? "is" : "are"} recomputed. `);
  if (raw.budget.host > 0) words.push(`${bytes(raw.budget.host)} lie in host memory; ${bytes(raw.budget.fetched)} go each way in a step. `);
  return words;
}

/** Returns the groups of tensors by a key, with their bytes, the largest first. */
function bySize(tensors, key) {
  const sums = new Map();
  for (const tensor of tensors) sums.set(key(tensor), (sums.get(key(tensor)) ?? 0) + tensor.room);
  return [...sums].sort((a, b) => b[1] - a[1]);
}

/** Says what differs between two plans. */
function compareWords() {
  const [a, b] = plans;
  const more = b.total - a.total;
  const fits = plan => {
    if (plan.room === null) return "";
    return element("span", { class: plan.total <= plan.room ? "fits" : "over" }, plan.total <= plan.room ? "fits" : "does not fit");
  };
  const share = ` (${more < 0 ? MINUS : "+"}${Math.abs((100 * more) / a.total).toFixed(0)}${NARROW_SPACE}%)`;
  const size = plan => [`${letterOf(plan)}: `, element("b", {}, bytes(plan.total)), " ", fits(plan), "   "];
  const lines = a.raw.lines
    .filter(name => !["arena", "reserve", "communication", "total"].includes(name))
    .map(name => [name, b.line[name] - a.line[name]])
    .filter(([, change]) => change !== 0)
    .sort((x, y) => Math.abs(y[1]) - Math.abs(x[1]));
  const changes = lines.length > 0 ? `Of that ${lines.map(([name, change]) => `${name} ${difference(change)}`).join(", ")}. ` : "No line of the budget differs. ";
  const each = plan => bytes(plan.line.activations / plan.raw.batch);
  const samples = `A sample takes ${each(a)} of activations in A and ${each(b)} in B. `;
  const times = hasTimes() ? `The least time of a step goes from ${time(a.raw.least_us)} to ${time(b.raw.least_us)}.` : "";
  return [element("p", { class: "first" }, size(a), size(b), element("b", {}, difference(more)), more === 0 ? "" : share), element("p", {}, changes + samples + times)];
}

/** Returns the bar of a card: the arena by category at the peak, what packing loses, and the reserve. */
function barOf(plan) {
  const { card } = plan.raw;
  const whole = Math.max(...shownPlans().map(each => Math.max(each.total, each.raw.card?.usable ?? 0)));
  const part = (size, title, attributes) => element("i", { title: `${title} ${bytes(size)}`, ...attributes, style: { width: `${(100 * size) / whole}%`, ...attributes.style } });
  const sizes = plan.live.map((all, category) => ({ category, size: all[plan.peak] }));
  const live = sizes.filter(({ category, size }) => size > 0 && plan.categories[category].where !== "host");
  const lost = plan.arena - plan.sum[plan.peak];
  const reserve = plan.line.reserve + plan.line.communication;
  const name = state.both ? element("div", { class: "facts" }, element("b", {}, letterOf(plan)), `  ${label(plan)}`) : null;
  const bar = element(
    "div",
    { class: "bar", role: "img", "aria-label": card ? `${bytes(plan.total)} of ${bytes(card.usable)}` : bytes(plan.total) },
    live.map(({ category, size }) => part(size, plan.categories[category].name, { style: fillStyle(category) })),
    lost > 0 ? part(lost, "lost by packing", { style: { background: "var(--page)" } }) : null,
    reserve > 0 ? part(reserve, "reserve of the card", { class: "reserve" }) : null,
  );
  const labels = [`arena ${bytes(plan.arena)}${reserve > 0 ? ` + reserve ${bytes(reserve)}` : ""}`, card ? `${card.name}: ${bytes(card.usable)} usable` : ""];
  return element("div", {}, name, bar, element("div", { class: "bar-labels" }, labels.map(text => element("span", {}, text))));
}

/** Draws the buttons that choose one of two plans, or both. */
function drawWhich() {
  byId("which").hidden = plans.length < 2;
  const button = (text, title, isPressed, choose) => {
    const click = () => {
      choose();
      state.tensor = null;
      drawAll();
    };
    return element("button", { "aria-pressed": String(isPressed), title, on: { click } }, text);
  };
  const single = (plan, index) =>
    button(letterOf(plan), label(plan), !state.both && state.plan === index, () => Object.assign(state, { both: false, plan: index }));
  byId("which").replaceChildren(...plans.map(single), button("A | B", "Both on one scale", state.both, () => (state.both = true)));
}

/** Draws the legend, whose chips hide categories. */
function drawLegend() {
  const shown = shownPlans();
  const nodes = [];
  let heading = "";
  plans[0].categories.forEach((category, index) => {
    if (category.where === "host" || !shown.some(plan => plan.present[index])) return;
    const place = category.where === "lasting" ? "the whole step" : "inside the step";
    if (place !== heading) nodes.push(element("span", { class: "heading" }, place));
    heading = place;
    nodes.push(chip(category, index, shown));
  });
  if (state.hidden.size > 0) nodes.push(element("button", { class: "chip", on: { click: () => setHidden(new Set()) } }, "show all"));
  byId("legend").replaceChildren(...nodes);
}

function chip(category, index, shown) {
  const size = Math.max(...shown.map(plan => plan.live[index][plan.peak]));
  const click = () => {
    const hidden = new Set(state.hidden);
    if (!hidden.delete(index)) hidden.add(index);
    setHidden(hidden);
  };
  const alone = () => {
    const others = plans[0].categories.map((_, other) => other).filter(other => other !== index);
    setHidden(new Set(others.every(other => state.hidden.has(other)) ? [] : others));
  };
  const title = `${category.meaning}; ${bytes(size)} at the peak. Click: hide or show. Double click: this one alone.`;
  return element(
    "button",
    { class: "chip", "aria-pressed": String(isShown(index)), title, on: { click, dblclick: alone } },
    swatch(index),
    category.name,
    size > 0 ? element("small", {}, bytes(size)) : null,
  );
}

function setHidden(hidden) {
  state.hidden = hidden;
  drawLegend();
  drawTable();
  redraw();
}
