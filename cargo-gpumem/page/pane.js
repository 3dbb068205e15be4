// A pane: the pictures of one plan, what follows the pointer in them, and the pointer itself.

const PICTURES = { curve: drawCurve, phases: drawPhases, map: drawMap, host: drawHost };

class Pane {
  constructor(plan) {
    this.plan = plan;
    /** The range of offsets that the map shows; `null` if it is that of the buttons. */
    this.offsets = null;
    this.size = null;
    /** Rectangles that the map has drawn, and those that other rectangles hide. */
    this.drawn = 0;
    this.merged = 0;
    this.boxes = {};
    this.canvases = {};
    for (const name of Object.keys(PICTURES)) this.addPicture(name);
    this.boxes.host.hidden = !plan.hasHost;
    const title = (plans.length > 1 ? `${letterOf(plan)}  ` : "") + label(plan);
    this.node = element("div", { class: "pane" }, element("h2", { title }, title), Object.values(this.boxes));
  }

  addPicture(name) {
    const canvases = { base: element("canvas"), pointer: element("canvas") };
    const box = element("div", { class: `picture ${name}` }, canvases.base, canvases.pointer);
    const about = {
      curve: `Live bytes over the operations of ${label(this.plan)}. Arrow keys go along the operations, P to the peak. The table lists the tensors.`,
      map: `Arena of ${label(this.plan)}: offset against operation, a rectangle for each tensor. The table lists them.`,
    }[name];
    if (about) {
      box.setAttribute("tabindex", 0);
      box.setAttribute("role", "application");
      box.setAttribute("aria-label", about);
    }
    if (name !== "phases") box.append(element("span", { class: "caption" }, name === "host" ? "host memory" : ""));
    this.boxes[name] = box;
    this.canvases[name] = canvases;
    this.listen(box, name);
  }

  get edges() {
    return this.plan.edges[state.axis];
  }

  get length() {
    return this.edges[this.plan.count];
  }

  /** Returns the part of the axis that is shown. */
  domain() {
    return state.view.map(edge => edge * this.length);
  }

  /** Returns the function from a place on the axis to a pixel. */
  across(width) {
    const [from, to] = this.domain();
    return place => LEFT + ((place - from) / (to - from)) * (width - LEFT - RIGHT);
  }

  /** Returns the operation at a pixel. */
  operationAt(width, pixel) {
    const [from, to] = this.domain();
    const place = from + ((pixel - LEFT) / (width - LEFT - RIGHT)) * (to - from);
    let low = 0;
    let high = this.plan.count - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.edges[middle] <= place) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** Returns the range of offsets that the map shows. Both plans have one scale. */
  offsetRange() {
    if (this.offsets) return this.offsets;
    return state.range === "all" ? [0, scale.arena] : [this.plan.base, this.plan.base + scale.step];
  }

  /** Fits the canvases to their boxes. */
  measure() {
    const ratio = window.devicePixelRatio || 1;
    this.size = {};
    for (const [name, box] of Object.entries(this.boxes)) {
      const [width, height] = [box.clientWidth, box.clientHeight];
      this.size[name] = [width, height];
      for (const canvas of Object.values(this.canvases[name])) {
        canvas.width = Math.max(1, width * ratio);
        canvas.height = Math.max(1, height * ratio);
        canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
      }
    }
  }

  draw() {
    if (!this.size) this.measure();
    for (const [name, picture] of Object.entries(PICTURES)) {
      const [width, height] = this.size[name];
      if (width === 0 || height === 0) continue;
      const context = this.canvases[name].base.getContext("2d");
      context.clearRect(0, 0, width, height);
      picture(this, context, width, height);
    }
    const inside = state.range === "step" ? ", only what lives inside the step" : "";
    const count = number(this.plan.byFirst.length);
    this.boxes.curve.querySelector(".caption").textContent = `live bytes${inside}`;
    this.boxes.map.querySelector(".caption").textContent = this.offsets ? "arena: a part of it" : `arena: offset against operation, ${count} tensors${inside}`;
    this.drawPointer();
  }

