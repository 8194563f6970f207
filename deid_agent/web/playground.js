import { by, el, get, post, session, show, showError, table } from "./common.js";

const NOTE = `DISCHARGE SUMMARY
Patient: Okafor, Adaeze M.   MRN: 4471902   DOB: 04/22/1957
Admitted 03/11/2024, discharged Monday, March 18, 2024.
Mrs. Okafor is a 66-year-old retired teacher with heart failure (EF 35%) who came in with
five days of orthopnea. Furosemide 40 mg IV BID, weight 81.2 to 76.4 kg. BNP 1240 on 3/12.
Her husband Chidi (740-555-0184) was taught daily weights.
No Parkinson disease, no tremor. Foley catheter removed POD 2.
Follow-up with Dr. Ines Castellano on 3/25 at 10:30. Mail: adaeze.okafor@mailhaven.net`;
const HL7 = `MSH|^~\\&|LAB|NORTHGATE|EHR|NORTHGATE|20240318101500||ORU^R01|MSG00042|P|2.5
PID|1||4471902^^^NORTHGATE^MR||OKAFOR^ADAEZE^M||19570422|F|||1420 Larch St^^Zanesville^OH^43701||7405550183
PV1|1|I|3N^312^A||||1043^CASTELLANO^INES
OBR|1|||11506-3^Progress note^LN|||20240318
OBX|1|TX|11506-3^Progress note^LN||Mrs. Okafor slept well. Her son Chidi called from Columbus.||||||F
OBX|2|TX|11506-3^Progress note^LN||Dr. Castellano to see her on 3/25. Weight 76.4 kg.||||||F`;
const KIND = { field: "field of the message", rule: "rule", known: "value of a field of the message", model: "model", consistency: "found elsewhere in the text", login: "user name", list: "word list", guard: "leak guard", attachment: "attachment", derived: "follows from another change" };
const form = by("try");

async function ready() {
  const answer = await get("playground");
  const text = { ready: `Ready. Limits: ${answer.most / 1024} KiB and ${answer.deadline_s} s per text.`, starting: "Starting: rules and models are loaded, which takes a few seconds.", failed: answer.problem, off: "The playground is off (http.console_playground)." }[answer.state];
  by("state").textContent = text;
  form.querySelector("button").disabled = answer.state !== "ready";
  if (answer.state === "starting") setTimeout(() => ready().catch(report), 700);
  return answer.state === "ready";
}

const confidence = (mark) => `${mark.confidence || "-"}${mark.probability === null ? "" : `; probability from the model ${Math.round(100 * mark.probability)} %`}`;
const describe = (mark) => `${mark.type}: ${KIND[mark.kind] || mark.kind} ${mark.source}, ${confidence(mark)}${mark.path && mark.path !== "text" ? `, at ${mark.path}` : ""}`;

// The text and its result only become text nodes, so they are never parsed as markup.
function pieces(list, marks, side, choose) {
  return list.map(([text, n]) => {
    const plain = text.replaceAll("\r\n", "\n").replaceAll("\r", "\n");
    if (n < 0) return plain;
    const mark = marks[n];
    const node = el("mark", { class: `c-${mark.category}`, "data-n": n, tabindex: side === "before" ? "0" : null, title: describe(mark) }, plain || "∅", el("small", {}, mark.type));
    for (const event of ["focus", "pointerenter", "click"]) node.addEventListener(event, () => choose(n));
    return node;
  });
}

function page(one) {
  const detail = el("p", { class: "detail soft", role: "status" }, one.marks.length ? "Point at a highlighted value, or move between them with the Tab key." : "No value was replaced.");
  const box = el("section", { class: "card" });
  const choose = (n) => {
    for (const node of box.querySelectorAll("mark")) node.classList.toggle("on", Number(node.dataset.n) === n);
    detail.textContent = describe(one.marks[n]);
  };
  const side = (name, list) => el("div", {}, el("h3", {}, name), el("pre", { class: "text", tabindex: "0", "aria-label": name }, ...pieces(list, one.marks, name.toLowerCase(), choose)));
  const counts = new Map();
  for (const mark of one.marks) counts.set(mark.category, (counts.get(mark.category) ?? 0) + 1);
  box.append(
    el("h2", {}, one.path ? `In the attachment ${one.path}` : "Result"),
    el("ul", { class: "key" }, ...[...counts].map(([name, n]) => el("li", {}, el("mark", { class: `c-${name}` }, name), ` ${n}`))),
    el("div", { class: "pair" }, side("Before", one.before), side("After", one.after)),
    detail,
    el("details", {}, el("summary", {}, `Replaced values with their reasons (${one.marks.length})`), table(["type", "found by", "rule or model", "confidence", "probability", "method", "path"], one.marks.map((m) => [m.type, KIND[m.kind] || m.kind, el("code", {}, m.source), m.confidence || "-", m.probability === null ? "-" : `${Math.round(100 * m.probability)} %`, m.method || "-", el("code", {}, m.path)]))),
  );
  return box;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const place = by("result");
  showError("");
  try {
    by("state").textContent = "Processing.";
    const answer = await post("playground", { text: form.text.value, kind: form.kind.value });
    if (answer.refused) {
      const why = answer.fault === "DeadlineExceeded" ? "it took too long and was cancelled" : answer.where ? `at ${answer.where}` : answer.fault;
      show(place, el("p", { class: "notice bad" }, `Refused: ${answer.refused}, ${why}. The agent would write such a message to its dead letters.`));
    } else {
      show(place, ...answer.pages.map(page));
      place.scrollIntoView({ block: "nearest" });
    }
  } catch (problem) {
    report(problem);
  }
  ready().catch(report);
});
const fill = (text) => () => {
  form.text.value = text;
  form.text.focus();
};
by("sample").addEventListener("click", fill(NOTE));
by("hl7").addEventListener("click", fill(HL7));
// The text is cleared when the page is left, so that the browser's history does not restore it.
addEventListener("pagehide", () => {
  form.reset();
  show(by("result"));
});
const report = (problem) => showError(problem.message);
ready().catch(report);
session().catch(() => {});
