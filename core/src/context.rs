//! Features of tokens that depend on the text around them. The functions are those of `token_features.py` and
//! `line_features.py`.

use std::collections::HashMap;

use crate::view::{NONE, Range, View, is_space};

/// A feature of the context of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// The white space before it.
    Gap,
    /// The label of the first pass.
    Rule,
    /// The source of the span of the first pass.
    Source,
    /// The types of the first pass at other occurrences.
    Elsewhere,
    /// How often the word occurs.
    Writing,
    /// The nearest cue before it.
    CueLeft,
    /// The nearest cue after it.
    CueRight,
    /// The words before the colon in the line.
    Label,
    /// The heading.
    Section,
    /// The case of the line.
    Case,
    /// The distance of the line from the start or end.
    Zone,
    /// The place in the line.
    LinePlace,
    /// The length of a short text.
    Size,
    /// A word that begins several lines.
    Speaker,
    /// What the mark measures.
    Measure,
    /// The place in the mark.
    MeasureEdge,
}

impl Context {
    /// The feature with this name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "gap" => Self::Gap,
            "rule" => Self::Rule,
            "source" => Self::Source,
            "elsewhere" => Self::Elsewhere,
            "writing" => Self::Writing,
            "cue_left" => Self::CueLeft,
            "cue_right" => Self::CueRight,
            "label" => Self::Label,
            "section" => Self::Section,
            "case" => Self::Case,
            "zone" => Self::Zone,
            "line_place" => Self::LinePlace,
            "size" => Self::Size,
            "speaker" => Self::Speaker,
            "measure" => Self::Measure,
            "measure_edge" => Self::MeasureEdge,
            _ => return None,
        })
    }
}

/// The number of each known value.
#[derive(Default)]
pub struct Numbers {
    known: HashMap<Box<[u8]>, i32>,
    absent: i32,
}

impl Numbers {
    /// The values and their numbers.
    pub fn new(values: impl IntoIterator<Item = (String, i32)>) -> Self {
        let known: HashMap<Box<[u8]>, i32> =
            values.into_iter().map(|(value, number)| (value.into_bytes().into(), number)).collect();
        let absent = known.get(&b""[..]).copied().unwrap_or(0);
        Self { known, absent }
    }

    /// The number of a value, 0 for an unknown one.
    pub fn of(&self, value: &[u8]) -> i32 {
        if value.is_empty() { self.absent } else { self.known.get(value).copied().unwrap_or(0) }
    }
}

const SIZES: [usize; 4] = [3, 8, 20, 60];
const CUE_REACH: usize = 8;
const ZONE: usize = 8;
const LABEL_REACH: usize = 40;

