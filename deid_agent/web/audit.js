import { by, el, facts, get, number, plural, session, show, showError, table, time, words } from "./common.js";

const form = by("search");
let query = "";
let shown = 0;

async function verify() {
  const answer = await get("audit/chain");
  if (answer.state === "running") return void setTimeout(() => verify().catch(report), 800);
  const place = by("chain");
  if (!answer.found) return show(place, el("p", { class: "notice bad" }, answer.problem));
  const chain = answer.found;
  const others = chain.keys.filter((one) => !one.ours);
  show(
    place,
    chain.whole
      ? el("p", { class: "notice good" }, `The chain is intact: ${plural(chain.entries, "entry", "entries")}, ${plural(chain.lines, "line")} in ${plural(chain.segments, "segment")}, ${plural(chain.checkpoints, "signed checkpoint")}. Verified at `, time(answer.at), ".")
      : el("p", { class: "notice bad" }, `The chain is broken: ${plural(chain.faults.length + chain.more_faults, "fault")}. Entries after the first fault are not proven. Verified at `, time(answer.at), "."),
    others.length ? el("p", { class: "notice warn" }, "Other keys also signed this trail: ", el("code", {}, others.map((one) => one.key.slice(0, 16)).join(", ")), ". This is normal if the agent had another key before. If it had not, the trail may be forged.") : null,
    chain.faults.length ? table(["fault", "line", "record", "detail"], chain.faults.map((f) => [f.code, f.where, f.record || "-", f.detail])) : null,
    el("details", {}, el("summary", {}, "Details"),
      chain.warnings.length ? el("p", {}, chain.warnings.map((one) => `${one.code}: ${one.detail}`).join("; ")) : null,
      chain.streams.length ? table(["partition", "entries", "first", "last", "absent", "repeated"], chain.streams.map((s) => [s.stream, s.entries, s.first, s.last, s.absent, s.repeated])) : null,
      el("p", { class: "soft" }, "Signed by ", el("code", {}, chain.keys.map((one) => one.key).join(", ") || "no key"), `. ${number(chain.bytes / 1024)} KiB were read. This check cannot detect that the end of the trail was removed. To check that too, keep a copy of head.json elsewhere and run deid-agent audit verify --head.`)),
  );
}

function entry(one) {
  const at = `${one.topic}/${one.partition}/${one.offset}`;
  const bad = one.outcome === "dead_lettered" || one.outcome === "refused";
  const node = el("details", { class: "entry" }, el("summary", {}, el("span", { class: "soft" }, time(one.time)), el("code", {}, at), el("span", { class: `pill ${bad ? "bad" : "good"}` }, words(one.outcome)), el("span", {}, bad ? `${one.reason ?? ""} ${one.where ?? ""}` : plural(one.replaced, "replacement"))));
  node.addEventListener("toggle", () => node.childElementCount < 2 && node.append(details(one)), { once: true });
  return node;
}

function details(one) {
  const remarks = one.remarks ?? [];
  const build = Object.entries(one.build ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
  const names = ["project", "reason", "stage", "where", "attempts", "replay_of", "topic_id", "deid_id", "input_digest", "output_digest", "output_sha256"];
  const pairs = names.filter((name) => name in one).map((name) => [words(name), el("code", {}, one[name])]);
  return el("div", {},
    facts([...pairs, ["build", build], ["line", el("code", {}, `${one.segment}:${one.line}`)], ["chain", el("code", {}, one.chain)]]),
    remarks.length ? table(["path", "type", "method", "rule or model", "count"], remarks.map((r) => [el("code", {}, r.path), r.type, r.method, el("code", {}, r.source), r.count]), plural(remarks.length, "remark")) : null);
}

async function search(more) {
  if (!more) {
    query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
    shown = 0;
    show(by("entries"));
  }
  const answer = await get(`audit?${query}${more ? `&before=${more}` : ""}`);
  by("entries").append(...answer.entries.map(entry));
  shown += answer.entries.length;
  by("found").textContent = shown ? `${plural(shown, "entry", "entries")}, newest first.` : answer.more ? "No match among the newest entries. Older entries were not searched yet." : "No entry matches.";
  by("more").hidden = !answer.more;
  by("more").dataset.before = answer.more ?? "";
  showError("");
}

const report = (problem) => showError(problem.message);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  search().catch(report);
});
by("more").addEventListener("click", () => search(by("more").dataset.before).catch(report));
verify().catch(report);
search().catch(report);
session().catch(() => {});
