import { by, el, get, post, session, show, table, trouble } from "./common.js";

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
const KIND = { field: "field of the message", rule: "rule", known: "named by the message", model: "model", again: "second look", login: "user name", list: "word list", guard: "leak guard", attachment: "attachment", derived: "follows" };
const form = by("try");

async function ready() {
  const said = await get("playground");
  const text = { ready: `Ready. Up to ${said.most / 1024} KiB, ${said.deadline_s} s.`, starting: "Its process loads rules and models; a few seconds.", failed: said.problem, off: "Switched off (http.console_playground)." }[said.state];
  by("state").textContent = text;
  form.querySelector("button").disabled = said.state !== "ready";
  if (said.state === "starting") setTimeout(() => ready().catch(told), 700);
  return said.state === "ready";
}

const sure = (mark) => `${mark.confidence || "-"}${mark.probability === null ? "" : `; the model says ${Math.round(100 * mark.probability)} %`}`;
const said = (mark) => `${mark.type}: ${KIND[mark.kind] || mark.kind} ${mark.source}, ${sure(mark)}${mark.path && mark.path !== "text" ? `, at ${mark.path}` : ""}`;

// Everything that was typed or made of it is a text node, so that whatever it holds is shown and never read as markup.
function pieces(list, marks, side, choose) {
  return list.map(([text, n]) => {
    const plain = text.replaceAll("\r\n", "\n").replaceAll("\r", "\n");
    if (n < 0) return plain;
    const mark = marks[n];
    const node = el("mark", { class: `c-${mark.category}`, "data-n": n, tabindex: side === "before" ? "0" : null, title: said(mark) }, plain || "∅", el("small", {}, mark.type));
    for (const event of ["focus", "pointerenter", "click"]) node.addEventListener(event, () => choose(n));
    return node;
  });
}

function page(one) {
  const detail = el("p", { class: "detail soft", role: "status" }, one.marks.length ? "Point at a coloured place, or walk through them with the Tab key." : "Nothing was found to replace.");
  const box = el("section", { class: "card" });
  const choose = (n) => {
    for (const node of box.querySelectorAll("mark")) node.classList.toggle("on", Number(node.dataset.n) === n);
    detail.textContent = said(one.marks[n]);
  };
  const side = (name, list) => el("div", {}, el("h3", {}, name), el("pre", { class: "text", tabindex: "0", "aria-label": name }, ...pieces(list, one.marks, name.toLowerCase(), choose)));
  const counts = new Map();
  for (const mark of one.marks) counts.set(mark.category, (counts.get(mark.category) ?? 0) + 1);
  box.append(
    el("h2", {}, one.path ? `In the attachment ${one.path}` : "Result"),
    el("ul", { class: "key" }, ...[...counts].map(([name, n]) => el("li", {}, el("mark", { class: `c-${name}` }, name), ` ${n}`))),
    el("div", { class: "pair" }, side("Before", one.before), side("After", one.after)),
    detail,
    el("details", {}, el("summary", {}, `What was replaced, and why (${one.marks.length})`), table(["type", "found by", "rule or model", "confidence", "model", "method", "place"], one.marks.map((m) => [m.type, KIND[m.kind] || m.kind, el("code", {}, m.source), m.confidence || "-", m.probability === null ? "-" : `${Math.round(100 * m.probability)} %`, m.method || "-", el("code", {}, m.path)]))),
  );
  return box;
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const place = by("result");
  trouble("");
  try {
    by("state").textContent = "At work.";
    const answer = await post("playground", { text: form.text.value, kind: form.kind.value });
    if (answer.refused) {
      const why = answer.fault === "DeadlineExceeded" ? "it took too long, and was ended" : answer.where ? `at ${answer.where}` : answer.fault;
      show(place, el("p", { class: "notice bad" }, `Refused: ${answer.refused}, ${why}. The agent would send such a message to its dead letters.`));
    } else {
      show(place, ...answer.pages.map(page));
      place.scrollIntoView({ block: "nearest" });
    }
  } catch (problem) {
    told(problem);
  }
  ready().catch(told);
});
const fill = (text) => () => {
  form.text.value = text;
  form.text.focus();
};
by("sample").addEventListener("click", fill(NOTE));
by("hl7").addEventListener("click", fill(HL7));
// What was typed goes with the page: nothing of it comes back from the browser's memory.
addEventListener("pagehide", () => {
  form.reset();
  show(by("result"));
});
const told = (problem) => trouble(problem.message);
ready().catch(told);
session().catch(() => {});
