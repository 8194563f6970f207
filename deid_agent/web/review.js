import { Refused, by, el, get, number, offerLogout, plural, post, show, storePageKey, table, words } from "./common.js";
import * as spans from "./review-spans.js";

// The text of a note and the decisions on it are on this page alone: not in its address, its title or a storage.
const MOST_ROWS = 200;
const MOST_UNDO = 500;
const CLOSED = new Set(["finished", "agreed", "disputed"]); // why the desk refuses a decision that can never be saved
const PILL = { agreed: "good", disputed: "bad", draft: "warn" };
let queue = null;
let note = null; // the note that is shown, with `list` (its spans in UTF-16 units), `at`, `range` and the undo list
let retry = null; // the request that waits for a new login
let asked = false; // `finish` was chosen although uncertain spans are left

// --- Messages, requests, lost sessions -------------------------------------------------------------------------------

function report(text, kind = "good") {
  const place = by("message");
  place.hidden = !text;
  place.className = `notice ${kind}`;
  place.textContent = text;
}

// Runs a request again after a login, if the session has ended. Work on the page is never lost by a failed request.
async function attempt(request, kept = "") {
  try {
    await request();
    by("again").hidden = true;
  } catch (problem) {
    if (!(problem instanceof Refused || problem instanceof TypeError)) throw problem;
    if (problem.status === 401 || problem.code === "reviewer") {
      retry = () => attempt(request, kept);
      by("why").textContent = `${problem.code === "reviewer" ? "Another reviewer has logged in." : "Your session has ended."} ${kept} Enter your token to continue.`;
      by("again").hidden = false;
      by("token").focus();
    } else {
      const reason = problem instanceof Refused ? `${problem.message}.` : "The console does not respond. Start it again if it has ended.";
      report(CLOSED.has(problem.code) ? `${reason} Open the note again from the queue (b) to see what was saved.` : `${reason} ${kept}`.trim(), "bad");
    }
  }
}

by("again").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    storePageKey((await post("login", { token: by("token").value }, true)).page);
    by("token").value = "";
    report("");
    await retry?.();
  } catch (problem) {
    by("why").textContent = problem instanceof Refused ? `${problem.message}. Your work is still on this page.` : "The console does not respond. Your work is still on this page.";
  }
});

// --- The queue -------------------------------------------------------------------------------------------------------

async function loadQueue() {
  queue = await get("review/queue", queue !== null);
  by("who").textContent = `You review as ${queue.reviewer}.`;
}

const isMine = (item) => item.state === "open" || item.state === "draft";
const isDone = (item) => item.state === "finished" || item.state === "agreed";

function nextNote(current) {
  const at = queue.notes.findIndex((item) => item.note === current);
  const later = [...queue.notes.slice(at + 1), ...queue.notes.slice(0, Math.max(at, 0))];
  return later.find(isMine);
}

function showQueue(all = false) {
  const { notes, figures } = queue;
  const done = notes.filter(isDone).length;
  const score = (value) => (value === null ? "-" : value.toFixed(2));
  const tiles = [["notes", figures.notes], ["finished by a reviewer", figures.finished], ["disputed", figures.disputed], ["agreed (gold)", figures.agreed], ["agreed, of the random sample", figures.random_agreed]].map(([name, value]) => [name, number(value)]);
  tiles.push(["agreement: strict F1", score(figures.strict_f1)], ["agreement: kappa", score(figures.kappa)]);
  show(by("figures"), ...tiles.map(([name, value]) => el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value))));
  by("progress").max = Math.max(1, notes.length);
  by("progress").value = done;
  by("done").textContent = `${number(done)} of ${plural(notes.length, "note")} finished.`;
  by("start").disabled = !notes.some(isMine);
  by("decide").hidden = !notes.some((item) => item.state === "disputed");
  const shown = all ? notes : notes.slice(0, MOST_ROWS);
  const rows = shown.map((item) => [el("a", { href: `#${item.note}` }, el("code", {}, item.note)), el("span", { class: `pill ${PILL[item.state] ?? ""}` }, item.state), item.reasons.map(words).join(", "), item.characters]);
  show(by("notes"), rows.length ? table(["note", "state", "reasons", "characters"], rows, "Your notes, unfinished ones first") : el("p", {}, "The queue is empty: deid-agent review add fills it."));
  by("all").hidden = shown.length === notes.length;
  by("desk").hidden = true;
  by("queue").hidden = false;
}

