// Plots of a few series over time, drawn as SVG. Each plot also has its numbers as text and as a table.

import { el, iso, number, plural, show, svg, table, time } from "./common.js";

const HEIGHT = 190;
const LEFT = 46;
const RIGHT = 8;
const TOP = 8;
const BOTTOM = 22;
const ROWS = 60;

export class Plot {
  // `format` converts a value to text. Stacked series are drawn on top of each other.
  constructor(place, { title, note, stacked = false, format = number }) {
    Object.assign(this, { stacked, format, title, at: [], series: [], chosen: -1, drawn: "" });
    this.graph = svg("svg", { class: "plot", role: "img", tabindex: "0" });
    this.readout = el("p", { class: "readout", "aria-live": "off" });
    this.key = el("ul", { class: "key" });
    this.numbers = el("div");
    this.folded = el("details", { on: { toggle: () => this.fill() } }, el("summary", {}, "Numbers"), this.numbers);
    show(place, el("figure", {}, el("figcaption", {}, title, " ", el("small", { class: "soft" }, note)), this.graph, this.readout, this.key), this.folded);
    this.graph.addEventListener("pointermove", (event) => this.choose(this.nearest(event)));
    this.graph.addEventListener("pointerleave", () => this.choose(-1));
    this.graph.addEventListener("blur", () => this.choose(-1));
    this.graph.addEventListener("keydown", (event) => this.pressed(event));
    new ResizeObserver(() => this.draw()).observe(this.graph);
  }

  update(at, named) {
    this.at = at;
    this.series = Object.entries(named);
    if (this.chosen >= at.length) this.chosen = -1;
    this.draw();
    this.fill();
  }

  pressed(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const last = this.at.length - 1;
    if (event.key === "Home") this.choose(0, true);
    else if (event.key === "End") this.choose(last, true);
    else if (step) this.choose(Math.min(last, Math.max(0, (this.chosen < 0 ? last + (step > 0 ? 0 : 1) : this.chosen) + step)), true);
    else return;
    event.preventDefault();
  }

  nearest(event) {
    const box = this.graph.getBoundingClientRect();
    const share = (event.clientX - box.left - LEFT) / Math.max(1, box.width - LEFT - RIGHT);
    if (!this.at.length) return -1;
    const wanted = this.at[0] + share * (this.at.at(-1) - this.at[0]);
    return this.at.reduce((best, at, i) => (Math.abs(at - wanted) < Math.abs(this.at[best] - wanted) ? i : best), 0);
  }

  choose(index, spoken = false) {
    this.chosen = index;
    this.readout.setAttribute("aria-live", spoken ? "polite" : "off");
    this.draw();
  }

  // The values as drawn: each stacked series is added to those below it.
  layers() {
    if (!this.stacked) return this.series.map(([, values]) => values);
    const below = this.at.map(() => 0);
    return this.series.map(([, values]) => values.map((value, i) => (below[i] += value ?? 0)));
  }