/// The number of the feature of each token. `cues` has for each token the kinds of context that it is a cue for.
pub fn encode(view: &View, feature: Context, cues: &[&str], numbers: &Numbers) -> Vec<i32> {
    let tokens = 0..view.tokens.len();
    match feature {
        Context::Gap => {
            let [none, one, wide, line, empty] = [&b""[..], b"_", b"w", b"n", b"N"].map(|value| numbers.of(value));
            let mut last = 0;
            let number = |token: &Range| {
                let gap = &view.text[last..token.start];
                last = token.end;
                match gap {
                    [] => none,
                    _ => match gap.iter().filter(|byte| **byte == b'\n').count() {
                        0 if gap.len() == 1 => one,
                        0 => wide,
                        1 => line,
                        _ => empty,
                    },
                }
            };
            view.tokens.iter().map(number).collect()
        }
        Context::Rule => {
            let mut known = HashMap::new();
            let outside = numbers.of(b"O");
            let number = |(span, continues): &(u32, bool)| {
                if *span == NONE {
                    return outside;
                }
                let kind = view.spans[*span as usize].kind.as_str();
                *known
                    .entry((kind, *continues))
                    .or_insert_with(|| numbers.of(format!("{}-{kind}", if *continues { 'I' } else { 'B' }).as_bytes()))
            };
            view.labels.iter().map(number).collect()
        }
        Context::Source => {
            let sources: Vec<i32> = view.spans.iter().map(|span| numbers.of(span.source.as_bytes())).collect();
            view.sources.iter().map(|span| sources.get(*span as usize).copied().unwrap_or(numbers.absent)).collect()
        }
        Context::Elsewhere => elsewhere(view, numbers),
        Context::Writing => {
            let counts = view.words.iter().fold(vec![0usize; view.distinct.len()], |mut counts, word| {
                counts[*word as usize] += 1;
                counts
            });
            let present: std::collections::HashSet<&[u8]> =
                view.distinct.iter().map(|token| view.word(*token as usize)).collect();
            let number = |(first, times): (&u32, &usize)| {
                let (word, low) = (view.word(*first as usize), view.low(*first as usize));
                if !word[0].is_ascii_alphabetic() {
                    return numbers.absent;
                }
                let times = b'0' + (*times).min(3) as u8;
                if word != low && present.contains(low) { numbers.of(&[b'l', times]) } else { numbers.of(&[times]) }
            };
            let found: Vec<i32> = view.distinct.iter().zip(&counts).map(number).collect();
            view.words.iter().map(|word| found[*word as usize]).collect()
        }
        Context::CueLeft => nearest_cues(view, cues, 1, numbers),
        Context::CueRight => nearest_cues(view, cues, -1, numbers),
        Context::Label => labels(view, numbers),
        Context::Section => of_lines(view, sections(view, numbers)),
        Context::Case => {
            of_lines(view, view.lines.iter().map(|line| numbers.of(case(&view.text[line.start..line.end]))).collect())
        }
        Context::Zone => {
            let size = view.lines.len();
            let zone = |at: usize| match (at, size - 1 - at) {
                (at, _) if at < ZONE => numbers.of(format!("h{}", at / 2).as_bytes()),
                (_, rest) if rest < ZONE => numbers.of(format!("t{}", rest / 2).as_bytes()),
                _ => numbers.of(b"b"),
            };
            of_lines(view, (0..size).map(zone).collect())
        }
        Context::LinePlace => {
            let mut found = Vec::with_capacity(tokens.len());
            for run in view.line.chunk_by(|a, b| a == b) {
                let class = match run.len() {
                    0..6 => b's',
                    6..16 => b'm',
                    _ => b'l',
                };
                let place = |at: usize| match at {
                    0 => b'0',
                    1 => b'1',
                    _ if at == run.len() - 1 => b'$',
                    _ => b'.',
                };
                let inside = numbers.of(&[b'.', class]);
                found.extend((0..run.len()).map(|at| match place(at) {
                    b'.' => inside,
                    other => numbers.of(&[other, class]),
                }));
            }
            found
        }
        Context::Size => {
            let step = SIZES.partition_point(|size| *size < tokens.len());
            let number = if step < SIZES.len() { numbers.of(&[b'0' + step as u8]) } else { numbers.absent };
            vec![number; tokens.len()]
        }
        Context::Speaker => {
            let Some(speakers) = &view.speakers else { return vec![numbers.absent; tokens.len()] };
            let (turn, name) = (numbers.of(b"turn"), numbers.of(b"name"));
            let number = |at: usize| {
                if speakers.turns.binary_search(&view.tokens[at].start).is_ok() {
                    turn
                } else if std::str::from_utf8(view.low(at)).is_ok_and(|low| speakers.names.contains(low)) {
                    name
                } else {
                    numbers.absent
                }
            };
            tokens.map(number).collect()
        }
        Context::Measure => {
            let kinds: Vec<i32> = view.marks.iter().map(|mark| numbers.of(mark.kind.as_bytes())).collect();
            view.mark.iter().map(|mark| kinds.get(*mark as usize).copied().unwrap_or(numbers.absent)).collect()
        }
        Context::MeasureEdge => {
            let number = |(token, mark): (&Range, &u32)| match view.marks.get(*mark as usize) {
                None => numbers.absent,
                Some(mark) => numbers.of(match (token.start <= mark.range.start, token.end >= mark.range.end) {
                    (true, true) => b"S",
                    (true, false) => b"B",
                    (false, true) => b"E",
                    (false, false) => b"I",
                }),
            };
            view.tokens.iter().zip(&view.mark).map(number).collect()
        }
    }
}

