import { by, el, get, plural, post, session, show, showError, table } from "./common.js";

const figure = (found) => (Array.isArray(found) ? `${found[0].toFixed(3)} (${found[1].toFixed(3)} to ${found[2].toFixed(3)})` : "-");

function model(one) {
  const { of, notes, patients } = one.scores;
  const criteria = Object.entries(one.scores).filter(([, value]) => value?.precision && value?.recall);
  const rows = criteria.map(([name, value]) => [name, figure(value.precision), figure(value.recall), figure(value.f)]);
  return el("section", { class: "card" }, el("h2", {}, `Model ${one.id}`), el("p", {}, one.about), rows.length ? table(["criterion", "precision", "recall", "F1"], rows, `The model alone, on ${of}: ${plural(notes, "note")} about ${plural(patients, "patient")} that it was not trained on. In parentheses: the 95 % confidence interval.`) : el("p", {}, "The manifest of this model contains no scores."));
}

async function load() {
  const answer = await get("inventory");
  if (!answer.found && answer.state === "running") return void setTimeout(() => load().catch(report), 700);
  if (!answer.found) return showError(answer.problem);
  by("state").textContent = `System ${answer.found.system}, profile ${answer.found.profile}.`;
  show(by("models"), ...answer.found.models.map(model));
}

// The report contains text of notes, and a link cannot send a header. So its address contains a ticket for one use.
async function openReport() {
  const { ticket } = await post("report", {});
  open(`/console/report${ticket && `?ticket=${ticket}`}`, "_blank", "noopener");
}

const report = (problem) => showError(problem.message);
session()
  .then((features) => {
    show(by("report"), features.report ? el("p", {}, el("button", { type: "button", on: { click: () => openReport().catch(report) } }, "Open the report"), " It contains text of the evaluated notes.") : el("p", {}, "No report is configured. Evaluate your own notes with ", el("code", {}, "deid-agent eval CORPUS --html report.html"), ", then set ", el("code", {}, "http.console_report"), " to that file."));
    return load();
  })
  .catch(report);