by("all").addEventListener("click", () => showQueue(true));
by("start").addEventListener("click", () => open(nextNote(null)?.note));

// --- A note ----------------------------------------------------------------------------------------------------------

const open = (name) => {
  if (name) location.hash = name;
};

async function loadNote(name) {
  if (!queue) await loadQueue();
  const body = await get(`review/notes/${encodeURIComponent(name)}`, true);
  let list, sides;
  try {
    list = spans.fromServer(body.text, body.characters, body.spans);
    sides = body.others.map((one) => ({ reviewer: one.reviewer, list: spans.fromServer(body.text, body.characters, one.spans) }));
  } catch {
    throw new Refused(0, { advice: "the spans of this note do not fit its text, so it cannot be reviewed: report it" });
  }
  const both = sides.length === 2;
  const regions = both ? spans.differences(sides[0].list, sides[1].list) : [];
  if (both && body.state === "disputed") list = spans.merged(sides[0].list, sides[1].list);
  // A draft does not keep which differences are decided, so each of its spans there has to be confirmed.
  else if (both) list = list.map((span) => ({ ...span, uncertain: span.uncertain || regions.some((region) => spans.meets(region, span)) }));
  note = {
    name: body.note, reviewer: body.reviewer, state: body.state, text: body.text, screen: spans.forScreen(body.text), list, saved: list,
    sides, regions, editable: body.state === "open" || body.state === "draft" || (body.state === "disputed" && both), at: -1, range: null, caret: null, undone: [], drawn: null, busy: false, saving: Promise.resolve(),
  };
  note.at = list.findIndex((span) => span.uncertain);
  if (note.at < 0 && list.length) note.at = 0;
  by("who").textContent = `You review as ${body.reviewer}.`;
  by("name").textContent = note.name;
  by("queue").hidden = true;
  by("desk").hidden = false;
  by("tools").hidden = !note.editable;
  for (const name of ["save", "finish"]) document.querySelector(`[data-do=${name}]`).hidden = !note.editable;
  if (!note.editable) report(note.state === "disputed" ? "The reviewers of this note differ, and another one decides." : "This note is finished. Its decisions cannot change.", "warn");
  drawSides();
  draw();
}

const isDirty = () => note !== null && note.list !== note.saved;
const category = (type) => queue.types.find((one) => one.type === type)?.category ?? "OTHER";
const quote = (one) => note.screen.slice(one.begin, one.end).replace(/\s+/g, " ").slice(0, 80);

function describe(index) {
  const span = note.list[index];
  return `${span.type}, ${quote(span)}, span ${index + 1} of ${note.list.length}${span.uncertain ? ", uncertain" : ""}${span.source ? `, from ${span.source}` : ""}`;
}

// The pieces of a text as text nodes and marks. A label is an attribute that the style draws.
function marked(list, range, attributes) {
  return spans.pieces(note.text.length, list, range).map(([begin, end, index, inRange]) => {
    const text = document.createTextNode(note.screen.slice(begin, end));
    if (index < 0 && !inRange) return text;
    const span = list[index];
    const last = span && span.end === end;
    const own = span ? attributes(span, index, begin === span.begin) : {};
    const label = last ? `${span.type}${own.sign ?? ""}` : null;
    return el("mark", { ...own.set, class: `${span ? `c-${category(span.type)}` : ""} ${own.class ?? ""} ${inRange ? "range" : ""}`.trim(), "data-label": label }, text);
  });
}

// Makes the marks of the text anew, but not if only another span is selected: a long note has thousands.
function drawText(place) {
  const drawn = note.range ? null : note.list;
  if (drawn === null || drawn !== note.drawn) {
    const top = place.scrollTop;
    if (place.contains(getSelection().anchorNode)) getSelection().removeAllRanges(); // its nodes are replaced
    const button = (index) => ({ role: "button", tabindex: "-1", "aria-label": describe(index) });
    const nodes = marked(note.list, note.range, (span, index, first) => ({
      sign: span.uncertain ? " ?" : "", class: span.uncertain ? "uncertain" : "", set: { "data-n": index, ...(first ? button(index) : {}) },
    }));
    place.replaceChildren(...nodes);
    place.scrollTop = top;
    drawDifferences();
  }
  note.drawn = drawn;
  for (const mark of place.querySelectorAll("mark.on")) setCurrent(mark, false);
  if (!note.range) for (const mark of place.querySelectorAll(`mark[data-n="${note.at}"]`)) setCurrent(mark, true);
}