fn of_lines(view: &View, numbers: Vec<i32>) -> Vec<i32> {
    view.line.iter().map(|line| numbers[*line as usize]).collect()
}

fn elsewhere(view: &View, numbers: &Numbers) -> Vec<i32> {
    let mut seen: HashMap<&[u8], Vec<(&str, u32)>> = HashMap::new();
    let kind_of = |at: usize| view.spans.get(view.labels[at].0 as usize).map(|span| span.kind.as_str());
    for at in 0..view.tokens.len() {
        let word = view.low(at);
        if let Some(kind) = kind_of(at)
            && word.len() > 2
            && word[0].is_ascii_alphabetic()
        {
            let kinds = seen.entry(word).or_default();
            match kinds.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, times)) => *times += 1,
                None => kinds.push((kind, 1)),
            }
        }
    }
    for kinds in seen.values_mut() {
        kinds.sort_unstable();
    }
    let number = |at: usize| {
        let Some(kinds) = seen.get(view.low(at)) else { return numbers.absent };
        let own = kind_of(at).unwrap_or("");
        let others: Vec<&str> =
            kinds.iter().filter(|(kind, times)| *times > u32::from(*kind == own)).map(|(kind, _)| *kind).collect();
        numbers.of(others.join("/").as_bytes())
    };
    if seen.is_empty() {
        return vec![numbers.absent; view.tokens.len()];
    }
    (0..view.tokens.len()).map(number).collect()
}

fn nearest_cues(view: &View, cues: &[&str], step: isize, numbers: &Numbers) -> Vec<i32> {
    let mut found = vec![numbers.absent; cues.len()];
    for (at, cue) in cues.iter().enumerate().filter(|(_, cue)| !cue.is_empty()) {
        for distance in 1..=CUE_REACH {
            let Some(place) = at.checked_add_signed(step * distance as isize).filter(|place| *place < cues.len())
            else {
                break;
            };
            if view.line[place] != view.line[at] {
                break;
            }
            let class = match distance {
                1 => '1',
                2 | 3 => '2',
                _ => '3',
            };
            found[place] = numbers.of(format!("{cue}{class}").as_bytes());
            if !cues[place].is_empty() {
                break;
            }
        }
    }
    found
}

/// The label of each token: up to two words before the nearest colon to its left in the line.
fn labels(view: &View, numbers: &Numbers) -> Vec<i32> {
    let mut found = Vec::with_capacity(view.tokens.len());
    let (mut label, mut carried) = (Vec::new(), Vec::new());
    let mut number = numbers.absent;
    let mut line = NONE;
    for (at, token) in view.tokens.iter().enumerate() {
        if view.line[at] != line {
            let follows = line != NONE && view.low(at - 1) == b":" && view.line[at] == line + 1;
            carried = if follows { std::mem::take(&mut label) } else { Vec::new() };
            label.clear();
            line = view.line[at];
            number = numbers.of(&carried);
        }
        found.push(number);
        if view.text[token.start] == b':' {
            let first = view.lines[line as usize].start.max(token.start.saturating_sub(LABEL_REACH));
            label.clear();
            if ends_in_word(&view.text[first..token.start]) {
                let mut start = at - 1;
                while start > 0
                    && view.line[start - 1] == line
                    && at - start < 2
                    && view.text[view.tokens[start - 1].start].is_ascii_alphabetic()
                {
                    start -= 1;
                }
                for word in start..at {
                    if word > start {
                        label.push(b' ');
                    }
                    label.extend_from_slice(view.low(word));
                }
            }
            number = numbers.of(if label.is_empty() { &carried } else { &label });
        }
    }
    found
}

