import { bars, by, el, facts, get, poll, post, session, show, since, table, trouble } from "./common.js";

const MEANING = {
  MALFORMED: "not HL7 v2, not JSON, or torn: mend the sender",
  UNSUPPORTED: "a kind that is not supported: route it elsewhere",
  RESOURCE: "larger or deeper than the bounds: raise them, or route it elsewhere",
  REJECTED: "its receiver does not take it: look at the receiver's log",
  LEAK: "an identifier was still in the output: report it",
  POISON: "the worker died or never returned: report it",
  INTERNAL: "a fault of this program: report it",
};
const chosen = new Set();
const filter = by("filter");
const back = by("back");
let found = null;
let writes = false;

function fits(letter) {
  const put = letter.replayed > 0 ? "yes" : "no";
  return (!filter.code.value || letter.code === filter.code.value) && (!filter.topic.value || letter.record.startsWith(`${filter.topic.value}/`)) && (!filter.back.value || put === filter.back.value);
}

function options(select, values) {
  const old = select.value;
  const now = [...select.options].slice(1).map((option) => option.value);
  if (now.join("|") === values.join("|")) return;
  show(select, el("option", { value: "" }, "every"), ...values.map((value) => el("option", {}, value)));
  select.value = values.includes(old) ? old : "";
}

function mark(letter) {
  const box = el("input", { type: "checkbox", "aria-label": `choose ${letter.record}`, on: { change: () => choose(letter.record, box.checked) } });
  box.checked = chosen.has(letter.record);
  return box;
}

function choose(record, on) {
  if (on) chosen.add(record);
  else chosen.delete(record);
  by("chosen").textContent = chosen.size;
}

function list() {
  const letters = found.letters.filter(fits);
  const head = ["record", "reason", "where", "stage", "refused", "put back", "build"];
  const rows = letters.map((one) => [
    el("code", {}, one.record), el("span", { class: "pill bad" }, one.code), el("code", {}, one.where || "-"), one.stage, one.refused,
    one.replayed ? `${one.replayed} times` : "no", details(one),
  ]);
  if (writes) { head.unshift("put back?"); rows.forEach((row, i) => row.unshift(mark(letters[i]))); }
  const cut = found.total > found.letters.length ? ` The last ${found.letters.length} are listed.` : "";
  show(by("list"), rows.length ? table(head, rows, `${rows.length} letters.${cut}`) : el("p", {}, found.total ? "No letter fits." : "No message was refused."));
}

function details(one) {
  const pairs = [["version", one.version], ["tries", String(one.attempts)], ["fault", one.fault || "-"], ["form", one.form], ["sealed to key", one.key || "-"], ["letter", one.letter], ["first stood at", one.replay_of || "-"], ...Object.entries(one.build)];
  return el("details", {}, el("summary", {}, one.version), facts(pairs));
}

const look = poll(async () => {
  const said = await get("letters");
  writes = said.replay.allowed;
  by("replay").hidden = !writes;
  by("readonly").hidden = writes;
  by("state").textContent = said.problem || (said.at ? `Read ${since(said.at)}.` : "Reading the letters.");
  if (said.problem) trouble(said.problem);
  if (!said.found || document.activeElement?.closest("#list details")) return;
  const before = JSON.stringify(found);
  found = said.found;
  if (JSON.stringify(found) === before) return;
  const reasons = Object.entries(found.counts);
  show(by("reasons"), reasons.length ? bars(reasons) : "None.", ...reasons.map(([code]) => el("p", { class: "soft" }, el("code", {}, code), `: ${MEANING[code] || ""}`)), found.cut ? el("p", { class: "notice warn" }, "Time was up before the end: these are not all. deid-agent letters list reads every one.") : null);
  options(filter.code, reasons.map(([code]) => code).sort());
  options(filter.topic, [...new Set(found.letters.map((one) => one.record.split("/").slice(0, -2).join("/")))].sort());
  by("damaged").hidden = !found.damaged.length;
  show(by("damaged").lastElementChild, table(["where", "why"], found.damaged.map((one) => [one.place, one.why])));
  list();
}, 5);

filter.addEventListener("submit", (event) => event.preventDefault());
filter.addEventListener("change", () => found && list());

back.addEventListener("submit", async (event) => {
  event.preventDefault();
  const place = by("done");
  const file = back.key.files[0];
  if (!chosen.size) return show(place, el("p", { class: "notice warn" }, "Choose letters above first."));
  try {
    const key = file ? (await file.text()).slice(0, 4096) : null;
    await post("replay", { records: [...chosen], key, again: back.again.checked });
    back.key.value = "";
    show(place, "At work.");
    await ended();
  } catch (problem) {
    show(place, el("p", { class: "notice bad" }, problem.message));
  }
});

async function ended() {
  const said = await get("replay");
  if (said.state === "running") return new Promise((done) => setTimeout(() => done(ended()), 700));
  const { done, failed, problem } = said.found ?? { done: [], failed: [], problem: said.problem };
  chosen.clear();
  choose("", false);
  show(by("done"), el("p", { class: `notice ${failed.length || problem ? "bad" : "good"}` }, `${done.length} put back, ${failed.length} not. ${problem}`), failed.length ? table(["record", "why"], failed.map((one) => [one.record, one.why])) : null);
  look();
}
session().catch(() => {});
