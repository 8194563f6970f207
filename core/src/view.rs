//! A text in ASCII with its tokens and lines, and what each token has there. The functions are those of `text.py`,
//! `labels.py` and `line_features.py`.

use std::collections::{HashMap, HashSet};

/// No index.
pub const NONE: u32 = u32::MAX;

/// A half-open range of bytes, which are characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

/// A span of the first pass: its range, type and source.
pub struct Span {
    /// Its characters.
    pub range: Range,
    /// The name of its type.
    pub kind: String,
    /// The written form of its source.
    pub source: String,
}

/// A mark of the grammar.
pub struct Mark {
    /// Its characters.
    pub range: Range,
    /// What it measures.
    pub kind: String,
    /// Whether no span may lie inside of it.
    pub hard: bool,
}

/// Words that begin lines before a colon.
pub struct Speakers {
    /// Where they begin those lines, in order.
    pub turns: Vec<usize>,
    /// The words, in lower case.
    pub names: HashSet<String>,
}

/// The text and its parts.
pub struct View {
    /// The text.
    pub text: Vec<u8>,
    /// The text in lower case.
    pub lower: Vec<u8>,
    /// Runs of letters, runs of digits, and single other characters that are no white space.
    pub tokens: Vec<Range>,
    /// Lines with their ends.
    pub lines: Vec<Range>,
    /// The line of each token.
    pub line: Vec<u32>,
    /// The number of each token's word, in the order of their first occurrences.
    pub words: Vec<u32>,
    /// The first token of each distinct word.
    pub distinct: Vec<u32>,
    /// The last token before each token in its line that is no punctuation, or `NONE`.
    pub previous: Vec<u32>,
    /// The spans of the first pass.
    pub spans: Vec<Span>,
    /// For each token the span that labels it, or `NONE`, and whether it continues the span.
    pub labels: Vec<(u32, bool)>,
    /// For each token the span whose source it has, or `NONE`.
    pub sources: Vec<u32>,
    /// The marks, disjoint and in order.
    pub marks: Vec<Mark>,
    /// The mark of each token, or `NONE`.
    pub mark: Vec<u32>,
    /// The speakers, if a word begins two lines.
    pub speakers: Option<Speakers>,
}

/// White space as Python defines it.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b'\t'..=b'\r' | 0x1c..=0x20)
}

impl View {
    /// The view of a text in ASCII.
    pub fn new(text: &str, spans: Vec<Span>, marks: Vec<Mark>, speakers: Option<Speakers>) -> Self {
        let text = text.as_bytes().to_vec();
        let lower = text.to_ascii_lowercase();
        let tokens = find_tokens(&text);
        let lines = find_lines(&text);
        let mut line = Vec::with_capacity(tokens.len());
        let mut at = 0;
        for token in &tokens {
            while lines[at].end <= token.start {
                at += 1;
            }
            line.push(at as u32);
        }
        let mut known: HashMap<&[u8], u32> = HashMap::with_capacity(tokens.len());
        let mut words = Vec::with_capacity(tokens.len());
        let mut distinct = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            let number = *known.entry(&text[token.start..token.end]).or_insert_with(|| {
                distinct.push(at as u32);
                distinct.len() as u32 - 1
            });
            words.push(number);
        }
        let previous = find_previous(&text, &tokens, &line);
        let labels = find_labels(&spans, &tokens);
        let sources = find_sources(&spans, &tokens);
        let mark = find_covering(&marks, &tokens);
        Self {
            text,
            lower,
            tokens,
            lines,
            line,
            words,
            distinct,
            previous,
            spans,
            labels,
            sources,
            marks,
            mark,
            speakers,
        }
    }

    /// A token's word.
    pub fn word(&self, token: usize) -> &[u8] {
        let Range { start, end } = self.tokens[token];
        &self.text[start..end]
    }

    /// A token's word in lower case.
    pub fn low(&self, token: usize) -> &[u8] {
        let Range { start, end } = self.tokens[token];
        &self.lower[start..end]
    }

    /// The tokens that follow an empty line.
    pub fn paragraph_starts(&self) -> Vec<usize> {
        let mut found: Vec<usize> = Vec::new();
        let mut at = 0;
        while at < self.text.len() {
            if self.text[at] == b'\n' {
                let mut end = at + 1;
                while end < self.text.len() && self.text[end] != b'\n' && is_space(self.text[end]) {
                    end += 1;
                }
                if self.text.get(end) == Some(&b'\n') {
                    let first = self.tokens.partition_point(|token| token.start <= end);
                    if first < self.tokens.len() && found.last() != Some(&first) {
                        found.push(first);
                    }
                    end += 1;
                }
                at = end;
            } else {
                at += 1;
            }
        }
        found
    }

    /// The sizes of the paragraphs, which are divided if they have more than `most` tokens, between lines if possible.
    pub fn split(&self, most: usize) -> Vec<usize> {
        let size = self.tokens.len();
        let mut edges = vec![0];
        edges.extend(self.paragraph_starts().into_iter().filter(|at| *at > 0));
        edges.push(size);
        let mut found = Vec::with_capacity(edges.len());
        for pair in edges.windows(2) {
            let (mut at, end) = (pair[0], pair[1]);
            while end - at > most {
                let mut cut = at + most;
                while cut > at && self.line[cut] == self.line[cut - 1] {
                    cut -= 1;
                }
                let cut = if cut > at { cut } else { at + most };
                found.push(cut - at);
                at = cut;
            }
            if end > at {
                found.push(end - at);
            }
        }
        found
    }
}

