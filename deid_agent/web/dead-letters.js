import { bars, by, el, facts, get, number, plural, poll, post, session, show, showError, table, time } from "./common.js";

const MEANING = {
  MALFORMED: "not HL7 v2, not JSON, or truncated: correct the sender",
  UNSUPPORTED: "a kind of message that is not supported: route it elsewhere",
  RESOURCE: "larger or more deeply nested than the limits: raise them, or route it elsewhere",
  REJECTED: "its receiver refused it: read the log of the receiver",
  KEYLESS: "it has no key and its output topic is compacted: give it a key, or set cleanup.policy to delete",
  LEAK: "an identifier remained in the output: report it",
  LANGUAGE: "a narrative is in a language that the policy does not name: route it elsewhere, or see [narrative]",
  SCHEMA: "the schema registry does not have its schema, or it cannot be used: look at the sender's registry",
  POISON: "the worker died or exceeded its deadline: report it",
  INTERNAL: "a fault of this program: report it",
};
const selected = new Set();
const filter = by("filter");
const selection = by("selection");
let found = null;
let writes = false;

function matches(one) {
  const replayed = one.replayed > 0 ? "yes" : "no";
  return (!filter.code.value || one.code === filter.code.value) && (!filter.topic.value || one.record.startsWith(`${filter.topic.value}/`)) && (!filter.replayed.value || replayed === filter.replayed.value);
}

function options(select, values) {
  const old = select.value;
  const now = [...select.options].slice(1).map((option) => option.value);
  if (now.join("|") === values.join("|")) return;
  show(select, el("option", { value: "" }, "all"), ...values.map((value) => el("option", {}, value)));
  select.value = values.includes(old) ? old : "";
}

function checkbox(one) {
  const box = el("input", { type: "checkbox", "aria-label": `select ${one.record}`, on: { change: () => choose(one.record, box.checked) } });
  box.checked = selected.has(one.record);
  return box;
}

function choose(record, on) {
  if (on) selected.add(record);
  else selected.delete(record);
  by("selected").textContent = selected.size;
}

function list() {
  const shown = found.dead_letters.filter(matches);
  const head = ["record", "reason", "where", "stage", "refused", "replayed", "build"];
  const rows = shown.map((one) => [
    el("code", {}, one.record), el("span", { class: "pill bad" }, one.code), el("code", {}, one.where || "-"), one.stage, time(one.refused),
    one.replayed ? plural(one.replayed, "time") : "no", details(one),
  ]);
  if (writes) {
    head.unshift("select");
    rows.forEach((row, i) => row.unshift(checkbox(shown[i])));
  }
  const listed = found.dead_letters.length;
  const cut = found.total > listed ? ` The newest ${number(listed)} of ${number(found.total)} are listed.` : "";
  show(by("list"), rows.length ? table(head, rows, `${plural(rows.length, "dead letter")}.${cut}`) : el("p", {}, found.total ? "No dead letter matches." : "No message was refused."));
}

function details(one) {
  const pairs = [["version", one.version], ["attempts", number(one.attempts)], ["fault", one.fault || "-"], ["form", one.form], ["sealed to key", one.key || "-"], ["location", one.letter], ["replay of", one.replay_of || "-"], ...Object.entries(one.build)];
  return el("details", {}, el("summary", {}, one.version), facts(pairs));
}

const load = poll(async () => {
  const answer = await get("dead-letters");
  writes = answer.replay.allowed;
  by("replay").hidden = !writes;
  by("readonly").hidden = writes;
  if (answer.problem) by("state").textContent = answer.problem;
  else show(by("state"), ...(answer.at ? ["Read at ", time(answer.at), "."] : ["Reading the dead letters."]));
  // An open description would close if the list was drawn anew.
  if (!answer.found || document.activeElement?.closest("#list details")) return;
  const before = JSON.stringify(found);
  found = answer.found;
  if (JSON.stringify(found) === before) return;
  const reasons = Object.entries(found.counts);
  show(by("reasons"), reasons.length ? bars(reasons) : "None.", ...reasons.map(([code]) => el("p", { class: "soft" }, el("code", {}, code), `: ${MEANING[code] || ""}`)), found.cut ? el("p", { class: "notice warn" }, "The time limit ended the reading, so these counts are incomplete. The command deid-agent dead-letters list reads all.") : null);
  options(filter.code, reasons.map(([code]) => code).sort());
  options(filter.topic, [...new Set(found.dead_letters.map((one) => one.record.split("/").slice(0, -2).join("/")))].sort());
  by("damaged").hidden = !found.damaged.length;
  show(by("damaged").lastElementChild, table(["location", "problem"], found.damaged.map((one) => [one.place, one.why])));
  list();
}, 5);

filter.addEventListener("submit", (event) => event.preventDefault());
filter.addEventListener("change", () => found && list());

selection.addEventListener("submit", async (event) => {
  event.preventDefault();
  const place = by("result");
  const file = selection.key.files[0];
  if (!selected.size) return show(place, el("p", { class: "notice warn" }, "Select dead letters in the list first."));
  try {
    const key = file ? (await file.text()).slice(0, 4096) : null;
    await post("replay", { records: [...selected], key, again: selection.again.checked });
    selection.key.value = "";
    show(place, "Replaying.");
    await finish();
  } catch (problem) {
    show(place, el("p", { class: "notice bad" }, problem.message));
  }
});

const pause = (seconds) => new Promise((done) => setTimeout(done, 1000 * seconds));

// Waits for the end of the replay, shows its result, then the new state of the list.
async function finish() {
  let answer = await get("replay");
  while (answer.state === "running") {
    await pause(0.7);
    answer = await get("replay");
  }
  const { done, failed, problem } = answer.found ?? { done: [], failed: [], problem: answer.problem };
  selected.clear();
  choose("", false);
  show(by("result"), el("p", { class: `notice ${failed.length || problem ? "bad" : "good"}` }, `${plural(done.length, "dead letter")} replayed, ${number(failed.length)} failed. ${problem}`), failed.length ? table(["record", "reason"], failed.map((one) => [one.record, one.why])) : null);
  if (found) list();
  // The agent reads the list anew after a replay. Until that is done it returns the previous list.
  let reading = await get("dead-letters");
  while (reading.state === "running") {
    await pause(0.7);
    reading = await get("dead-letters");
  }
  load();
}
session().catch(() => {});
