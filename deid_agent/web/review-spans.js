// Functions on the text and the spans of a note. They change nothing and know no document.
//
// The server counts code points, JavaScript counts UTF-16 units: an emoji is one of the first and two of the second. All
// functions here count units. `positions` converts at the boundary to the server, and nothing else does.

export function positions(text) {
  const starts = [];
  let unit = 0;
  for (const character of text) {
    starts.push(unit);
    unit += character.length;
  }
  starts.push(unit);
  return {
    points: starts.length - 1,
    toUnits: (point) => starts[point],
    toPoints(at) {
      let low = 0;
      let high = starts.length - 1;
      while (low < high) {
        const middle = (low + high + 1) >> 1;
        if (starts[middle] <= at) low = middle;
        else high = middle - 1;
      }
      return low;
    },
  };
}

// The spans of the server in units. Throws if they do not fit: decisions at wrong places would be worse than none.
export function fromServer(text, characters, spans) {
  const at = positions(text);
  if (at.points !== characters) throw new RangeError("length");
  let last = 0;
  return spans
    .toSorted((a, b) => a.begin - b.begin)
    .map((span) => {
      if (!(Number.isInteger(span.begin) && Number.isInteger(span.end) && last <= span.begin && span.begin < span.end && span.end <= characters)) throw new RangeError("span");
      last = span.end;
      return { ...span, begin: at.toUnits(span.begin), end: at.toUnits(span.end) };
    });
}

export function toServer(text, spans) {
  const at = positions(text);
  return spans.map((span) => ({ begin: at.toPoints(span.begin), end: at.toPoints(span.end), type: span.type, source: span.source, uncertain: span.uncertain }));
}

// A text of the same length for the screen. Line ends break the line, and characters without a shape get one: an
// invisible letter or a mark that reverses a line could hide a name from the reviewer.
const ODD =
  /\r\n|[\r\v\f\u0085\u2028\u2029]|[\0-\x08\x0e-\x1f\x7f-\x9f]|[\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb]|[\u{e0000}-\u{e0fff}]|\p{Cs}/gu;
export function forScreen(text) {
  return text.replace(ODD, (odd) => {
    const code = odd.codePointAt(0);
    if (odd === "\r\n") return "\u200b\n";
    if (code >= 0xe0000) return "\u25e6\u25e6";
    if ((code >= 0x0a && code <= 0x0d) || code === 0x85 || code === 0x2028 || code === 0x2029) return "\n";
    if (code < 0x20) return String.fromCharCode(0x2400 + code);
    return code < 0xa0 || code >= 0xd800 && code <= 0xdfff ? "\ufffd" : "\u25e6";
  });
}

const WORD = /[\p{L}\p{N}\p{M}_]/u;
const SPACE = /\s/u;

export const forward = (text, at) => (at >= text.length ? text.length : at + (text.codePointAt(at) > 0xffff ? 2 : 1));

export function backward(text, at) {
  if (at <= 0) return 0;
  return at > 1 && text.codePointAt(at - 2) > 0xffff ? at - 2 : at - 1;
}

const after = (text, at) => (at < text.length ? String.fromCodePoint(text.codePointAt(at)) : "");
const before = (text, at) => (at > 0 ? text.slice(backward(text, at), at) : "");

function skip(text, at, test, step, neighbour) {
  while (neighbour(text, at) && test(neighbour(text, at))) at = step(text, at);
  return at;
}

const isWord = (character) => WORD.test(character);
const isGap = (character) => !WORD.test(character);
export const wordEnd = (text, at) => skip(text, skip(text, at, isGap, forward, after), isWord, forward, after);
export const wordStart = (text, at) => skip(text, skip(text, at, isGap, backward, before), isWord, backward, before);
const nextStart = (text, at) => skip(text, skip(text, at, isWord, forward, after), isGap, forward, after);
const lastEnd = (text, at) => skip(text, skip(text, at, isWord, backward, before), isGap, backward, before);

// How far an edge of a span moves by a word: outwards to the edge of the next word, inwards to the edge of the next one.
const STEPS = {
  word: { begin: { [-1]: wordStart, 1: nextStart }, end: { [-1]: lastEnd, 1: wordEnd } },
  character: { begin: { [-1]: backward, 1: forward }, end: { [-1]: backward, 1: forward } },
};

