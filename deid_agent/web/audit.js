import { by, day, el, facts, get, number, session, show, since, table, trouble, words } from "./common.js";

const form = by("search");
let query = "";
let shown = 0;

async function chain() {
  const said = await get("audit/chain");
  if (said.state === "running") return void setTimeout(() => chain().catch(told), 800);
  const place = by("chain");
  if (!said.found) return show(place, el("p", { class: "notice bad" }, said.problem));
  const it = said.found;
  const others = it.keys.filter((one) => !one.ours);
  show(
    place,
    it.whole
      ? el("p", { class: "notice good" }, `The chain holds: ${number(it.entries)} entries, ${number(it.lines)} lines in ${it.segments} segments, ${number(it.checkpoints)} signed checkpoints. Verified ${since(said.at)}.`)
      : el("p", { class: "notice bad" }, `The chain does not hold: ${it.faults.length + it.more_faults} faults. What the trail says from the first of them on is not proven.`),
    others.length ? el("p", { class: "notice warn" }, "Signed by other keys too, ", el("code", {}, others.map((one) => one.key.slice(0, 16)).join(", ")), ". An earlier key of this agent is such a one; a forger's would be too.") : null,
    it.faults.length ? table(["fault", "where", "record", "what"], it.faults.map((f) => [f.code, f.where, f.record || "-", f.detail])) : null,
    el("details", {}, el("summary", {}, "What was looked at"),
      it.doubts.length ? el("p", {}, it.doubts.map((d) => `${d.code}: ${d.detail}`).join("; ")) : null,
      it.streams.length ? table(["partition", "entries", "first", "last", "absent", "repeated"], it.streams.map((s) => [s.stream, s.entries, s.first, s.last, s.absent, s.repeated])) : null,
      el("p", { class: "soft" }, "Signed by ", el("code", {}, it.keys.map((one) => one.key).join(", ") || "nobody"), `. ${number(it.bytes / 1024)} KiB were read. Whether the end was cut off shows a copy of head.json kept elsewhere: deid-agent audit verify --head.`)),
  );
}

function entry(one) {
  const at = `${one.topic}/${one.partition}/${one.offset}`;
  const bad = one.outcome === "dead_lettered";
  const node = el("details", { class: "entry" }, el("summary", {}, el("span", { class: "soft" }, day(one.time)), el("code", {}, at), el("span", { class: `pill ${bad ? "bad" : "good"}` }, words(one.outcome)), el("span", {}, bad ? `${one.reason ?? ""} ${one.where ?? ""}` : `${number(one.replaced)} replaced`)));
  node.addEventListener("toggle", () => node.childElementCount < 2 && node.append(inside(one)), { once: true });
  return node;
}

function inside(one) {
  const remarks = one.remarks ?? [];
  const build = Object.entries(one.build ?? {}).map(([name, value]) => `${name} ${value}`).join(", ");
  const names = ["reason", "stage", "where", "attempts", "replay_of", "input_digest", "output_digest"];
  const told = names.filter((name) => name in one).map((name) => [words(name), el("code", {}, one[name])]);
  return el("div", {},
    facts([...told, ["made by", build], ["line", el("code", {}, `${one.segment}:${one.line}`)], ["chain", el("code", {}, one.chain)]]),
    remarks.length ? table(["place", "type", "method", "rule or model", "count"], remarks.map((r) => [el("code", {}, r.path), r.type, r.method, el("code", {}, r.source), r.count]), `${remarks.length} remarks`) : null);
}

async function search(more) {
  if (!more) {
    query = new URLSearchParams([...new FormData(form)].filter(([, value]) => value)).toString();
    shown = 0;
    show(by("entries"));
  }
  const said = await get(`audit?${query}${more ? `&before=${more}` : ""}`);
  by("entries").append(...said.entries.map(entry));
  shown += said.entries.length;
  by("found").textContent = shown ? `${number(shown)} entries, the newest first.` : said.more ? "None among the newest; look further back." : "No entry fits.";
  by("more").hidden = !said.more;
  by("more").dataset.before = said.more ?? "";
  trouble("");
}

const told = (problem) => trouble(problem.message);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  search().catch(told);
});
by("more").addEventListener("click", () => search(by("more").dataset.before).catch(told));
chain().catch(told);
search().catch(told);
session().catch(() => {});
