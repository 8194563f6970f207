import { by, el, facts, get, number, plural, session, show, showError, table } from "./common.js";

const PAGE_SIZE = 50;
const filter = by("filter");
let rules = [];
let page = 1;

const code = (text) => el("code", {}, text);

function matches(rule) {
  const text = filter.text.value.trim().toLowerCase();
  return (!filter.kind.value || rule.kind === filter.kind.value) && (!text || `${rule.id} ${rule.types.join(" ")} ${rule.why}`.toLowerCase().includes(text));
}

function list() {
  const found = rules.filter(matches);
  const pages = Math.max(1, Math.ceil(found.length / PAGE_SIZE));
  page = Math.min(Math.max(1, page), pages);
  const first = (page - 1) * PAGE_SIZE;
  const shown = found.slice(first, first + PAGE_SIZE);
  const range = pages > 1 ? `Rules ${first + 1} to ${first + shown.length} of ${number(found.length)}` : plural(found.length, "rule");
  by("count").textContent = found.length === rules.length ? `${range}.` : `${range} found, ${number(rules.length)} in total.`;
  show(by("rules"), shown.length ? table(["id", "kind", "types", "confidence", "reason", "digest"], shown.map((rule) => [code(rule.id), rule.kind, rule.types.join(", ") || "all", rule.confidence ?? "-", rule.why, code(rule.digest)])) : el("p", {}, "No rule matches."));
  by("pages").hidden = pages === 1;
  by("page").textContent = `Page ${page} of ${pages}`;
  by("previous").disabled = page === 1;
  by("next").disabled = page === pages;
  keepInAddress();
}

// The address holds the search, so that it survives a reload and can be sent to a colleague.
function keepInAddress() {
  const query = new URLSearchParams();
  if (filter.text.value) query.set("text", filter.text.value);
  if (filter.kind.value) query.set("kind", filter.kind.value);
  if (page > 1) query.set("page", page);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
}

function readAddress() {
  const query = new URLSearchParams(location.search);
  filter.text.value = query.get("text") ?? "";
  filter.kind.value = ["pattern", "veto", "late veto"].includes(query.get("kind")) ? query.get("kind") : "";
  page = Number.parseInt(query.get("page"), 10) || 1;
}

function turn(step) {
  page += step;
  list();
  // A disabled button loses the focus, and the keyboard would start again at the top of the page.
  const [pressed, other] = step > 0 ? [by("next"), by("previous")] : [by("previous"), by("next")];
  if (pressed.disabled) other.focus();
}

function model(one) {
  const trained = Object.entries(one.trained).filter(([name]) => name !== "sha256").map(([name, value]) => `${value} ${name.replaceAll("_", " ")}`);
  return [el("h3", {}, one.id, " ", el("span", { class: `pill ${one.used ? "good" : ""}` }, one.used ? "in use" : "not in use")), el("p", {}, one.about), facts([["kind", one.kind], ["SHA-256", code(one.digest)], ["trained on", trained.join(", ") || "-"], ["made with", Object.entries(one.versions).map(([name, version]) => `${name} ${version}`).join(", ")]])];
}

async function load() {
  const answer = await get("inventory");
  if (!answer.found && answer.state === "running") return void setTimeout(() => load().catch(report), 700);
  if (!answer.found) return showError(answer.problem);
  const agent = answer.found;
  by("state").textContent = `System ${agent.system}, profile ${agent.profile}, policy ${agent.policy.name}.`;
  show(by("build"),
    agent.changed.length ? el("p", { class: "notice warn" }, `Changed on disk since the start: ${agent.changed.join(" and ")}. The agent still uses the files that it loaded; this page shows the changed files. Restart the agent to load them.`) : null,
    facts([...Object.entries(agent.build).filter(([name]) => name !== "key").map(([name, value]) => [name, code(value)]), ["key", agent.key.demo ? "the demonstration key" : code(agent.key.id)], ["word lists", `${plural(agent.lists.length, "list")} with ${plural(agent.lists.reduce((sum, one) => sum + one.words, 0), "word")}`]]));
  const policy = agent.policy;
  const types = Object.entries(policy.types);
  const paths = Object.entries(policy.paths);
  show(by("policy"), facts([["name", policy.name], ["digest", code(policy.digest)], ["default method", policy.default], ["base of date shifts", policy.dates], ["offset of a document", plural(policy.offset_days, "day")], ["technical dates", policy.technical], ["name consistency scope", policy.names], ["longest date shift", plural(policy.max_shift_days, "day")], ["record keys", policy.record_key], ["record headers kept", policy.headers.join(", ") || "none"], ["attachments", Object.entries(policy.attachments).map(([name, method]) => `${name} ${method}`).join(", ")]]),
    types.length ? el("details", {}, el("summary", {}, `Methods by type (${types.length})`), table(["type", "method"], types)) : null,
    paths.length ? el("details", {}, el("summary", {}, `Methods by path (${paths.length})`), table(["path", "method"], paths.map(([path, method]) => [code(path), method]))) : null);
  by("projects-card").hidden = !agent.projects.length;
  show(by("projects"), table(["project", "policy", "digest", "key", "generation", "routes"], agent.projects.map((one) => [one.name, one.policy, code(one.digest.slice(0, 16)), code(one.key), one.generation || "-", one.routes.join(", ") || "none"])));
  show(by("models"), ...(agent.models.length ? agent.models.flatMap(model) : ["None."]));
  rules = agent.rules;
  list();
  show(by("configuration"), table(["setting", "value", "description"], agent.configuration.map((one) => [code(one.name), one.default ? one.value : el("strong", {}, one.value), one.meaning]), "Values that differ from the default are bold."));
}

const report = (problem) => showError(problem.message);
filter.addEventListener("input", () => {
  page = 1;
  list();
});
filter.addEventListener("submit", (event) => event.preventDefault());
by("previous").addEventListener("click", () => turn(-1));
by("next").addEventListener("click", () => turn(1));
readAddress();
load().catch(report);
session().catch(() => {});
