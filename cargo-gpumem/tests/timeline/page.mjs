// Checks pages of `cargo gpumem timeline` in Chromium: `node page.mjs FOLDER PAGE..`.
//
// With SCREENSHOTS=folder it keeps pictures of each page: light and dark, wide and narrow, with a tensor chosen, and with the alternatives.

import assert from "node:assert/strict";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { start } from "./browser.mjs";

const [folder, ...names] = process.argv.slice(2);
const browser = await start();
let failures = 0;

/** Runs one check, and goes on after a failure. */
async function check(what, run) {
  try {
    await run();
    console.log(`  ok    ${what}`);
  } catch (error) {
    failures += 1;
    console.log(`  FAIL  ${what}\n${error.message}`);
  }
}

const address = name => `file://${resolve(folder, name)}`;
const dataOf = html => JSON.parse(/<script type="application\/json" id="data">([^]*?)<\/script>/.exec(html)[1]);

/** Checks what the page says of itself against its data. */
async function checkData(page, plans) {
  await check("the page counts as the budget does", async () => {
    const facts = await page.evaluate("gpumem.plans.map(plan => [plan.peak, plan.sum[plan.peak], plan.tensors.length, Object.entries(plan.checks)])");
    facts.forEach(([peak, most, tensors, checks], index) => {
      assert.equal(peak, plans[index].budget.peak);
      assert.equal(most, plans[index].budget.lower_bound);
      assert.equal(tensors, plans[index].tensors.bytes.length);
      assert.deepEqual(checks.filter(([, holds]) => !holds), []);
    });
  });
}

/** Checks that every tensor of the arena is drawn, or lies in a row of pixels that is painted already. */
async function checkMap(page) {
  await check("the map has a rectangle for each tensor", async () => {
    await page.evaluate("gpumem.setRange('all'); gpumem.setView([0, 1]); 1");
    await page.drawn();
    const panes = await page.evaluate("gpumem.panes().map(pane => [pane.drawn + pane.merged, pane.plan.byFirst.length])");
    for (const [drawn, tensors] of panes) assert.equal(drawn, tensors);
  });
  await check("rectangles have the colours of their categories", async () => {
    const { seen, wrong } = await page.evaluate(`(${lookAtColours})()`);
    assert.deepEqual(wrong, []);
    assert.ok(seen > 0, "no rectangle was large enough");
    console.log(`        ${seen} rectangles looked at`);
  });
}

/** Runs in the page. Compares the pixel in the middle of each large rectangle with the colour of its category, in parts of the map. */
async function lookAtColours() {
  const pane = gpumem.panes()[0];
  const { plan } = pane;
  const frames = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
  const seen = new Set();
  const wrong = [];
  for (let part = 0; part < 8; part += 1) {
    for (const view of [[0, 1], [0.2, 0.5], [0.5, 0.8]]) {
      pane.offsets = [(plan.arena * part) / 8, (plan.arena * (part + 1)) / 8];
      gpumem.setView(view);
      await frames();
      const canvas = pane.canvases.map.base;
      const copy = document.createElement("canvas");
      [copy.width, copy.height] = [canvas.width, canvas.height];
      const context = copy.getContext("2d", { willReadFrequently: true });
      context.drawImage(canvas, 0, 0);
      const [width, height] = pane.size.map;
      const x = pane.across(width);
      const { y } = gpumem.mapScale(pane, height);
      for (const tensor of plan.byFirst) {
        const [left, right] = [x(pane.edges[tensor.first]), x(pane.edges[tensor.last + 1])];
        const [top, bottom] = [y(tensor.offset + tensor.room), y(tensor.offset)];
        // The right end, where no label is.
        const [px, py] = [Math.floor(Math.min(right, width - 15) - 2.5), Math.floor((top + bottom) / 2)];
        const isLine = [plan.base, plan.arena].some(offset => Math.abs(y(offset) - py) < 3);
        const isVisible = px > Math.max(left, 64) && px < width - 15 && py > 1 && py < height - 2;
        if (gpumem.isHatched(tensor.category) || bottom - top < 5 || right - left < 6 || !isVisible || isLine) continue;
        const pixel = context.getImageData(px, py, 1, 1).data;
        const colour = "#" + [...pixel].slice(0, 3).map(part => part.toString(16).padStart(2, "0")).join("");
        seen.add(tensor.index);
        if (colour !== gpumem.colourOf(tensor.category) && wrong.length < 5) wrong.push([tensor.name, colour, gpumem.colourOf(tensor.category)]);
      }
    }
  }
  pane.offsets = null;
  gpumem.setView([0, 1]);
  await frames();
  return { seen: seen.size, wrong };
}