function setCurrent(mark, on) {
  mark.classList.toggle("on", on);
  if (!mark.hasAttribute("role")) return;
  mark.tabIndex = on ? 0 : -1;
  mark.ariaCurrent = on ? "true" : "false";
}

function draw(focus = true) {
  const place = by("text");
  drawText(place);
  const left = note.list.filter((span) => span.uncertain).length;
  const shown = note.range ? `Chosen: “${quote(note.range)}”. Enter or t: choose its type. Arrows: another word or line. q w e r: move an edge. Escape: cancel.` : note.list[note.at] ? `${describe(note.at)}.` : "No span is selected.";
  by("detail").setAttribute("aria-live", note.range ? "polite" : "off"); // otherwise the mark has the focus and is read
  by("detail").textContent = `${shown} ${plural(note.list.length, "span")}, ${left} uncertain.`;
  by("state").textContent = note.state;
  by("state").className = `pill ${PILL[note.state] ?? ""}`;
  by("dirty").hidden = !isDirty();
  const target = place.querySelector(note.range ? "mark.range" : "mark.on");
  if (focus) (note.range ? place : (target ?? place)).focus({ preventScroll: true });
  target?.scrollIntoView({ block: "nearest" });
}

function change(list, at, text = "") {
  note.undone = [...note.undone.slice(-MOST_UNDO), [note.list, note.at]];
  note.list = list;
  note.at = Math.min(at, list.length - 1);
  note.range = note.caret = null;
  asked = false;
  report(text);
  draw();
}

const replaced = (span) => note.list.with(note.at, span);
const uncertainAfter = (at) => {
  const order = [...note.list.keys()].map((i) => (at + 1 + i) % note.list.length);
  return order.find((i) => note.list[i].uncertain);
};

function select(index) {
  note.at = index;
  note.caret = null;
  note.range = null;
  report("");
  draw();
}

// --- Two decisions ---------------------------------------------------------------------------------------------------

function drawSides() {
  by("both").hidden = note.sides.length !== 2;
  const differs = (span) => note.regions.some((region) => spans.meets(region, span));
  show(by("sides"), ...note.sides.map(({ reviewer, list }, side) => el("div", {},
    el("h3", {}, `${side + 1}: ${reviewer}`),
    el("pre", { class: "text", tabindex: "0", role: "group", "aria-label": `Decision of ${reviewer}` }, ...marked(list, null, (span) => (differs(span) ? { class: "differs", sign: " ≠" } : {}))),
    el("button", { type: "button", class: "quiet", on: { click: () => choose(note.regions, side) } }, `Take all of ${reviewer}`))));
}

const isDecided = (region) => !note.list.some((span) => span.uncertain && spans.meets(region, span));

function drawDifferences() {
  if (note.sides.length !== 2) return;
  const cell = (list) => (list.length ? list.map((span) => `${quote(span)} ${span.type}`).join("; ") : "no span");
  const rows = note.regions.map((region, i) => [`${i + 1}`, ...region.sides.map(cell),
    el("span", { class: "row" }, ...note.sides.map(({ reviewer }, side) => el("button", { type: "button", class: "quiet", disabled: !note.editable, "aria-label": `Difference ${i + 1}: take ${reviewer}`, on: { click: () => choose([region], side) } }, reviewer, " ", el("kbd", {}, side + 1)))),
    isDecided(region) ? "decided" : "open"]);
  show(by("differences"), rows.length ? table(["#", ...note.sides.map((one) => one.reviewer), "take", "state"], rows, "Differences") : el("p", {}, "The decisions are equal."));
}

function choose(regions, side) {
  if (!note.editable || note.busy || !regions.length) return;
  const list = regions.reduce((before, region) => spans.withSide(before, region, side), note.list);
  const next = list.findIndex((span) => span.uncertain);
  const here = list.findIndex((span) => spans.meets(span, regions[0]));
  change(list, next >= 0 ? next : Math.max(here, 0), `Taken from ${note.sides[side].reviewer}.`);
}

function take(side) {
  if (note.sides.length !== 2) return;
  const here = note.list[note.at];
  const region = note.regions.find((one) => here && spans.meets(one, here) && !isDecided(one)) ?? note.regions.find((one) => !isDecided(one));
  if (region) choose([region], side);
  else report("All differences are decided.", "warn");
}

// --- Actions ---------------------------------------------------------------------------------------------------------

