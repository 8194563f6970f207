// What the pages share. Text only ever becomes a text node: nothing that a server or a message says is read as markup.

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
    if (name === "on") for (const [event, heard] of Object.entries(value)) node.addEventListener(event, heard);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
}

export const by = (id) => document.getElementById(id);

export function show(place, ...children) {
  place.replaceChildren(...children.filter((child) => child !== null).map((c) => (c instanceof Node ? c : String(c))));
}

export class Refused extends Error {
  constructor(status, said) {
    super(said.advice || `the agent answered ${status}`);
    this.status = status;
    this.why = said.error || "";
  }
}

async function answer(response) {
  const said = await response.json().catch(() => ({}));
  if (response.ok) return said;
  if (response.status === 401 && !location.pathname.endsWith("/login")) location.assign("/console/login");
  throw new Refused(response.status, said);
}

// With a token a session is a cookie, which every server of this host gets, and this value, which only our origin has.
const KEPT = "deid-console";

export const keep = (value) => localStorage.setItem(KEPT, value);

function kept() {
  try {
    const value = localStorage.getItem(KEPT);
    return value ? { "X-Deid-Page": value } : {};
  } catch {
    return {}; // switched off, which is as well where no token is asked for
  }
}

export const get = async (path) => answer(await fetch(`/console/api/${path}`, { cache: "no-store", headers: kept() }));

export const post = async (path, body) =>
  answer(
    await fetch(`/console/api/${path}`, {
      method: "POST",
      cache: "no-store",
      headers: { "Content-Type": "application/json", "X-Deid-Console": "1", ...kept() },
      body: JSON.stringify(body),
    }),
  );

// Calls `look` now and every few seconds while the page is seen; what goes wrong is told once, and the next look goes on.
export function poll(look, seconds) {
  let timer = 0;
  let at = 0;
  const turn = async () => {
    clearTimeout(timer);
    const mine = ++at;
    if (!document.hidden) {
      try {
        await look();
        trouble("");
      } catch (problem) {
        trouble(problem instanceof Refused ? problem.message : "The agent does not answer. This page tries again.");
      }
    }
    if (mine === at) timer = setTimeout(turn, 1000 * seconds);
  };
  document.addEventListener("visibilitychange", () => document.hidden || turn());
  turn();
  return turn;
}

export function trouble(text) {
  const place = by("notices");
  const old = document.getElementById("trouble");
  if (!text) old?.remove();
  else if (old) old.textContent = text;
  else place.append(el("p", { class: "notice bad", id: "trouble" }, text));
}

const MEASURE = /^(-|[\d.,]+ ?(ms|s|%|\/s)?)$/;

// Rows of cells: text, numbers (set to the right), or nodes.
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

export const clock = (at) => new Date(1000 * at).toLocaleTimeString([], { timeStyle: "medium", hourCycle: "h23" });
export const day = (at) => new Date(1000 * at).toLocaleString([], { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
export const words = (code) => code.replaceAll("_", " ");

export function since(at) {
  const s = Math.max(0, Date.now() / 1000 - at);
  return s < 90 ? `${Math.round(s)} s ago` : s < 5400 ? `${Math.round(s / 60)} min ago` : `${Math.round(s / 3600)} h ago`;
}

// Who is here, and what the page must warn of.
export async function session() {
  const said = await get("session");
  if (said.token) {
    const leave = by("leave");
    leave.hidden = false;
    leave.addEventListener("click", async () => {
      await post("logout", {}).catch(() => {});
      localStorage.removeItem(KEPT);
      location.assign("/console/login");
    });
  }
  if (said.demo)
    by("notices").append(el("p", { class: "notice warn" }, "Demonstration key: everyone can reverse this agent's output. Never use it on real data."));
  return said;
}
