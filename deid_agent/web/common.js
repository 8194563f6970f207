// Functions that the pages share. Text from the server only becomes text nodes, so it is never parsed as markup.

export function el(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  set(node, attributes);
  node.append(...children.filter((child) => child !== null && child !== undefined).map((c) => (c instanceof Node ? c : String(c))));
  return node;
}

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  set(node, attributes);
  node.append(...children);
  return node;
}

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
}

export const by = (id) => document.getElementById(id);

export function show(place, ...children) {
  place.replaceChildren(...children.filter((child) => child !== null).map((c) => (c instanceof Node ? c : String(c))));
}

export class Refused extends Error {
  constructor(status, body) {
    super(body.advice || `the agent responded with status ${status}`);
    this.status = status;
    this.code = body.error || "";
  }
}

// With `stay` a lost session does not leave the page, which may hold unsaved work.
async function read(response, stay) {
  const body = await response.json().catch(() => ({}));
  if (response.ok) return body;
  if (response.status === 401 && !stay && !location.pathname.endsWith("/login")) location.assign("/console/login");
  throw new Refused(response.status, body);
}

// If a token is required, a session has two keys: a cookie, which the browser sends to every port of this host, and this
// value, which only pages of our origin can read.
const STORAGE_KEY = "deid-console";

export const storePageKey = (value) => localStorage.setItem(STORAGE_KEY, value);

function pageKeyHeader() {
  try {
    const value = localStorage.getItem(STORAGE_KEY);
    return value ? { "X-Deid-Page": value } : {};
  } catch {
    return {}; // storage is disabled; without a token it is not needed
  }
}

export const get = async (path, stay = false) => read(await fetch(`/console/api/${path}`, { cache: "no-store", headers: pageKeyHeader() }), stay);

export const post = async (path, body, stay = false) =>
  read(
    await fetch(`/console/api/${path}`, {
      method: "POST",
      cache: "no-store",
      headers: { "Content-Type": "application/json", "X-Deid-Console": "1", ...pageKeyHeader() },
      body: JSON.stringify(body),
    }),
    stay,
  );

// Calls `load` now and then at this interval while the page is visible. An error is shown until the next call succeeds.
// Returns a function that calls `load` at once.
export function poll(load, seconds) {
  let timer = 0;
  let at = 0;
  const turn = async () => {
    clearTimeout(timer);
    const mine = ++at;
    if (!document.hidden) {
      try {
        await load();
        showError("");
      } catch (problem) {
        showError(problem instanceof Refused ? problem.message : "The agent does not respond. This page keeps trying.");
      }
    }
    if (mine === at) timer = setTimeout(turn, 1000 * seconds);
  };
  document.addEventListener("visibilitychange", () => document.hidden || turn());
  turn();
  return turn;
}

export function showError(text) {
  const place = by("notices");
  const old = document.getElementById("trouble");
  if (!text) old?.remove();
  else if (old) old.textContent = text;
  else place.append(el("p", { class: "notice bad", id: "trouble" }, text));
}

const MEASURE = /^(-|[\d.,]+ ?(ms|s|%|\/s)?)$/;

// Each row is a list of cells: text, numbers (aligned to the right), or nodes.
export function table(head, rows, caption = "") {
  const numbers = head.map((_, i) => rows.length > 0 && rows.every((row) => row[i] === null || typeof row[i] === "number" || MEASURE.test(row[i])));
  const cell = (name, value, i) => el(name, numbers[i] ? { class: "n" } : {}, typeof value === "number" ? number(value) : (value ?? "-"));
  return el(
    "div",
    { class: "wide", tabindex: "0", role: "group", "aria-label": caption || head.join(", ") },
    el(
      "table",
      {},
      caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, ...head.map((text, i) => el("th", { scope: "col", ...(numbers[i] ? { class: "n" } : {}) }, text)))),
      el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((value, i) => cell("td", value, i))))),
    ),
  );
}

export function facts(pairs) {
  return el("dl", { class: "facts" }, ...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value ?? "-")]));
}

// Bars with their numbers; `pairs` are [name, number].
export function bars(pairs, unit = "") {
  const most = Math.max(1e-9, ...pairs.map(([, value]) => value));
  return el(
    "dl",
    { class: "bars" },
    ...pairs.flatMap(([name, value], i) => [
      el("dt", {}, name),
      el(
        "dd",
        { "aria-hidden": "true" },
        svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none" }, svg("rect", { width: Math.max(0.6, (100 * value) / most), height: 8, class: "k1" })),
      ),
      el("dd", { class: "n" }, number(value), unit),
    ]),
  );
}

export const number = (value) => value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0 });

export function seconds(value) {
  if (value === null || value === undefined) return "-";
  if (value >= 10) return "10 s or more";
  return value < 1 ? `${number(1000 * value)} ms` : `${number(value)} s`;
}

// Times are ISO 8601 in UTC, to the second. `at` is in seconds since 1970.
export function iso(at) {
  const date = new Date(1000 * at);
  return Number.isNaN(date.getTime()) ? "-" : date.toISOString().replace(/\.\d+Z$/, "Z");
}
export const time = (at) => (typeof at === "string" ? el("time", { datetime: at }, at) : el("time", { datetime: iso(at) }, iso(at)));
export const plural = (count, one, many = `${one}s`) => `${number(count)} ${count === 1 ? one : many}`;
export const words = (code) => code.replaceAll("_", " ");

// Shows the log out button. `before` may refuse, for example because work is not saved.
export function offerLogout(before = async () => true) {
  const leave = by("leave");
  leave.hidden = false;
  leave.addEventListener("click", async () => {
    if (!(await before())) return;
    await post("logout", {}).catch(() => {});
    localStorage.removeItem(STORAGE_KEY);
    location.assign("/console/login");
  });
}

// Loads the features of this console, shows the log out button and the warning about the demonstration key.
export async function session() {
  const features = await get("session");
  if (features.token) offerLogout();
  if (features.demo)
    by("notices").append(el("p", { class: "notice warn" }, "This agent uses the demonstration key, which is public: everyone can reverse its output. Never use it on real data."));
  return features;
}