async function checkKeys(page, plan) {
  const at = () => page.evaluate("gpumem.state.operations[gpumem.state.plan]");
  const pressed = async (keys, expression) => {
    for (const key of keys) await page.key(key);
    return page.evaluate(expression);
  };
  await check("keys go along the operations", async () => {
    await page.evaluate("document.activeElement.blur(); 1");
    await page.key("Home");
    assert.equal(await at(), 0);
    await page.key("ArrowRight");
    assert.equal(await at(), 1);
    await page.key("ArrowRight", true);
    assert.equal(await at(), 11);
    await page.key("End");
    assert.equal(await at(), plan.operations.verb.length - 1);
    await page.key("Home");
    await page.key("]");
    assert.ok((await at()) > 0);
    await page.key("p");
    assert.equal(await at(), plan.budget.peak);
  });
  await check("what is chosen is said", async () => {
    const said = await page.evaluate("document.getElementById('said').textContent");
    assert.ok(said.startsWith(`operation ${plan.budget.peak}, `), said);
  });
  await check("keys change the view", async () => {
    const width = "gpumem.state.view[1] - gpumem.state.view[0]";
    assert.ok((await pressed(["+", "+"], width)) < 0.6);
    assert.equal(await pressed(["0"], width), 1);
    const before = await page.evaluate("[gpumem.state.axis, gpumem.state.range, document.documentElement.dataset.theme].join()");
    await pressed(["m", "t"], "1");
    const between = await page.evaluate("[gpumem.state.axis, gpumem.state.range, document.documentElement.dataset.theme].join()");
    assert.notEqual(before, between);
    assert.equal(await pressed(["m", "t"], "[gpumem.state.axis, gpumem.state.range, document.documentElement.dataset.theme].join()"), before);
    if (plan.least_us > 0) {
      assert.equal(await pressed(["x"], "gpumem.state.axis"), "time");
      assert.equal(await pressed(["x"], "gpumem.state.axis"), "operations");
    }
  });
  await check("the list of keys opens and closes", async () => {
    assert.equal(await pressed(["?"], "document.getElementById('keys').open"), true);
    await page.evaluate("document.querySelector('#keys .close').click(); 1");
    assert.equal(await page.evaluate("document.getElementById('keys').open"), false);
  });
}

async function checkPointer(page) {
  await check("a click chooses the tensor under it", async () => {
    const place = await page.evaluate(`(() => {
      const pane = gpumem.panes()[0], box = pane.boxes.map.getBoundingClientRect(), [width, height] = pane.size.map;
      const { y } = gpumem.mapScale(pane, height), x = pane.across(width);
      const tensor = pane.plan.byFirst.filter(tensor => tensor.inside).reduce((a, b) => ((a.last - a.first + 1) * a.room > (b.last - b.first + 1) * b.room ? a : b));
      const px = (x(pane.edges[tensor.first]) + x(pane.edges[tensor.last + 1])) / 2, py = (y(tensor.offset) + y(tensor.offset + tensor.room)) / 2;
      return { index: tensor.index, x: box.left + px, y: box.top + py };
    })()`);
    await page.click(place.x, place.y);
    assert.equal(await page.evaluate("gpumem.state.tensor?.tensor.index"), place.index);
    assert.ok((await page.evaluate("document.getElementById('panel').textContent")).includes("Used by"));
    await page.key("Escape");
    assert.equal(await page.evaluate("gpumem.state.tensor"), null);
  });
  await check("the wheel zooms, and a drag moves", async () => {
    const box = await page.evaluate("(({ left, top, width, height }) => ({ left, top, width, height }))(gpumem.panes()[0].boxes.map.getBoundingClientRect())");
    const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
    await page.mouse("mouseWheel", x, y, { deltaX: 0, deltaY: -400, button: "none", clickCount: 0 });
    await page.drawn();
    const zoomed = await page.evaluate("gpumem.state.view");
    assert.ok(zoomed[1] - zoomed[0] < 0.9, String(zoomed));
    await page.mouse("mousePressed", x, y);
    for (let step = 1; step <= 5; step += 1) await page.mouse("mouseMoved", x - 20 * step, y, { buttons: 1 });
    await page.mouse("mouseReleased", x - 100, y);
    await page.drawn();
    const moved = await page.evaluate("gpumem.state.view");
    assert.ok(moved[0] > zoomed[0], String(moved));
    await page.key("0");
  });
}

