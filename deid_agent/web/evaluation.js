import { by, el, get, post, session, show, table, trouble } from "./common.js";

const figure = (found) => (Array.isArray(found) ? `${found[0].toFixed(3)} (${found[1].toFixed(3)} to ${found[2].toFixed(3)})` : "-");

function model(one) {
  const { of, notes, patients } = one.scores;
  const criteria = Object.entries(one.scores).filter(([, value]) => value?.precision && value?.recall);
  const rows = criteria.map(([name, value]) => [name, figure(value.precision), figure(value.recall), figure(value.f)]);
  return el("section", { class: "card" }, el("h2", {}, `Model ${one.id}`), el("p", {}, one.about), rows.length ? table(["criterion", "precision", "recall", "F1"], rows, `The model alone, on ${of}: ${notes} notes of ${patients} patients it never saw. In brackets what holds the figure with 95 %.`) : el("p", {}, "Its manifest holds no scores."));
}

async function look() {
  const said = await get("about");
  if (!said.found && said.state === "running") return void setTimeout(() => look().catch(told), 700);
  if (!said.found) return trouble(said.problem);
  by("state").textContent = `System ${said.found.system}, profile ${said.found.profile}.`;
  show(by("models"), ...said.found.models.map(model));
}

// It holds text of notes, and a link sends no header: its address has a ticket in it that is good once.
async function report() {
  const { ticket } = await post("report", {});
  open(`/console/report${ticket && `?ticket=${ticket}`}`, "_blank", "noopener");
}

const told = (problem) => trouble(problem.message);
session()
  .then((said) => {
    show(by("report"), said.report ? el("p", {}, el("button", { type: "button", on: { click: () => report().catch(told) } }, "Open the report"), " It holds text of the notes that were scored.") : el("p", {}, "None is named. Score your own notes with ", el("code", {}, "deid-agent eval CORPUS --html report.html"), ", and name the page with ", el("code", {}, "http.console_report"), "."));
    return look();
  })
  .catch(told);