// The span with one edge moved, but not over a neighbour or its own other edge; null if it cannot move.
export function moveEdge(text, spans, index, edge, direction, unit) {
  const span = spans[index];
  let to = STEPS[unit][edge][direction](text, span[edge]);
  const low = edge === "begin" ? (spans[index - 1]?.end ?? 0) : forward(text, span.begin);
  const high = edge === "begin" ? backward(text, span.end) : (spans[index + 1]?.begin ?? text.length);
  to = Math.min(Math.max(to, low), high);
  return to === span[edge] ? null : { ...span, [edge]: to };
}

// The word at or after a place, else the last word before it, else null.
export function wordAt(text, at) {
  const begin = isWord(after(text, at) || " ") ? skip(text, at, isWord, backward, before) : nextStart(text, at);
  if (begin < text.length) return { begin, end: wordEnd(text, begin) };
  const end = skip(text, text.length, isGap, backward, before);
  return end > 0 ? { begin: wordStart(text, end), end } : null;
}

export function wordBefore(text, at) {
  const end = skip(text, at, isGap, backward, before);
  return end > 0 ? { begin: wordStart(text, end), end } : null;
}

// A selection without the blanks at its ends, and with both halves of each pair of units; null if nothing is left.
export function trimmed(text, first, last) {
  let begin = Math.max(0, Math.min(first, last));
  let end = Math.min(text.length, Math.max(first, last));
  if (begin > 0 && text.codePointAt(begin - 1) > 0xffff) begin -= 1;
  if (end > 0 && end < text.length && text.codePointAt(end - 1) > 0xffff) end += 1;
  begin = Math.min(end, skip(text, begin, (c) => SPACE.test(c), forward, after));
  end = Math.max(begin, skip(text, end, (c) => SPACE.test(c), backward, before));
  return begin < end ? { begin, end } : null;
}

export const meets = (a, b) => a.begin < b.end && b.begin < a.end;

// The spans with one more, in place of those that it meets.
export function withSpan(spans, span) {
  const others = spans.filter((other) => !meets(other, span));
  const index = others.findIndex((other) => other.begin >= span.end);
  const at = index < 0 ? others.length : index;
  return { spans: others.toSpliced(at, 0, span), index: at, replaced: spans.length - others.length };
}

const equal = (a, b) => a.begin === b.begin && a.end === b.end && a.type === b.type;

// The regions in which two reviewers differ, each with the spans of both.
export function differences(first, second) {
  const all = [...first.map((span) => [span, 0]), ...second.map((span) => [span, 1])].sort(([a], [b]) => a.begin - b.begin || a.end - b.end);
  const regions = [];
  for (const [span, side] of all) {
    const region = regions.at(-1);
    if (!region || span.begin >= region.end) regions.push({ begin: span.begin, end: span.end, sides: [[], []] });
    const last = regions.at(-1);
    last.end = Math.max(last.end, span.end);
    last.sides[side].push(span);
  }
  return regions.filter(({ sides: [a, b] }) => a.length !== b.length || a.some((span, i) => !equal(span, b[i])));
}

// The first decision of an adjudication: equal spans, and in each difference the spans of a reviewer who has some. The
// latter are uncertain until the adjudicator decides.
export function merged(first, second) {
  const open = differences(first, second);
  const isOpen = (span) => open.some((region) => meets(region, span));
  const sure = first.filter((span) => !isOpen(span)).map((span) => ({ ...span, uncertain: false }));
  const unsure = open.flatMap(({ sides: [a, b] }) => (a.length ? a : b)).map((span) => ({ ...span, uncertain: true }));
  return [...sure, ...unsure].sort((a, b) => a.begin - b.begin);
}

export function withSide(spans, region, side) {
  const chosen = region.sides[side].map((span) => ({ ...span, uncertain: false }));
  return [...spans.filter((span) => !meets(span, region)), ...chosen].sort((a, b) => a.begin - b.begin);
}

// The text in pieces: [begin, end, index of the span or -1, whether it is in the range that is being chosen].
export function pieces(length, spans, range) {
  const cuts = new Set([0, length]);
  for (const one of range ? [...spans, range] : spans) cuts.add(one.begin).add(one.end);
  const sorted = [...cuts].sort((a, b) => a - b);
  let index = 0;
  return sorted.slice(0, -1).map((begin, i) => {
    while (index < spans.length && spans[index].end <= begin) index += 1;
    const inside = index < spans.length && spans[index].begin <= begin;
    return [begin, sorted[i + 1], inside ? index : -1, Boolean(range) && range.begin <= begin && begin < range.end];
  });
}