  /** Draws what follows the pointer and the chosen operation, on a layer of its own. */
  drawPointer() {
    if (!this.size || !scale) return;
    const { plan, edges } = this;
    const at = operationOf(plan);
    const hover = state.hover?.pane === this ? state.hover : null;
    for (const name of Object.keys(PICTURES)) {
      const [width, height] = this.size[name];
      const context = this.canvases[name].pointer.getContext("2d");
      const x = this.across(width);
      const column = (operation, colour, isFramed) => {
        const left = x(edges[operation]);
        const columnWidth = Math.max(x(edges[operation + 1]) - left, 1.5);
        context.fillStyle = colour;
        context.globalAlpha = 0.22;
        context.fillRect(left, 0, columnWidth, height);
        context.globalAlpha = 1;
        if (!isFramed) return;
        context.fillRect(left, 0, 1, height);
        if (columnWidth > 4) context.fillRect(left + columnWidth - 1, 0, 1, height);
      };
      context.clearRect(0, 0, width, height);
      clipped(context, width, height);
      if (hover) column(hover.at, inks.ink, false);
      column(at, inks.accent, true);
      if (name === "curve") this.drawFlag(context, [width, height], at);
      if (name === "map") {
        if (hover?.tensor && !hover.tensor.onHost) drawFrame(this, context, hover.tensor, [width, height], inks.ink, 1.5);
        const chosen = this.chosenTensor();
        if (chosen) drawLives(this, context, chosen, [width, height]);
        if (chosen && !chosen.onHost) drawUses(this, context, chosen, [width, height]);
      }
      context.restore();
    }
  }

  /** Returns the chosen tensor; for another plan, its tensor of the chosen name. `null` if there is none. */
  chosenTensor() {
    if (!state.tensor) return null;
    const { plan, tensor } = state.tensor;
    return plan === this.plan ? tensor : (this.plan.tensors.find(other => other.name === tensor.name) ?? null);
  }

  /** Writes the live bytes at the chosen operation beside it. */
  drawFlag(context, [width, height], at) {
    const { plan, edges } = this;
    const size = plan.live.reduce((sum, sizes, category) => sum + (isStacked(category) ? sizes[at] : 0), 0);
    const place = this.across(width)((edges[at] + edges[at + 1]) / 2);
    const y = height - 1 - (size / scale.live) * (height - 8);
    const outside = place < LEFT ? -1 : place > width - RIGHT ? 1 : 0;
    const text = `${outside < 0 ? "\u25c2 " : ""}${at === plan.peak ? "peak " : ""}${bytes(size)} at ${at}${outside > 0 ? " \u25b8" : ""}`;
    context.font = BOLD;
    const room = context.measureText(text).width + 10;
    const beside = place + 8 + room > width - RIGHT ? place - room - 8 : place + 8;
    const left = Math.min(Math.max(LEFT, beside), width - RIGHT - room);
    const top = Math.min(height - 20, Math.max(18, y + 6));
    context.fillStyle = inks.accent;
    context.fillRect(left, top, room, 17);
    if (outside === 0) context.fillRect(place - 3, y - 3, 6, 6);
    context.fillStyle = inks.panel;
    context.textBaseline = "middle";
    context.textAlign = "left";
    context.fillText(text, left + 5, top + 9);
  }

  /** Zooms by a factor around a place of the picture, from 0 to 1. */
  zoom(factor, around) {
    const [from, to] = state.view;
    const least = Math.min(1, (state.axis === "operations" ? 4 : this.length / 2000) / this.length);
    const width = Math.min(1, Math.max(least, (to - from) * factor));
    const start = from + (to - from - width) * around;
    setView([start, start + width]);
  }

  /** Zooms the map along offsets around a pixel. */
  zoomOffsets(factor, y) {
    const { offset, low, high } = mapScale(this, this.size.map[1]);
    const here = offset(y);
    const next = [Math.max(0, here - (here - low) * factor), Math.min(scale.arena, here + (high - here) * factor)];
    this.offsets = next[1] - next[0] >= scale.arena ? null : next;
    redraw();
  }