fn find_tokens(text: &[u8]) -> Vec<Range> {
    let mut found = Vec::with_capacity(text.len() / 4);
    let mut at = 0;
    while at < text.len() {
        let start = at;
        let first = text[at];
        at += 1;
        if first.is_ascii_digit() {
            while at < text.len() && text[at].is_ascii_digit() {
                at += 1;
            }
        } else if first.is_ascii_alphabetic() {
            while at < text.len() && text[at].is_ascii_alphabetic() {
                at += 1;
            }
        } else if is_space(first) {
            continue;
        }
        found.push(Range { start, end: at });
    }
    found
}

fn find_lines(text: &[u8]) -> Vec<Range> {
    let mut found = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let mut end = start + memchr::memchr2(b'\r', b'\n', &text[start..]).unwrap_or(text.len() - start);
        if end < text.len() {
            end += if text[end] == b'\r' && text.get(end + 1) == Some(&b'\n') { 2 } else { 1 };
        }
        found.push(Range { start, end });
        start = end;
    }
    found
}

fn find_previous(text: &[u8], tokens: &[Range], line: &[u32]) -> Vec<u32> {
    let mut last = NONE;
    let mut own = NONE;
    let step = |(at, token): (usize, &Range)| {
        if line[at] != own {
            own = line[at];
            last = NONE;
        }
        let before = last;
        if text[token.start].is_ascii_alphanumeric() {
            last = at as u32;
        }
        before
    };
    tokens.iter().enumerate().map(step).collect()
}

fn find_labels(spans: &[Span], tokens: &[Range]) -> Vec<(u32, bool)> {
    let mut found = vec![(NONE, false); tokens.len()];
    for (number, span) in spans.iter().enumerate() {
        let range = span.range;
        let mut continues = false;
        let first = tokens.partition_point(|token| token.start <= range.start).saturating_sub(1);
        for (token, label) in tokens[first..].iter().zip(&mut found[first..]) {
            if token.start >= range.end {
                break;
            }
            if token.end > range.start && label.0 == NONE {
                *label = (number as u32, continues);
                continues = true;
            }
        }
    }
    found
}

fn find_sources(spans: &[Span], tokens: &[Range]) -> Vec<u32> {
    let mut found = vec![NONE; tokens.len()];
    let mut at = 0;
    for (number, span) in spans.iter().enumerate() {
        while at < tokens.len() && tokens[at].end <= span.range.start {
            at += 1;
        }
        while at < tokens.len() && tokens[at].start < span.range.end {
            found[at] = number as u32;
            at += 1;
        }
    }
    found
}

fn find_covering(marks: &[Mark], tokens: &[Range]) -> Vec<u32> {
    let mut at = 0;
    let cover = |token: &Range| {
        while at < marks.len() && marks[at].range.end <= token.start {
            at += 1;
        }
        if at < marks.len() && marks[at].range.start < token.end { at as u32 } else { NONE }
    };
    tokens.iter().map(cover).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(text: &str) -> View {
        View::new(text, Vec::new(), Vec::new(), None)
    }

    #[test]
    fn tokens_lines_and_paragraphs() {
        let found = view("Ab12 x\r\n\r\n-c\r\n \t\nd\n\n\ne");
        let words: Vec<&[u8]> = (0..found.tokens.len()).map(|at| found.word(at)).collect();
        assert_eq!(words, [b"Ab".as_slice(), b"12", b"x", b"-", b"c", b"d", b"e"]);
        assert_eq!(found.line, [0, 0, 0, 2, 2, 4, 7]);
        assert_eq!(found.paragraph_starts(), [3, 5, 6]);
        assert_eq!(found.split(2), [2, 1, 2, 1, 1]);
        assert_eq!(found.previous, [NONE, 0, 1, NONE, NONE, NONE, NONE]);
    }

    #[test]
    fn a_text_without_tokens_has_no_paragraphs() {
        assert!(view("").split(4).is_empty());
        assert!(view("\n\n \n").split(4).is_empty());
    }
}
