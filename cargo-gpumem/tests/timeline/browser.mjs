// Chromium without a window, driven over its debugging pipe. Needs no package but Node.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const FLAGS = [
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-color-profile=srgb", "--remote-debugging-pipe",
];
/** Milliseconds after which an answer is given up. */
const PATIENCE = 60_000;

/** Starts Chromium. `close` ends it, and removes its profile. */
export async function start(program = process.env.CHROMIUM || "chromium") {
  const profile = mkdtempSync(join(tmpdir(), "gpumem-browser-"));
  const child = spawn(program, [...FLAGS, `--user-data-dir=${profile}`, "about:blank"], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
  const waiting = new Map();
  const sessions = new Map();
  let last = 0;
  let rest = "";
  const exited = new Promise(done => child.once("exit", done));
  const failed = new Promise((_, fail) => child.once("error", error => fail(new Error(`cannot start ${program}: ${error.message}`))));
  failed.catch(() => {});
  child.stdio[4].setEncoding("utf8").on("data", text => {
    const messages = (rest + text).split("\0");
    rest = messages.pop();
    for (const message of messages.map(each => JSON.parse(each))) {
      if (message.id) waiting.get(message.id)?.(message);
      else sessions.get(message.sessionId)?.push(message);
    }
  });
  const send = (method, params = {}, sessionId = undefined) => {
    last += 1;
    const id = last;
    const answer = new Promise((done, fail) => {
      const late = setTimeout(() => fail(new Error(`no answer to ${method}`)), PATIENCE);
      waiting.set(id, message => {
        clearTimeout(late);
        waiting.delete(id);
        if (message.error) fail(new Error(`${method}: ${message.error.message}`));
        else done(message.result);
      });
    });
    child.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    return Promise.race([answer, failed]);
  };
  await send("Target.setDiscoverTargets", { discover: true });
  return {
    open: (address, options) => openPage(send, sessions, address, options),
    close: async () => {
      await Promise.race([send("Browser.close").catch(() => {}), exited]);
      await exited;
      rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    },
  };
}

/** Opens a page, and waits until it is drawn. */
async function openPage(send, sessions, address, { width = 1440, height = 900, dark = false } = {}) {
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await send("Target.attachToTarget", { targetId, flatten: true });
  const events = [];
  sessions.set(sessionId, events);
  const call = (method, params) => send(method, params, sessionId);
  for (const domain of ["Page", "Runtime", "Log", "Network"]) await call(`${domain}.enable`);
  await call("Emulation.setDeviceMetricsOverride", { width, height, deviceScaleFactor: 1, mobile: false });
  await call("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: dark ? "dark" : "light" }] });
  await call("Page.navigate", { url: address });
  const page = {
    /** Returns the value of an expression in the page; waits for promises. */
    evaluate: async expression => {
      const { result, exceptionDetails } = await call("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
      if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
      return result.value;
    },
    /** Waits for two frames, after which everything that was asked for is drawn. */
    drawn: () => page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"),
    key: async (key, shift = false) => {
      const params = { key, modifiers: shift ? 8 : 0, text: key.length === 1 ? key : undefined };
      await call("Input.dispatchKeyEvent", { type: "keyDown", ...params });
      await call("Input.dispatchKeyEvent", { type: "keyUp", key });
      await page.drawn();
    },
    type: async text => {
      await call("Input.insertText", { text });
      await page.drawn();
    },
    mouse: (type, x, y, more = {}) => call("Input.dispatchMouseEvent", { type, x, y, button: "left", clickCount: 1, ...more }),
    click: async (x, y) => {
      await page.mouse("mouseMoved", x, y, { button: "none", clickCount: 0 });
      await page.mouse("mousePressed", x, y);
      await page.mouse("mouseReleased", x, y);
      await page.drawn();
    },
    /** Returns a picture of the page as PNG. */
    screenshot: async () => Buffer.from((await call("Page.captureScreenshot", { format: "png" })).data, "base64"),
    /** Returns what the page wrote to the console, its errors among them. */
    messages: () => events.filter(({ method }) => ["Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"].includes(method)).map(event => JSON.stringify(event.params)),
    /** Returns what the page asked the network for. The file itself and what is in it do not count. */
    requests: () => events.filter(({ method }) => method === "Network.requestWillBeSent").map(event => event.params.request.url).filter(url => url !== address && !/^(data|blob):/.test(url)),
    close: () => send("Target.closeTarget", { targetId }),
  };
  for (let tries = 0; tries < 200; tries += 1) {
    const isReady = await page.evaluate("document.readyState === 'complete' && Boolean(window.gpumem)").catch(() => false);
    if (isReady) break;
    if (tries > 20 && page.messages().length > 0) break;
    await new Promise(done => setTimeout(done, 50));
  }
  await page.drawn();
  return page;
}