function move(edge, direction, unit) {
  if (note.range) {
    const moved = spans.moveEdge(note.text, [note.range], 0, edge, direction, unit);
    if (moved) note.range = moved;
    return draw();
  }
  if (!note.list[note.at]) return report("Select a span first.", "warn");
  const moved = spans.moveEdge(note.text, note.list, note.at, edge, direction, unit);
  if (moved) change(replaced({ ...moved, source: "", uncertain: false }), note.at);
  else report("The edge cannot move further: delete the span, or the one beside it.", "warn");
}

// The offsets of the selection of the mouse. Marks and text nodes contain the characters of the text and no others.
function selected() {
  const selection = getSelection();
  const place = by("text");
  if (!selection.rangeCount || !place.contains(selection.anchorNode) || !place.contains(selection.focusNode)) return null;
  const offset = (node, at) => {
    const range = document.createRange();
    range.setStart(place, 0);
    range.setEnd(node, at);
    return range.toString().length;
  };
  return [offset(selection.anchorNode, selection.anchorOffset), offset(selection.focusNode, selection.focusOffset)];
}

function add() {
  const found = selected();
  const range = found && found[0] !== found[1] ? spans.trimmed(note.text, ...found) : null;
  getSelection().removeAllRanges();
  note.range = range ?? spans.wordAt(note.text, note.caret ?? note.list[note.at]?.end ?? 0);
  report(note.range ? "" : "The note has no word.", "warn");
  draw();
  if (range) chooseType();
}

function moveRange(to) {
  if (to) note.range = to;
  draw();
}

// The word at the same column of the line that is `count` lines further.
function moveLines(count) {
  const text = note.screen;
  const lineStart = (at) => text.lastIndexOf("\n", at - 1) + 1;
  let begin = lineStart(note.range.begin);
  const column = note.range.begin - begin;
  for (let i = 0; i < Math.abs(count); i += 1) {
    const next = count > 0 ? text.indexOf("\n", begin) + 1 || begin : begin > 0 ? lineStart(begin - 1) : 0;
    if (next >= text.length) break;
    begin = next;
  }
  const end = text.indexOf("\n", begin);
  moveRange(spans.wordAt(note.text, Math.min(begin + column, end < 0 ? text.length : end)));
}

function chooseType() {
  if (!note.range && !note.list[note.at]) return report("Select a span first.", "warn");
  const current = note.range ? "" : note.list[note.at].type;
  show(by("type-list"), ...queue.types.map((one) => el("button", { type: "button", class: `c-${one.category}`, "data-key": one.key, autofocus: one.type === current, "aria-current": one.type === current ? "true" : null, on: { click: () => setType(one.type) } }, el("kbd", {}, one.key), ` ${one.type}`)));
  by("types").showModal();
}

function setType(type) {
  by("types").close();
  if (note.range) {
    const { spans: list, index, replaced: lost } = spans.withSpan(note.list, { ...note.range, type, source: "", uncertain: false });
    change(list, index, lost ? `Added in place of ${plural(lost, "span")}.` : "Added.");
  } else change(replaced({ ...note.list[note.at], type, source: "", uncertain: false }), note.at);
}