  listen(box, name) {
    let drag = null;
    const leave = () => {
      state.hover = null;
      byId("tip").hidden = true;
      redraw(true);
    };
    box.addEventListener("pointermove", event => {
      const frame = box.getBoundingClientRect();
      if (drag) {
        this.dragged(drag, event, frame, box);
        return;
      }
      const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
      if (px < LEFT || px > frame.width - RIGHT) {
        leave();
        return;
      }
      state.hover = { pane: this, at: this.operationAt(frame.width, px), tensor: name === "map" ? tensorAt(this, px, py) : null };
      showTip(event, this.plan, state.hover);
      redraw(true);
    });
    box.addEventListener("pointerleave", leave);
    box.addEventListener("pointercancel", () => (drag = null));
    box.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      drag = { x: event.clientX, y: event.clientY, view: state.view, offsets: name === "map" ? this.offsets : null, hasMoved: false };
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointerup", event => {
      const done = drag;
      drag = null;
      box.style.cursor = "";
      if (done && !done.hasMoved) this.clicked(event, box.getBoundingClientRect(), name);
    });
    box.addEventListener("dblclick", showAll);
    box.addEventListener("wheel", event => this.wheeled(event, box.getBoundingClientRect(), name), { passive: false });
  }

  dragged(drag, event, frame, box) {
    const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
    drag.hasMoved ||= Math.abs(dx) + Math.abs(dy) > 3;
    if (!drag.hasMoved) return;
    box.style.cursor = "grabbing";
    if (drag.offsets) {
      const shift = (dy * (drag.offsets[1] - drag.offsets[0])) / frame.height;
      this.offsets = drag.offsets.map(offset => offset + shift);
    }
    const shift = (dx / (frame.width - LEFT - RIGHT)) * (drag.view[1] - drag.view[0]);
    setView(drag.view.map(edge => edge - shift));
  }

  clicked(event, frame, name) {
    const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
    if (px < LEFT) return;
    state.plan = plans.indexOf(this.plan);
    const at = this.operationAt(frame.width, px);
    const tensor = name === "map" ? tensorAt(this, px, py) : null;
    if (tensor) {
      selectTensor(this.plan, tensor, at);
      return;
    }
    state.tab = "live";
    setOperation(this.plan, at);
  }

  wheeled(event, frame, name) {
    event.preventDefault();
    const factor = Math.exp(event.deltaY * 0.0016);
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const shift = (event.deltaX / frame.width) * (state.view[1] - state.view[0]);
      setView(state.view.map(edge => edge + shift));
    } else if (name === "map" && (event.shiftKey || event.ctrlKey)) {
      this.zoomOffsets(factor, event.clientY - frame.top);
    } else {
      const around = (event.clientX - frame.left - LEFT) / (frame.width - LEFT - RIGHT);
      this.zoom(factor, Math.min(1, Math.max(0, around)));
    }
  }
}

/** Shows a box beside the pointer: about the tensor there, or else about the operation. */
function showTip(event, plan, { at, tensor }) {
  const tip = byId("tip");
  tip.replaceChildren(...(tensor ? tipOfTensor(plan, tensor) : tipOfOperation(plan, at)));
  tip.hidden = false;
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const left = event.clientX + 16 + width > innerWidth ? event.clientX - width - 16 : event.clientX + 16;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(innerHeight - height - 6, event.clientY + 14))}px`;
}

function tipOfTensor(plan, tensor) {
  const facts = tensor.inside
    ? [["made by", `${tensor.first}  ${plan.operation(tensor.first)}`], ["last used by", `${tensor.last}  ${plan.operation(tensor.last)}`]]
    : [["lives", "as long as the network"]];
  facts.push(["offset", `${number(tensor.offset)} + ${number(tensor.room)}`]);
  if (tensor.source) facts.push(["source", tensor.source]);
  const rows = facts.map(([name, value]) => element("tr", {}, element("td", { class: "dim" }, name), element("td", {}, value)));
  return [
    element("h3", {}, swatch(tensor.category), tensor.name),
    element("div", { class: "dim" }, `${plan.categories[tensor.category].name} \u00b7 ${tensor.shape} \u00b7 ${bytes(tensor.bytes)}`),
    element("table", {}, rows),
  ];
}

function tipOfOperation(plan, at) {
  const change = at > 0 ? plan.sum[at] - plan.sum[at - 1] : 0;
  const sizes = plan.live.map((all, category) => ({ category, size: all[at] }));
  const largest = sizes.filter(({ category, size }) => size > 0 && plan.categories[category].where !== "host").sort((a, b) => b.size - a.size);
  const row = (name, size) => element("tr", {}, element("td", {}, name), element("td", {}, size));
  const rows = largest.slice(0, 7).map(({ category, size }) => row([swatch(category), plan.categories[category].name], bytes(size)));
  if (plan.hasHost) rows.push(row("in host memory", bytes(plan.host[at])));
  const us = plan.raw.operations.us[at];
  const least = us > 0 ? ` \u00b7 at least ${time(us)} on ${plan.raw.card.name}` : "";
  return [
    element("h3", {}, plan.operation(at)),
    element("div", { class: "dim" }, `operation ${at} \u00b7 ${PHASE_NAMES[plan.phases[at]]}${least}`),
    element("table", { class: "sizes" }, row(element("b", {}, "live"), `${bytes(plan.sum[at])}${change === 0 ? "" : ` (${difference(change)})`}`), rows),
  ];
}