/// Whether the text ends in a word with a letter, and at most three signs but no colon.
fn ends_in_word(text: &[u8]) -> bool {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let signs = text.iter().rev().take_while(|byte| !is_word(byte)).count();
    let (before, after) = text.split_at(text.len() - signs);
    signs <= 3
        && !after.contains(&b':')
        && before.iter().rev().take_while(|byte| byte.is_ascii_alphanumeric()).any(u8::is_ascii_alphabetic)
}

fn sections(view: &View, numbers: &Numbers) -> Vec<i32> {
    let mut current = numbers.absent;
    let number = |line: &Range| {
        if let Some(heading) = heading(&view.text[line.start..line.end]) {
            let lower = heading.to_ascii_lowercase();
            let words: Vec<&[u8]> = lower.split(|byte| *byte == b' ').filter(|word| !word.is_empty()).take(2).collect();
            current = numbers.of(&words.join(&b' '));
        }
        current
    };
    view.lines.iter().map(number).collect()
}

/// The text of a heading: a line of 3 to 41 letters and some signs that ends in a colon or is in capitals.
fn heading(line: &[u8]) -> Option<&[u8]> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = line.iter().position(|byte| !is_blank(byte))?;
    if !line[start].is_ascii_uppercase() {
        return None;
    }
    let inside = |byte: &u8| byte.is_ascii_alphabetic() || matches!(byte, b'/' | b'&' | b',' | b'\'' | b' ' | b'-');
    let most = line[start + 1..].iter().take(40).take_while(|byte| inside(byte)).count();
    let mut end = line.len();
    if line[..end].ends_with(b"\n") {
        end -= 1;
    }
    if line[..end].ends_with(b"\r") {
        end -= 1;
    }
    let blanks = end - line[..end].iter().rev().take_while(|byte| is_blank(byte)).count();
    for size in (2..=most).rev() {
        let at = start + 1 + size;
        let has_colon = line.get(at) == Some(&b':');
        let rest = at + usize::from(has_colon);
        if rest >= blanks && rest <= end {
            let found = &line[start..at];
            return (has_colon || !found.iter().any(u8::is_ascii_lowercase)).then_some(found);
        }
    }
    None
}

fn case(line: &[u8]) -> &'static [u8] {
    let (mut words, mut titles) = (0, 0);
    let (mut upper, mut lower) = (false, false);
    let mut inside = false;
    for byte in line {
        upper |= byte.is_ascii_uppercase();
        lower |= byte.is_ascii_lowercase();
        if !inside && byte.is_ascii_alphabetic() {
            words += 1;
            titles += usize::from(byte.is_ascii_uppercase());
        }
        inside = !is_space(*byte);
    }
    match (words, upper, lower) {
        (0, _, _) => b"-",
        (_, true, false) => b"U",
        (_, false, true) => b"l",
        _ if titles * 4 >= words * 3 => b"T",
        _ => b"s",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings() {
        for (line, found) in [
            ("PLAN\n", Some("PLAN")),
            (" \tPlan of care: \r\n", Some("Plan of care")),
            ("PLAN ", Some("PLAN ")),
            ("Plan", None),
            ("PL:", None),
            ("PLAN: rest", None),
            ("", None),
        ] {
            assert_eq!(heading(line.as_bytes()), found.map(str::as_bytes), "{line}");
        }
        assert_eq!(heading(format!("A{}", "B".repeat(41)).as_bytes()), None);
    }

    #[test]
    fn cases() {
        for (line, found) in [("12 -", "-"), ("(A)", "-"), ("AB c1", "s"), ("AB 1", "U"), ("ab", "l"), ("Ab Cd", "T")] {
            assert_eq!(case(line.as_bytes()), found.as_bytes(), "{line}");
        }
    }

    #[test]
    fn words_before_a_colon() {
        for (text, found) in
            [("Name", true), ("a1) ", true), ("12", false), ("a: ", false), ("a    ", false), ("", false)]
        {
            assert_eq!(ends_in_word(text.as_bytes()), found, "{text}");
        }
        assert!(!ends_in_word(b"a_"));
    }
}