async function checkTable(page, plan) {
  await check("a search narrows the table", async () => {
    const count = () => page.evaluate("document.getElementById('count').textContent");
    const [layer] = plan.layers.path;
    await page.key("/");
    await page.type(layer);
    const listed = Number((await count()).split(" ")[0].replace(",", ""));
    assert.ok(listed > 0 && listed < plan.tensors.bytes.length, await count());
    await page.key("Escape");
    assert.ok((await count()).startsWith(plan.tensors.bytes.length.toLocaleString("en-US")), await count());
  });
  await check("the table has only rows that are in view", async () => {
    const rows = await page.evaluate("[document.querySelectorAll('#all-rows .row').length, document.getElementById('rows').clientHeight]");
    assert.ok(rows[0] > 3 && rows[0] < rows[1] / 23 + 12, String(rows));
  });
}

async function checkFiles(page, name, plan) {
  await check("SVG and PNG", async () => {
    const svg = await page.evaluate("gpumem.pictureFile('svg').then(file => file.text())");
    const parsed = await page.evaluate(`(() => { const found = new DOMParser().parseFromString(${JSON.stringify(svg)}, "image/svg+xml"); return [found.querySelector("parsererror")?.textContent ?? "", found.querySelectorAll("rect").length]; })()`);
    assert.equal(parsed[0], "");
    assert.ok(parsed[1] > Math.min(plan.tensors.bytes.length, 100) / 2 && !svg.includes("NaN"), `${parsed[1]} rectangles`);
    const png = await page.evaluate("gpumem.pictureFile('png').then(file => file.arrayBuffer()).then(bytes => [...new Uint8Array(bytes).slice(0, 4), bytes.byteLength])");
    assert.deepEqual(png.slice(0, 4), [0x89, 0x50, 0x4e, 0x47]);
    assert.ok(png[4] > 5000);
    console.log(`        SVG ${Math.round(svg.length / 1024)} KiB, PNG ${Math.round(png[4] / 1024)} KiB`);
  });
  const csv = join(folder, name.replace(/html$/, "csv"));
  if (!existsSync(csv)) return;
  await check("the CSV of the page is that of the command", async () => {
    assert.equal(await page.evaluate("gpumem.csvText(gpumem.plans[0])"), readFileSync(csv, "utf8"));
  });
}

async function checkAccess(page) {
  await check("every button and field has a name", async () => {
    const nameless = await page.evaluate(`[...document.querySelectorAll("button, input, [role=img], [role=application], [role=grid]")]
      .filter(node => !(node.textContent.trim() || node.getAttribute("aria-label") || node.labels?.length)).map(node => node.outerHTML.slice(0, 120))`);
    assert.deepEqual(nameless, []);
  });
  await check("texts stand out from their backgrounds", async () => {
    for (const theme of ["light", "dark"]) {
      await page.evaluate(`gpumem.setTheme("${theme}"); 1`);
      const low = await page.evaluate(`(() => {
        const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue("--" + name).trim();
        const light = hex => { const full = hex.length === 4 ? "#" + [...hex.slice(1)].map(c => c + c).join("") : hex;
          const [r, g, b] = [1, 3, 5].map(at => parseInt(full.slice(at, at + 2), 16) / 255).map(c => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
          return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
        const ratio = (a, b) => { const [low, high] = [light(colour(a)), light(colour(b))].sort((x, y) => x - y); return (high + 0.05) / (low + 0.05); };
        return ["ink", "soft", "faint", "accent", "bad", "good"].flatMap(text => ["panel", "page"].map(on => [text, on, ratio(text, on)])).filter(([, , ratio]) => ratio < 4.5);
      })()`);
      assert.deepEqual(low, []);
    }
  });
}