  draw() {
    const width = Math.max(160, this.graph.clientWidth || 320);
    this.graph.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    const layers = this.layers();
    const most = nice(Math.max(0, ...layers.flat().filter((v) => v !== null)));
    const first = this.at[0] ?? 0;
    const span = Math.max(1, (this.at.at(-1) ?? 1) - first);
    const x = (at) => LEFT + ((at - first) / span) * (width - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value / most) * (HEIGHT - TOP - BOTTOM);
    const nodes = [];
    for (const share of [0, 0.5, 1]) {
      const at = y(most * share);
      nodes.push(svg("path", { class: "axis", d: `M${LEFT} ${at}H${width - RIGHT}` }));
      nodes.push(svg("text", { x: LEFT - 6, y: at + 4, "text-anchor": "end" }, this.format(most * share)));
    }
    if (this.at.length > 1) {
      const ticks = width > 420 ? 4 : 2;
      for (let i = 0; i <= ticks; i++) {
        const at = first + (span * i) / ticks;
        const text = `${iso(at).slice(11, span < 600 ? 19 : 16)}Z`;
        nodes.push(svg("text", { x: x(at), y: HEIGHT - 6, "text-anchor": i === 0 ? "start" : i === ticks ? "end" : "middle" }, text));
      }
      if (this.stacked) layers.map((_, i) => i).reverse().forEach((i) => nodes.push(this.area(layers[i], i ? layers[i - 1] : null, i, x, y)));
      else layers.forEach((values, i) => nodes.push(...this.curve(values, i, x, y)));
    } else nodes.push(svg("text", { x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, "Waiting for the second sample"));
    if (this.chosen >= 0 && this.at.length) nodes.push(svg("path", { class: "cross", d: `M${x(this.at[this.chosen])} ${TOP}V${HEIGHT - BOTTOM}` }));
    this.graph.replaceChildren(...nodes);
    this.graph.setAttribute("aria-label", this.description());
    const at = this.chosen >= 0 ? this.chosen : this.at.length - 1;
    show(this.readout, ...(at >= 0 ? [time(this.at[at]), `: ${this.values(at)}`] : []));
    this.drawKey();
  }

  area(values, below, i, x, y) {
    const up = values.map((value, n) => `${x(this.at[n]).toFixed(1)} ${y(value).toFixed(1)}`);
    const down = values.map((_, n) => `${x(this.at[n]).toFixed(1)} ${y(below ? below[n] : 0).toFixed(1)}`).reverse();
    return svg("path", { class: `area k${this.colour(i)}`, d: `M${up.join("L")}L${down.join("L")}Z` });
  }

  // A missing value interrupts the line. A value between two missing ones is drawn as a dot.
  *curve(values, i, x, y) {
    let path = "";
    let open = false;
    for (const [n, value] of values.entries()) {
      if (value === null) {
        open = false;
        continue;
      }
      const alone = !open && (values[n + 1] ?? null) === null;
      if (alone) yield svg("circle", { class: `k${this.colour(i)}`, cx: x(this.at[n]), cy: y(value), r: 2 });
      path += `${open ? "L" : "M"}${x(this.at[n]).toFixed(1)} ${y(value).toFixed(1)}`;
      open = true;
    }
    yield svg("path", { class: `curve k${this.colour(i)} d${1 + (i % 4)}`, d: path || "M0 0" });
  }

  colour(i) {
    return this.series[i][0] === "other" ? 0 : 1 + (i % 8);
  }

  drawKey() {
    const names = this.series.map(([name]) => name).join("|");
    if (names === this.drawn) return;
    this.drawn = names;
    this.key.replaceChildren(
      ...this.series.map(([name], i) => {
        const sign = this.stacked
          ? svg("rect", { class: `area k${this.colour(i)}`, width: 24, height: 11 })
          : svg("path", { class: `curve k${this.colour(i)} d${1 + (i % 4)}`, d: "M0 6H24" });
        return el("li", {}, svg("svg", { viewBox: "0 0 24 11", "aria-hidden": "true" }, sign), name.replaceAll("_", " "));
      }),
    );
  }

  values(i) {
    const values = this.series.map(([name, values]) => `${name.replaceAll("_", " ")} ${values[i] === null ? "-" : this.format(values[i])}`);
    return values.join(", ");
  }

  description() {
    if (!this.at.length) return `${this.title}: no samples yet`;
    return `${this.title}, ${plural(this.at.length, "point")}. ${iso(this.at.at(-1))}: ${this.values(this.at.length - 1)}. The arrow keys move from point to point; the table below has all numbers.`;
  }

  fill() {
    if (!this.folded.open) return;
    const every = Math.max(1, Math.ceil(this.at.length / ROWS));
    const rows = this.at.map((at, i) => [time(at), ...this.series.map(([, values]) => (values[i] === null ? "-" : this.format(values[i])))]);
    const shown = rows.reverse().filter((_, i) => i % every === 0);
    show(this.numbers, table(["time", ...this.series.map(([name]) => name.replaceAll("_", " "))], shown, this.title));
  }
}

// The next larger round number.
function nice(value) {
  if (value <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value);
}
