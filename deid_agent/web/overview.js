import { bars, by, day, el, get, number, poll, seconds, session, show, table, words } from "./common.js";
import { Plot } from "./plot.js";

const perSecond = (value) => `${number(value)}/s`;
const plots = {
  throughput: new Plot(by("throughput"), { title: "Throughput", note: "records a second, by outcome", stacked: true, format: perSecond }),
  latency: new Plot(by("latency"), { title: "Latency", note: "work on one record in a worker", format: seconds }),
  lag: new Plot(by("lag"), { title: "Lag", note: "records behind the end, by partition" }),
  phi: new Plot(by("phi"), { title: "PHI over time", note: "values replaced a minute, by type", stacked: true, format: (v) => `${number(v)}` }),
};
let minutes = 15;

function tiles(said) {
  const { totals, series, ready } = said;
  const last = (values) => values?.at(-1) ?? null;
  const rate = Object.values(series.throughput).reduce((sum, values) => sum + (last(values) ?? 0), 0);
  const p95 = totals.latency[0].p95;
  const lag = Object.values(totals.lag);
  const letters = Object.values(totals.letters).reduce((a, b) => a + b, 0);
  const state = ready === null ? "no agent here" : ready.ok ? "ready" : ready.reasons.join(", ");
  const pairs = [
    ["State", el("span", { class: `pill ${ready?.ok ? "good" : "warn"}` }, state)],
    ["Throughput", perSecond(rate)],
    ["Latency, p95", seconds(p95)],
    ["Lag", lag.length ? number(lag.reduce((a, b) => a + b, 0)) : "unknown"],
    ["Dead letters", number(letters)],
    ["Workers", `${totals.workers.up} of ${totals.workers.wanted}`],
  ];
  show(by("tiles"), ...pairs.map(([name, value]) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value))));
}

function numbers(totals) {
  const topics = table(["topic", "outcome", "records"], totals.messages.filter((m) => m.count).map((m) => [m.topic, words(m.outcome), m.count]));
  const letters = Object.entries(totals.letters).filter(([, n]) => n);
  show(by("outcomes"), totals.messages.some((m) => m.count) ? topics : "No record has settled yet.", letters.length ? el("h3", {}, "Dead letters by reason") : null, letters.length ? bars(letters) : null);
  const types = Object.entries(totals.phi).filter(([, n]) => n).sort((a, b) => b[1] - a[1]);
  show(by("types"), types.length ? bars(types) : "Nothing was replaced yet.");
  show(by("stages"), table(["stage", "records", "p50", "p95", "p99"], totals.latency.map((one) => [one.stage, one.count, seconds(one.p50), seconds(one.p95), seconds(one.p99)])));
  const streams = [...new Set([...Object.keys(totals.lag), ...Object.keys(totals.inflight)])].sort();
  show(by("partitions"), streams.length ? table(["partition", "lag", "at work"], streams.map((name) => [name, totals.lag[name] ?? null, totals.inflight[name] ?? null])) : "No partition is ours.",
    el("p", { class: "soft" }, `${number(totals.queue)} wait for a worker, ${number(totals.restarts)} workers started again, ${number(totals.rebalances)} rebalances, ${number(totals.aborts)} transactions given up.`));
}

const look = poll(async () => {
  const said = await get(`overview?minutes=${minutes}`);
  by("since").textContent = said.agent ? `As of ${day(said.now)}, a sample each ${said.every_s} s; numbers count from the start of this process.` : "No agent runs in this process, so there are no numbers: letters, audit and rules are those of its folders.";
  tiles(said);
  const { at, throughput, latency, lag, phi } = said.series;
  plots.throughput.update(at, throughput);
  plots.latency.update(at, latency);
  plots.lag.update(at, lag);
  plots.phi.update(at, phi);
  numbers(said.totals);
}, 5);

for (const button of document.querySelectorAll("[data-minutes]"))
  button.addEventListener("click", () => {
    minutes = Number(button.dataset.minutes);
    for (const other of document.querySelectorAll("[data-minutes]")) other.setAttribute("aria-pressed", String(other === button));
    look();
  });
session().catch(() => {});