async function checkSpeed(page) {
  const times = await page.evaluate(`new Promise(done => {
    const times = [];
    const step = time => {
      times.push(time);
      const middle = 0.5 + 0.3 * Math.sin(times.length / 15);
      gpumem.setView([middle - 0.2, middle + 0.2]);
      if (times.length < 60) requestAnimationFrame(step);
      else done(times.slice(1).map((time, index) => time - times[index]));
    };
    requestAnimationFrame(step);
  })`);
  times.sort((a, b) => a - b);
  const drawn = (await page.evaluate("gpumem.frameTimes()")).sort((a, b) => a - b);
  const of = (all, share) => all[Math.floor((all.length - 1) * share)].toFixed(1);
  console.log(`        a frame takes ${of(times, 0.5)} ms while the view moves, 95 % ${of(times, 0.95)} ms; drawing ${of(drawn, 0.5)} and ${of(drawn, 0.95)} ms`);
  await check("views move without jerks", () => assert.ok(Number(of(times, 0.5)) < 50));
  await page.evaluate("gpumem.setView([0, 1]); 1");
}

async function checkTwo(page, name) {
  await check("two plans stand side by side on one scale", async () => {
    const panes = await page.evaluate("gpumem.panes().map(pane => [pane.boxes.map.getBoundingClientRect().top, pane.offsetRange()[1]])");
    assert.equal(panes.length, 2);
    assert.deepEqual(panes[0], panes[1]);
  });
  await check("their difference is told line by line", async () => {
    await page.evaluate("[...document.querySelectorAll('[role=tab]')].find(tab => tab.textContent === 'Difference').click(); 1");
    const cells = await page.evaluate("[...document.querySelectorAll('.budget tr')].slice(1).map(row => row.lastChild.textContent)");
    assert.ok(cells.length > 4);
    const differ = cells.filter(cell => cell !== "=");
    if (name === "same.html") assert.deepEqual(differ, []);
    else assert.ok(differ.length > 3, String(cells));
  });
}

/** Checks one page in a wide window, and its layout in a narrow one. */
async function checkPage(name) {
  const html = readFileSync(join(folder, name), "utf8");
  const plans = dataOf(html);
  const page = await browser.open(address(name));
  const size = statSync(join(folder, name)).size;
  console.log(`${name}: ${plans[0].operations.verb.length} operations, ${plans[0].tensors.bytes.length} tensors, ${Math.round(size / 1024)} KiB`);
  await check("the page is there", async () => assert.ok(await page.evaluate("gpumem.ready >= 0"), page.messages().join("\n")));
  await check("the page has less than 1 MB", () => assert.ok(size < 1e6));
  await checkData(page, plans);
  await checkMap(page);
  await checkKeys(page, plans[0]);
  await checkPointer(page);
  await checkTable(page, plans[0]);
  await checkParked(page, plans[0]);
  await checkFiles(page, name, plans[0]);
  await checkAccess(page);
  await checkSpeed(page);
  if (plans.length > 1) await checkTwo(page, name);
  await check("the console is empty, and nothing is fetched", () => assert.deepEqual([page.messages(), page.requests()], [[], []]));
  await page.close();
  const narrow = await browser.open(address(name), { width: 800, height: 900 });
  await check("nothing is wider than a window of 800 pixels", async () => {
    assert.ok(await narrow.evaluate("document.documentElement.scrollWidth <= innerWidth"));
  });
  await narrow.close();
  await keepScreenshots(name);
}

