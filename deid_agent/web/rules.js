import { by, el, facts, get, number, session, show, table, trouble } from "./common.js";

const filter = by("filter");
let rules = [];

function list() {
  const text = filter.text.value.toLowerCase();
  const fits = rules.filter((one) => (!filter.kind.value || one.kind === filter.kind.value) && (!text || `${one.id} ${one.types.join(" ")} ${one.why}`.toLowerCase().includes(text)));
  by("count").textContent = `${fits.length} of ${rules.length}`;
  show(by("rules"), table(["id", "kind", "types", "confidence", "why", "digest"], fits.map((one) => [el("code", {}, one.id), one.kind, one.types.join(", ") || "every", one.confidence ?? "-", one.why, el("code", {}, one.digest)])));
}

const code = (text) => el("code", {}, text);

function model(one) {
  const trained = Object.entries(one.trained).filter(([name]) => name !== "sha256").map(([name, value]) => `${value} ${name.replaceAll("_", " ")}`);
  return [el("h3", {}, one.id, " ", el("span", { class: `pill ${one.used ? "good" : ""}` }, one.used ? "in use" : "not in use")), el("p", {}, one.about), facts([["kind", one.kind], ["SHA-256", code(one.digest)], ["trained on", trained.join(", ") || "-"], ["made with", Object.entries(one.versions).map(([n, v]) => `${n} ${v}`).join(", ")]])];
}

async function look() {
  const said = await get("about");
  if (!said.found && said.state === "running") return void setTimeout(() => look().catch(told), 700);
  if (!said.found) return trouble(said.problem);
  const it = said.found;
  by("state").textContent = `System ${it.system}, profile ${it.profile}, policy ${it.policy.name}.`;
  show(by("build"),
    it.changed.length ? el("p", { class: "notice warn" }, `Changed on disk since the start: ${it.changed.join(" and ")}. The agent runs on with what it loaded; what stands below is what lies there now.`) : null,
    facts([...Object.entries(it.build).filter(([name]) => name !== "key").map(([name, value]) => [name, code(value)]), ["key", it.key.demo ? "the demonstration key" : code(it.key.id)], ["word lists", `${it.lists.length}, ${number(it.lists.reduce((n, one) => n + one.words, 0))} words`]]));
  const p = it.policy;
  show(by("policy"), facts([["name", p.name], ["digest", code(p.digest)], ["default", p.default], ["dates move by", p.dates], ["names agree by", p.names], ["longest shift", `${p.max_shift_days} days`], ["record keys", p.record_key], ["headers that pass", p.headers.join(", ") || "none"], ["attachments", Object.entries(p.attachments).map(([n, v]) => `${n} ${v}`).join(", ")]]),
    Object.keys(p.types).length ? el("details", {}, el("summary", {}, `Types with a method of their own (${Object.keys(p.types).length})`), table(["type", "method"], Object.entries(p.types))) : null,
    Object.keys(p.paths).length ? el("details", {}, el("summary", {}, `Paths with a method of their own (${Object.keys(p.paths).length})`), table(["path", "method"], Object.entries(p.paths).map(([path, method]) => [code(path), method]))) : null);
  show(by("models"), ...(it.models.length ? it.models.flatMap(model) : ["None."]));
  rules = it.rules;
  list();
  show(by("configuration"), table(["setting", "value", "meaning"], it.configuration.map((one) => [code(one.name), one.default ? one.value : el("strong", {}, one.value), one.meaning]), "In bold what differs from the default."));
}

const told = (problem) => trouble(problem.message);
filter.addEventListener("input", list);
filter.addEventListener("submit", (event) => event.preventDefault());
look().catch(told);
session().catch(() => {});