function find(event) {
  event.preventDefault();
  const wanted = by("wanted").value;
  const pattern = new RegExp(wanted.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"), "giu");
  pattern.lastIndex = note.range?.end ?? note.list[note.at]?.end ?? 0;
  const match = pattern.exec(note.text) ?? pattern.exec(note.text); // the second one from the start of the note
  if (!match) return void (by("missing").textContent = "The note does not contain this text.");
  by("search").close();
  note.range = spans.trimmed(note.text, match.index, match.index + match[0].length);
  draw();
}

// One request after the other: an older draft must not arrive after a newer one.
function save(finished) {
  const mine = note;
  mine.saving = mine.saving.then(() => saveNow(mine, finished));
  return mine.saving;
}

async function saveNow(mine, finished) {
  mine.busy = finished;
  await attempt(async () => {
    const list = mine.list; // of now: a login may lie between the command and this request
    try {
      const answer = await post(`review/notes/${encodeURIComponent(mine.name)}`, { reviewer: mine.reviewer, finished, adjudicates: mine.sides.length === 2, spans: spans.toServer(mine.text, list) }, true);
      mine.state = answer.state;
    } catch (problem) {
      // The note was finished before, perhaps by a request whose answer was lost.
      if (CLOSED.has(problem.code)) Object.assign(mine, { editable: false, saved: mine.list });
      throw problem;
    }
    mine.saved = list;
    if (!finished) report("Saved as a draft.");
    else await leave(mine);
  }, "Your decisions are still on this page: keep it open, then save again.");
  mine.busy = false;
  if (note === mine && !by("desk").hidden) draw(!by("again").contains(document.activeElement));
}

async function leave(mine) {
  mine.editable = false;
  report(mine.state === "agreed" ? "Finished: the decision is gold." : mine.state === "disputed" ? "Finished: the other reviewer differs." : "Finished.");
  await loadQueue();
  if (note !== mine) return;
  const next = nextNote(mine.name);
  location.hash = next ? next.note : "";
}

function finish() {
  const left = note.list.filter((span) => span.uncertain).length;
  if (left && !asked) {
    asked = true;
    return report(`${plural(left, "uncertain span is", "uncertain spans are")} not accepted. Finish again to finish all the same; they then count as PHI.`, "warn");
  }
  return save(true);
}

async function back() {
  const mine = note;
  await mine.saving;
  if (note !== mine) return undefined;
  if (isDirty()) return report("Your decisions are not saved: save the draft (s), or undo them (z), first.", "warn");
  location.hash = "";
  return undefined;
}

const step = (by_) => note.list.length && select((note.at + by_ + note.list.length) % note.list.length);

const ACTIONS = {
  next: () => (note.range ? moveRange(spans.wordAt(note.text, note.range.end)) : step(1)),
  previous: () => (note.range ? moveRange(spans.wordBefore(note.text, note.range.begin)) : step(-1)),
  unsure() {
    const index = uncertainAfter(note.at);
    if (index === undefined) report("No span is uncertain.", "good");
    else select(index);
  },
  accept() {
    if (note.range) return chooseType();
    const span = note.list[note.at];
    if (!span) return undefined;
    if (!span.uncertain) return step(1);
    const next = uncertainAfter(note.at);
    return change(replaced({ ...span, uncertain: false }), next === undefined || next === note.at ? Math.min(note.at + 1, note.list.length - 1) : next);
  },
  retype: chooseType,
  remove: () => (note.range ? ACTIONS.cancel() : note.list[note.at] && change(note.list.toSpliced(note.at, 1), note.at, "Deleted. Undo brings it back.")),
  add,
  find() {
    by("missing").textContent = "";
    by("search").showModal();
    by("wanted").select();
  },
  undo() {
    const last = note.undone.pop();
    if (!last) return report("There is nothing to undo.", "warn");
    [note.list, note.at] = last;
    note.range = null;
    asked = false;
    report("Undone.");
    return draw();
  },
  cancel() {
    note.range = null;
    asked = false;
    report("");
    draw();
  },
  "begin-left": (unit) => move("begin", -1, unit),
  "begin-right": (unit) => move("begin", 1, unit),
  "end-left": (unit) => move("end", -1, unit),
  "end-right": (unit) => move("end", 1, unit),
  first: () => take(0),
  second: () => take(1),
  save: () => save(false),
  finish,
};
const ANYTIME = {
  next: ACTIONS.next,
  previous: ACTIONS.previous,
  unsure: ACTIONS.unsure,
  help: () => by("help").showModal(),
  back,
};
const KEYS = [
  ["n", "→", "next", "next span"],
  ["p", "←", "previous", "previous span"],
  ["u", "", "unsure", "next uncertain span"],
  ["Enter", "y", "accept", "accept the span, go to the next uncertain one"],
  ["t", "", "retype", "change the type: a list with a key for each type"],
  ["d", "Delete", "remove", "delete the span"],
  ["a", "", "add", "add a span: the selection of the mouse, or a word that the arrows move"],
  ["/", "", "find", "find a text and choose it for a new span"],
  ["q", "", "begin-left", "left edge to the left by a word (with Shift: by a character)"],
  ["w", "", "begin-right", "left edge to the right"],
  ["e", "", "end-left", "right edge to the left"],
  ["r", "", "end-right", "right edge to the right"],
  ["1", "", "first", "take the first reviewer's decision (two decisions)"],
  ["2", "", "second", "take the second reviewer's decision (two decisions)"],
  ["z", "", "undo", "undo"],
  ["s", "", "save", "save a draft"],
  ["f", "", "finish", "finish the note and open the next one"],
  ["b", "", "back", "back to the queue"],
  ["Escape", "", "cancel", "cancel"],
  ["?", "", "help", "these keys"],
];
const ALIAS = { "→": "ArrowRight", "←": "ArrowLeft" };
const BY_KEY = new Map(KEYS.flatMap(([key, other, action]) => [[key, action], ...(other ? [[ALIAS[other] ?? other, action]] : [])]));
const RANGE_KEYS = {
  ArrowUp: () => moveLines(-1),
  ArrowDown: () => moveLines(1),
  PageUp: () => moveLines(-10),
  PageDown: () => moveLines(10),
  Home: () => moveRange(spans.wordAt(note.text, 0)),
  End: () => moveRange(spans.wordAt(note.text, note.text.length)),
};

function act(name, unit) {
  const action = note.editable && !note.busy ? (ACTIONS[name] ?? ANYTIME[name]) : ANYTIME[name];
  action?.(unit);
}

// Letters of other alphabets: the key at the same place of a Latin keyboard.
function keyOf(event) {
  if (/^[a-z]$/i.test(event.key)) return event.key.toLowerCase();
  return /^\P{ASCII}$/u.test(event.key) && /^Key[A-Z]$/.test(event.code) ? event.code.at(-1).toLowerCase() : event.key;
}

addEventListener("keydown", (event) => {
  if (by("desk").hidden || !note || event.altKey || event.isComposing) return;
  const key = keyOf(event);
  if (by("types").open) {
    const button = !event.ctrlKey && !event.metaKey && by("type-list").querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (button) {
      event.preventDefault();
      button.click();
    }
    return;
  }
  if (document.querySelector("dialog[open]") || event.target.closest("input, select, textarea")) return;
  if (event.ctrlKey || event.metaKey) {
    // Ctrl+S of the browser would write the note to a file.
    if (key === "s" || key === "z") {
      event.preventDefault();
      act(key === "s" ? "save" : "undo");
    }
    return;
  }
  if ((key === "Enter" || key === " ") && event.target.closest("button, a, summary")) return;
  const range = note.range && RANGE_KEYS[key];
  if (!range && !BY_KEY.has(key)) return;
  event.preventDefault();
  if (range) range();
  else if (note.range && event.shiftKey && key.startsWith("Arrow")) move("end", key === "ArrowRight" ? 1 : -1, "word");
  else act(BY_KEY.get(key), event.shiftKey ? "character" : "word");
});

for (const button of document.querySelectorAll("[data-do]")) {
  // The click must not move the focus, and so lose the selection, before `add` reads it.
  button.addEventListener("mousedown", (event) => event.preventDefault());
  button.addEventListener("click", () => note && act(button.dataset.do, by("fine").checked ? "character" : "word"));
}
by("text").addEventListener("click", (event) => {
  const index = event.target.closest("mark[data-n]")?.dataset.n;
  if (!note || !getSelection().isCollapsed) return;
  if (index !== undefined) select(Number(index));
  else note.caret = selected()?.[0] ?? null;
});
by("searching").addEventListener("submit", find);
by("no-search").addEventListener("click", () => by("search").close());
by("no-help").addEventListener("click", () => by("help").close());
show(by("keys"), table(["key", "action"], KEYS.map(([key, other, , text]) => [el("span", {}, el("kbd", {}, key), ...(other ? [" ", el("kbd", {}, other)] : [])), text])));
// The event comes late: another dialog may be open by then, and its field in use.
for (const dialog of document.querySelectorAll("dialog")) dialog.addEventListener("close", () => {
  if (dialog === by("search") && !dialog.open) by("wanted").value = "";
  if (note && !document.querySelector("dialog[open]")) draw();
});

// --- The address -----------------------------------------------------------------------------------------------------

const clear = () => ["text", "sides", "differences", "detail"].forEach((id) => show(by(id)));

async function follow() {
  const name = location.hash.slice(1);
  if (isDirty() && name !== note.name) {
    history.pushState(null, "", `#${note.name}`);
    return report("Your decisions are not saved: save the draft (s), or undo them (z), first.", "warn");
  }
  if (name && name === note?.name && !by("desk").hidden) return undefined;
  note = null;
  clear();
  by("desk").hidden = true;
  await attempt(async () => {
    if (name) return loadNote(name);
    await loadQueue();
    return showQueue();
  });
  if (by("desk").hidden && by("queue").hidden && queue && by("again").hidden) showQueue();
  return undefined;
}

addEventListener("hashchange", follow);
addEventListener("beforeunload", (event) => isDirty() && event.preventDefault());
// The history of the browser must not show a note again after the logout.
addEventListener("pagehide", () => {
  note = null;
  clear();
});
addEventListener("pageshow", (event) => event.persisted && location.reload());
offerLogout(async () => {
  if (isDirty()) await save(false);
  return !isDirty();
});
follow();