/** Returns the index of a tensor that comes back from host memory, or of the largest inside the step. */
async function chosenTensor(name) {
  const page = await browser.open(address(name));
  const index = await page.evaluate(`(() => {
    const [plan] = gpumem.plans, inside = plan.tensors.filter(tensor => tensor.inside);
    return plan.raw.parked[0]?.[2] ?? (inside.length > 0 ? inside.reduce((a, b) => (a.room > b.room ? a : b)).index : 0);
  })()`);
  await page.close();
  return index;
}

/** Checks that choosing one life of a parked tensor shows the others. */
async function checkParked(page, plan) {
  if (plan.parked.length === 0) return;
  await check("a parked tensor shows all of its lives", async () => {
    const [before, host, after] = plan.parked[0];
    const lives = await page.evaluate(`(() => {
      const [plan] = gpumem.plans;
      gpumem.selectTensor(plan, plan.tensors[${before}]);
      const buttons = [...document.querySelectorAll("#panel .item")].filter(item => /arena|host memory/.test(item.textContent));
      const pressed = buttons.map(item => item.getAttribute("aria-pressed")).join();
      const opaque = [${before}, ${after}].map(index => gpumem.opacity(plan.tensors[index], plan)).join();
      buttons.at(-1).click();
      return { texts: buttons.map(item => item.textContent), pressed, opaque, next: gpumem.state.tensor.tensor.index };
    })()`);
    const { first, last } = plan.tensors;
    assert.deepEqual(lives.texts, [
      `in the arena, until it leaves${first[before]} to ${last[before]}`,
      `in host memory${first[host]} to ${last[host]}`,
      `in the arena again${first[after]} to ${last[after]}`,
    ]);
    assert.deepEqual([lives.pressed, lives.opaque, lives.next], ["true,false,false", "1,1", after]);
    await page.key("Escape");
  });
}

async function keepScreenshots(name) {
  if (!process.env.SCREENSHOTS) return;
  const chosen = "#tensor=" + (await chosenTensor(name));
  const alternatives = "#tab=alternatives";
  const views = [
    ["light", {}],
    ["dark", { dark: true }],
    ["narrow", { width: 800, height: 1400 }],
    ["chosen-light", {}, chosen],
    ["chosen-dark", { dark: true }, chosen],
    ["alternatives-light", {}, alternatives],
    ["alternatives-narrow", { width: 800, height: 1400 }, alternatives],
  ];
  for (const [suffix, options, place = ""] of views) {
    const page = await browser.open(address(name) + place, options);
    writeFileSync(join(process.env.SCREENSHOTS, `${name.replace(/\.html$/, "")}-${suffix}.png`), await page.screenshot());
    await page.close();
  }
}

/** Checks that a page says so if its plan is wrong. */
async function checkBroken(name) {
  const html = readFileSync(join(folder, name), "utf8");
  const changes = {
    offset: plan => {
      const inside = plan.tensors.category.findLastIndex(category => plan.categories[category].where === "step");
      plan.tensors.offset[inside] = Math.max(0, plan.tensors.offset[inside] - 16);
    },
    bytes: plan => (plan.tensors.bytes[0] += 512),
    peak: plan => (plan.budget.peak = 0),
  };
  for (const [what, change] of Object.entries(changes)) {
    const plans = dataOf(html);
    change(plans[0]);
    const data = JSON.stringify(plans).replaceAll("<", "\\u003c");
    const broken = html.replace(/(<script type="application\/json" id="data">)[^]*?(<\/script>)/, (_, begin, end) => begin + data + end);
    writeFileSync(join(folder, "broken.html"), broken);
    const page = await browser.open(address("broken.html"));
    await check(`a wrong ${what} is told`, async () => {
      await page.key("3");
      const told = await page.evaluate("document.getElementById('panel').textContent");
      assert.ok(told.includes("disagrees"), told);
    });
    await page.close();
  }
}

for (const name of names) await checkPage(name);
console.log("pages of wrong plans");
await checkBroken(names[0]);
await browser.close();
console.log(failures === 0 ? "all checks passed" : `${failures} checks failed`);
process.exit(failures === 0 ? 0 : 1);
