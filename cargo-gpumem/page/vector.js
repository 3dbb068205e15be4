// A drawing context that writes SVG. It has the part of a canvas that the pictures use.

const escapedText = text => String(text).replace(/[&<>"]/g, letter => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[letter]);
const rounded = value => Number(value.toFixed(2));

class SvgContext {
  constructor(width, height) {
    Object.assign(this, { width, height, isSvg: true, parts: [], stack: [], path: "" });
    // What `save` keeps: the properties of a canvas, the place of the origin, and the clips that are open.
    this.now = { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, font: "11px sans-serif", textAlign: "left", textBaseline: "alphabetic", globalAlpha: 1, dash: [], x: 0, y: 0, clips: 0 };
    for (const name of Object.keys(this.now)) {
      Object.defineProperty(this, name, { get: () => this.now[name], set: value => (this.now[name] = value) });
    }
  }

  save() {
    this.stack.push({ ...this.now });
  }

  restore() {
    const before = this.stack.pop();
    for (let clip = before.clips; clip < this.now.clips; clip += 1) this.parts.push("</g>");
    this.now = before;
  }

  translate(x, y) {
    this.now.x += x;
    this.now.y += y;
  }

  setLineDash(dash) {
    this.now.dash = dash;
  }

  clearRect() {}

  opacity() {
    return this.now.globalAlpha < 1 ? ` opacity="${rounded(this.now.globalAlpha)}"` : "";
  }

  strokeAttributes() {
    const dash = this.now.dash.length > 0 ? ` stroke-dasharray="${this.now.dash}"` : "";
    return `fill="none" stroke="${this.now.strokeStyle}" stroke-width="${this.now.lineWidth}"${dash}${this.opacity()}`;
  }

  rectangle(x, y, width, height, attributes) {
    this.parts.push(`<rect x="${rounded(x + this.now.x)}" y="${rounded(y + this.now.y)}" width="${rounded(width)}" height="${rounded(height)}" ${attributes}/>`);
  }

  fillRect(x, y, width, height) {
    this.rectangle(x, y, width, height, `fill="${this.now.fillStyle}"${this.opacity()}`);
  }

  strokeRect(x, y, width, height) {
    this.rectangle(x, y, width, height, this.strokeAttributes());
  }

  beginPath() {
    this.path = "";
  }

  moveTo(x, y) {
    this.path += `M${rounded(x + this.now.x)} ${rounded(y + this.now.y)}`;
  }

  lineTo(x, y) {
    this.path += `L${rounded(x + this.now.x)} ${rounded(y + this.now.y)}`;
  }

  closePath() {
    this.path += "Z";
  }

  rect(x, y, width, height) {
    this.moveTo(x, y);
    this.lineTo(x + width, y);
    this.lineTo(x + width, y + height);
    this.lineTo(x, y + height);
    this.closePath();
  }

  clip() {
    const id = `clip${this.parts.length}`;
    this.parts.push(`<clipPath id="${id}"><path d="${this.path}"/></clipPath><g clip-path="url(#${id})">`);
    this.now.clips += 1;
  }

  fill() {
    this.parts.push(`<path d="${this.path}" fill="${this.now.fillStyle}"${this.opacity()}/>`);
  }

  stroke() {
    this.parts.push(`<path d="${this.path}" ${this.strokeAttributes()}/>`);
  }

  /** Returns a width that is enough for most fonts: nobody knows which one the reader has. */
  measureText(text) {
    return { width: String(text).length * 6.2 };
  }

  fillText(text, x, y) {
    const [, weight, size] = /^(?:(\d+) )?([\d.]+)px/.exec(this.now.font) ?? [null, null, "11"];
    const anchor = { left: "start", center: "middle", right: "end" }[this.now.textAlign];
    const shift = { middle: 0.35, top: 0.8, alphabetic: 0, bottom: -0.2 }[this.now.textBaseline] * size;
    const place = `x="${rounded(x + this.now.x)}" y="${rounded(y + this.now.y + shift)}"`;
    const bold = weight ? ` font-weight="${weight}"` : "";
    this.parts.push(`<text ${place} font-size="${size}"${bold} text-anchor="${anchor}" fill="${this.now.fillStyle}"${this.opacity()}>${escapedText(text)}</text>`);
  }

  /** Returns the whole picture. */
  toString(title) {
    const hatch = (category, index) =>
      category.hatched
        ? `<pattern id="hatch${index}" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="${colourOf(index)}"/>` +
          `<path d="M-1 7L7 -1M-7 7L1 -1M5 7L13 -1" stroke="${inks.panel}" stroke-width="1.5"/></pattern>`
        : "";
    return (
      `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" ` +
      `font-family="system-ui,Segoe UI,Roboto,DejaVu Sans,sans-serif" role="img"><title>${escapedText(title)}</title>` +
      `<defs>${plans[0].categories.map(hatch).join("")}</defs>${this.parts.join("")}</svg>`
    );
  }
}

const hatches = new Map();

/** Returns the fill of a category: its colour, with a hatch if another category has that colour too. */
function paint(context, category) {
  if (!isHatched(category)) return colourOf(category);
  if (context.isSvg) return `url(#hatch${category})`;
  const key = `${category} ${colourOf(category)}`;
  if (!hatches.has(key)) {
    const tile = document.createElement("canvas");
    tile.width = 6;
    tile.height = 6;
    const drawn = tile.getContext("2d");
    drawn.fillStyle = colourOf(category);
    drawn.fillRect(0, 0, 6, 6);
    drawn.strokeStyle = inks.panel;
    drawn.lineWidth = 1.5;
    drawn.beginPath();
    for (const shift of [-6, 0, 6]) {
      drawn.moveTo(shift - 1, 7);
      drawn.lineTo(shift + 7, -1);
    }
    drawn.stroke();
    hatches.set(key, context.createPattern(tile, "repeat"));
  }
  return hatches.get(key);
}
