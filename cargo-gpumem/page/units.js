// Texts of sizes and times, and a maker of elements.

const KIB = 1024;
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];
const NARROW_SPACE = "\u202f";
const MINUS = "\u2212";

/** Returns a size with three digits: `1.55 GiB`. */
function bytes(size) {
  let value = Math.abs(size);
  let unit = 0;
  while (value >= KIB && unit < UNITS.length - 1) {
    value /= KIB;
    unit += 1;
  }
  const digits = unit === 0 ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return (size < 0 ? MINUS : "") + value.toFixed(digits) + NARROW_SPACE + UNITS[unit];
}

/** Returns a size on an axis, without trailing zeros: `1.5 GiB`. */
function axisSize(size) {
  const unit = size >= KIB ** 3 ? 3 : size >= KIB ** 2 ? 2 : 1;
  return size === 0 ? "0" : `${Number((size / KIB ** unit).toFixed(2))} ${UNITS[unit]}`;
}

const number = count => count.toLocaleString("en-US");
const exactBytes = size => `${number(size)} B`;
const difference = size => (size === 0 ? "=" : (size > 0 ? "+" : "") + bytes(size));

function percent(part, whole) {
  const value = whole > 0 ? (100 * part) / whole : 0;
  return `${value > 0 && value < 1 ? "<1" : Math.round(value)}${NARROW_SPACE}%`;
}

/** Returns a time that is given in microseconds. */
function time(us) {
  if (us >= 1e6) return `${(us / 1e6).toFixed(2)}${NARROW_SPACE}s`;
  if (us >= 1000) return `${(us / 1000).toFixed(us >= 1e5 ? 0 : 1)}${NARROW_SPACE}ms`;
  return `${us.toFixed(us < 10 ? 1 : 0)}${NARROW_SPACE}\u00b5s`;
}

const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Returns the indefinite article for the name of a card, as it is spoken. */
const article = name => (/^(A\d|A\s|H\d|L\d|RTX|MI|8)/.test(name) ? "an" : "a");

/** Shortens a text in its middle, since both ends of a path say something. */
function shortened(text, most) {
  if (text.length <= most) return text;
  const head = Math.ceil(most * 0.38);
  return `${text.slice(0, head)}\u2026${text.slice(text.length - (most - head - 1))}`;
}

/** Lets a path break after its dots and brackets. */
const breakable = text => text.replace(/([._\]])/g, "$1\u200b");

const byId = id => document.getElementById(id);

/**
 * Makes an element. Attributes are texts; `true` is an attribute without a value, and `false` or `undefined` none. Functions in `on` listen to
 * events, and `style` is an object of properties, since the policy of the page has no inline styles of markup.
 */
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (name === "style") Object.assign(node.style, value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat().filter(child => child !== null && child !== undefined));
  return node;
}

/** Returns a button that looks like a link. */
const link = (text, click) => element("button", { class: "link", on: { click } }, text);
