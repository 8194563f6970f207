import { bars, by, el, get, number, plural, poll, seconds, session, show, table, time, words } from "./common.js";
import { Plot } from "./plot.js";

const perSecond = (value) => `${number(value)}/s`;
const plots = {
  throughput: new Plot(by("throughput"), { title: "Throughput", note: "records per second, by outcome", stacked: true, format: perSecond }),
  latency: new Plot(by("latency"), { title: "Latency", note: "processing time of one record in a worker", format: seconds }),
  lag: new Plot(by("lag"), { title: "Lag", note: "records behind the end, by partition" }),
  phi: new Plot(by("phi"), { title: "PHI over time", note: "values replaced per minute, by type", stacked: true, format: (v) => `${number(v)}` }),
};
let minutes = 15;

function tiles(answer) {
  const { totals, series, ready } = answer;
  const last = (values) => values?.at(-1) ?? null;
  const rate = Object.values(series.throughput).reduce((sum, values) => sum + (last(values) ?? 0), 0);
  const p95 = totals.latency[0].p95;
  const lag = Object.values(totals.lag);
  const deadLetters = Object.values(totals.dead_letters).reduce((a, b) => a + b, 0);
  const state = ready === null ? "no agent" : ready.ok ? "ready" : ready.reasons.join(", ");
  const pairs = [
    ["State", el("span", { class: `pill ${ready?.ok ? "good" : "warn"}` }, state)],
    ["Throughput", perSecond(rate)],
    ["Latency, p95", seconds(p95)],
    ["Lag", lag.length ? number(lag.reduce((a, b) => a + b, 0)) : "unknown"],
    ["Dead letters", number(deadLetters)],
    ["Workers", `${totals.workers.up} of ${totals.workers.wanted}`],
  ];
  show(by("tiles"), ...pairs.map(([name, value]) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value))));
}

function feeds(totals) {
  const changed = totals.feeds.filter((one) => one.differs);
  show(by("feeds"), changed.length ? el("p", {}, el("span", { class: "pill warn" }, "leak bound"), ` ${changed.map((one) => `${one.topic}, ${one.template}`).join("; ")}: the bound does not cover ${changed.length > 1 ? "these feeds" : "this feed"} any more: take a new sample.`) : null);
}

function numbers(totals) {
  const counted = totals.messages.filter((one) => one.count);
  const topics = table(["topic", "outcome", "records"], counted.map((one) => [one.topic, words(one.outcome), one.count]));
  const deadLetters = Object.entries(totals.dead_letters).filter(([, n]) => n);
  show(by("outcomes"), counted.length ? topics : "No record has been committed yet.", deadLetters.length ? el("h3", {}, "Dead letters by reason") : null, deadLetters.length ? bars(deadLetters) : null);
  const types = Object.entries(totals.phi).filter(([, n]) => n).sort((a, b) => b[1] - a[1]);
  show(by("types"), types.length ? bars(types) : "No value has been replaced yet.");
  show(by("stages"), table(["stage", "records", "p50", "p95", "p99"], totals.latency.map((one) => [one.stage, one.count, seconds(one.p50), seconds(one.p95), seconds(one.p99)])));
  const streams = [...new Set([...Object.keys(totals.lag), ...Object.keys(totals.inflight)])].sort();
  show(by("partitions"), streams.length ? table(["partition", "lag", "in flight"], streams.map((name) => [name, totals.lag[name] ?? null, totals.inflight[name] ?? null])) : "No partition is assigned to this agent.",
    el("p", { class: "soft" }, `${plural(totals.queue, "record")} waiting for a worker, ${plural(totals.restarts, "worker restart")}, ${plural(totals.rebalances, "rebalance")}, ${plural(totals.aborts, "aborted transaction")}.`));
}

const load = poll(async () => {
  const answer = await get(`overview?minutes=${minutes}`);
  if (answer.agent) show(by("since"), "As of ", time(answer.now), `, sampled every ${answer.interval_s} s. Totals count from the start of this process.`);
  else by("since").textContent = "No agent runs in this process, so it has no metrics. The other pages show the folders of the configuration.";
  tiles(answer);
  const { at, throughput, latency, lag, phi } = answer.series;
  plots.throughput.update(at, throughput);
  plots.latency.update(at, latency);
  plots.lag.update(at, lag);
  plots.phi.update(at, phi);
  feeds(answer.totals);
  numbers(answer.totals);
}, 5);

for (const button of document.querySelectorAll("[data-minutes]"))
  button.addEventListener("click", () => {
    minutes = Number(button.dataset.minutes);
    for (const other of document.querySelectorAll("[data-minutes]")) other.setAttribute("aria-pressed", String(other === button));
    load();
  });
session().catch(() => {});
