// The table of tensors. Only rows that are in view exist, so that its length costs nothing.

/** Height of a row in pixels, as in the style sheet. */
const ROW_HEIGHT = 23;
const SPARE_ROWS = 4;

const COLUMNS = [
  { key: "name", heading: "tensor", value: tensor => tensor.name },
  { key: "category", heading: "category", value: tensor => tensor.category },
  { key: "shape", heading: "shape", value: tensor => tensor.shape },
  { key: "bytes", heading: "bytes", value: tensor => tensor.room, isNumber: true },
  { key: "first", heading: "operations", value: tensor => tensor.first, isNumber: true },
  { key: "offset", heading: "offset", value: tensor => tensor.offset, isNumber: true },
  { key: "source", heading: "source", value: tensor => tensor.source },
];

/** The tensors of the table, in its order. */
let listed = [];

/** Draws the table anew; with `reveal` it scrolls to the chosen tensor. */
function drawTable({ reveal = false } = {}) {
  const plan = current();
  const at = operationOf(plan);
  drawHeadings();
  const isListed = tensor =>
    isShown(tensor.category) && matches(tensor, plan) && (!state.onlyLive || (!tensor.onHost && tensor.first <= at && at <= tensor.last));
  const { value } = COLUMNS.find(column => column.key === state.sort.key);
  const direction = state.sort.ascending ? 1 : -1;
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  listed = plan.tensors.filter(isListed).sort((a, b) => compare(value(a), value(b)) * direction || a.index - b.index);
  const sum = listed.reduce((total, tensor) => total + tensor.room, 0);
  const together = state.onlyLive ? "" : " in all, not at once";
  byId("count").textContent = `${number(listed.length)} of ${plural(plan.tensors.length, "tensor")}, ${bytes(sum)}${together}`;
  byId("all-rows").style.height = `${listed.length * ROW_HEIGHT}px`;
  if (reveal && state.tensor) revealRow(listed.indexOf(state.tensor.tensor));
  drawRows();
}

function drawHeadings() {
  const heading = ({ key, heading: text, isNumber }) => {
    const isSorted = state.sort.key === key;
    const arrow = isSorted ? (state.sort.ascending ? " \u2191" : " \u2193") : "";
    const click = () => {
      state.sort = { key, ascending: isSorted ? !state.sort.ascending : key !== "bytes" };
      drawTable();
    };
    const sorted = isSorted ? (state.sort.ascending ? "ascending" : "descending") : "none";
    return element("span", { role: "columnheader", "aria-sort": sorted, class: isNumber ? "right" : "" }, element("button", { on: { click } }, text + arrow));
  };
  byId("headings").replaceChildren(...COLUMNS.map(heading));
}

function revealRow(row) {
  const box = byId("rows");
  const top = row * ROW_HEIGHT;
  const isVisible = top >= box.scrollTop && top <= box.scrollTop + box.clientHeight - 30;
  if (row >= 0 && !isVisible) box.scrollTop = top - box.clientHeight / 2;
}

/** Makes the rows that are in view. */
function drawRows() {
  const box = byId("rows");
  const plan = current();
  const from = Math.max(0, Math.floor(box.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
  const visible = Math.ceil(Math.max(box.clientHeight, 100) / ROW_HEIGHT) + 2 * SPARE_ROWS;
  const rows = listed.slice(from, from + visible).map((tensor, index) => rowOf(plan, tensor, from + index));
  byId("all-rows").replaceChildren(...rows);
  byId("rows").setAttribute("aria-rowcount", listed.length);
}

function rowOf(plan, tensor, index) {
  const pane = panes.find(candidate => candidate.plan === plan);
  const enter = () => {
    state.hover = { pane, tensor, at: Math.max(tensor.first, Math.min(tensor.last, operationOf(plan))) };
    redraw(true);
  };
  const leave = () => {
    state.hover = null;
    redraw(true);
  };
  const cell = (content, attributes = {}) => element("span", { role: "gridcell", class: "dim", ...attributes }, content);
  return element(
    "div",
    {
      class: "row",
      role: "row",
      "aria-rowindex": index + 1,
      "aria-selected": String(state.tensor?.tensor === tensor),
      style: { top: `${index * ROW_HEIGHT}px` },
      on: { click: () => selectTensor(plan, tensor), pointerenter: enter, pointerleave: leave },
    },
    cell([swatch(tensor.category), tensor.name], { class: "", title: tensor.name }),
    cell(plan.categories[tensor.category].name),
    cell(tensor.shape, { title: tensor.shape }),
    cell(bytes(tensor.room), { class: "right", title: exactBytes(tensor.bytes) }),
    cell(tensor.first === 0 && tensor.last === plan.count - 1 ? "all" : `${tensor.first} \u2013 ${tensor.last}`, { class: "right dim" }),
    cell(tensor.onHost ? "host" : bytes(tensor.offset), { class: "right dim", title: exactBytes(tensor.offset) }),
    cell(tensor.source.split("/").pop(), { title: tensor.source }),
  );
}

/** Chooses the tensor above or below the chosen one. */
function moveRow(step) {
  const row = listed.indexOf(state.tensor?.tensor);
  const next = listed[Math.max(0, Math.min(listed.length - 1, row + step))];
  if (next) selectTensor(current(), next);
}
