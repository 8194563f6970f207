//! Rules over the bytes of a text: candidate positions of all rules in one pass, then one automaton for each rule.
//!
//! A rule is run from those positions only whose next bytes can begin a match. The result is that of a search for the
//! leftmost match, because the automaton is anchored at each position in ascending order.

use memchr::memmem::Finder;
use regex_automata::hybrid::dfa::{self, DFA};
use regex_automata::nfa::thompson::backtrack::{self, BoundedBacktracker};
use regex_automata::nfa::thompson::{Compiler, Config, NFA, State, WhichCaptures};
use regex_automata::util::look::Look;
use regex_automata::util::primitives::StateID;
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};
use std::ops::Range;

use crate::view::is_space;

/// Bytes of context that a condition reads on its side of the span.
const WINDOW: usize = 96;
/// The bytes from a position on that decide whether a rule may match there.
const HEAD: usize = 6;
/// The symbol after the last byte of a text. The others are its bytes.
const END: usize = 256;
/// Positions that are looked at together. It bounds the memory of candidates.
const BLOCK: usize = 4096;
/// The memory of one automaton in bytes. It is cleared when it is full.
const CACHE: usize = 1 << 20;
/// The memory of the search for groups in bytes.
const VISITED: usize = 1 << 20;
/// The size of a compiled pattern in bytes. A larger one is left to the reference.
const PROGRAM: usize = 4 << 20;
/// Bytes that one rule may read of a text: so many times its length, and these. Beyond them the reference runs.
const READ: (usize, usize) = (4, 4096);

/// What the caller of a scan decides about the spans of a rule.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asks {
    /// Nothing.
    No,
    /// Whether the rule accepts it. Its range is that of the match.
    Accepts,
    /// Which words end it.
    Stops,
    /// Both.
    StopsAndAccepts,
}

/// The caller of a scan.
pub trait Caller {
    /// Why a question has no answer.
    type Error;
    /// The range of the span of the bytes `[begin, last)` of a rule.
    fn ask(&mut self, rule: usize, begin: usize, last: usize) -> Result<Answer, Self::Error>;
    /// Whether `word`, which is ASCII in lower case, ends a span of a rule.
    fn stops(&mut self, rule: usize, word: &str) -> Result<bool, Self::Error>;
}

/// The rule as it is written, for `Rule::compile`.
pub struct Written<'a> {
    /// The pattern with its edges.
    pub pattern: &'a str,
    /// The characters that may not touch the span: letters at the left end, at the right end.
    pub edges: (bool, bool),
    /// Patterns that must match before the span, must not, must match after it, must not.
    pub conditions: [Option<&'a str>; 4],
    /// The rule runs on texts that contain one of these, in lower case.
    pub needs: &'a [String],
    /// What the caller decides about a span.
    pub asks: Asks,
}

/// The automaton could not read the text in its memory. The reference can.
struct Unable;

impl<E: std::error::Error> From<E> for Unable {
    fn from(_: E) -> Self {
        Self
    }
}

/// How far a rule is in a text.
#[derive(Default)]
struct Progress {
    spans: Vec<(usize, usize)>,
    from: usize,
    read: usize,
    needed: Option<bool>,
    left: bool,
}

struct Automaton(DFA);

impl Automaton {
    fn compile(pattern: &str, reverse: bool) -> Option<Self> {
        Self::from_nfa(compile(pattern, reverse, WhichCaptures::None)?)
    }

    fn from_nfa(nfa: NFA) -> Option<Self> {
        let config = DFA::config().cache_capacity(CACHE).skip_cache_capacity_check(true);
        DFA::builder().configure(config).build_from_nfa(nfa).ok().map(Self)
    }

    /// The end of the match that begins at `start`. Adds the bytes read to `read`.
    fn end(
        &self,
        cache: &mut dfa::Cache,
        text: &[u8],
        start: usize,
        read: &mut usize,
    ) -> Result<Option<usize>, Unable> {
        let input = Input::new(text).range(start..).anchored(Anchored::Yes);
        let mut state = self.0.start_state_forward(cache, &input).map_err(Unable::from)?;
        let mut found = None;
        for (at, byte) in text.iter().enumerate().skip(start) {
            state = self.0.next_state(cache, state, *byte).map_err(Unable::from)?;
            if state.is_tagged() {
                if state.is_match() {
                    found = Some(at);
                } else if state.is_dead() {
                    *read += at - start;
                    return Ok(found);
                } else if state.is_quit() {
                    return Err(Unable);
                }
            }
        }
        *read += text.len() - start;
        state = self.0.next_eoi_state(cache, state).map_err(Unable::from)?;
        Ok(if state.is_match() { Some(text.len()) } else { found })
    }

    /// Whether there is a match from the start of `text` on.
    fn begins(&self, cache: &mut dfa::Cache, text: &[u8]) -> Result<bool, Unable> {
        let input = Input::new(text).anchored(Anchored::Yes).earliest(true);
        self.0.try_search_fwd(cache, &input).map(|found| found.is_some()).map_err(Unable::from)
    }

    /// Whether there is a match up to the end of `text`. The automaton is a reverse one.
    fn ends(&self, cache: &mut dfa::Cache, text: &[u8]) -> Result<bool, Unable> {
        let input = Input::new(text).anchored(Anchored::Yes).earliest(true);
        self.0.try_search_rev(cache, &input).map(|found| found.is_some()).map_err(Unable::from)
    }
}

fn compile(pattern: &str, reverse: bool, captures: WhichCaptures) -> Option<NFA> {
    let config = Config::new().utf8(false).reverse(reverse).which_captures(captures).nfa_size_limit(Some(PROGRAM));
    Compiler::new().configure(config).syntax(syntax::Config::new().utf8(false)).build(pattern).ok()
}

/// A compiled rule.
struct Rule {
    automaton: Automaton,
    groups: BoundedBacktracker,
    slots: usize,
    edges: (bool, bool),
    conditions: [Option<Automaton>; 4],
    needs: Vec<Finder<'static>>,
    asks: Asks,
}

impl Rule {
    fn compile(written: &Written) -> Option<Self> {
        let nfa = compile(written.pattern, false, WhichCaptures::All)?;
        let groups = BoundedBacktracker::builder()
            .configure(BoundedBacktracker::config().visited_capacity(VISITED))
            .build_from_nfa(nfa.clone())
            .ok()?;
        let mut conditions = [None, None, None, None];
        for (at, pattern) in written.conditions.iter().enumerate() {
            if let Some(pattern) = pattern {
                conditions[at] = Some(Automaton::compile(pattern, at < 2)?);
            }
        }
        Some(Self {
            slots: nfa.group_info().slot_len(),
            automaton: Automaton::from_nfa(nfa)?,
            groups,
            edges: written.edges,
            conditions,
            needs: written.needs.iter().map(|word| Finder::new(word.as_bytes()).into_owned()).collect(),
            asks: written.asks,
        })
    }

    /// The range of the first group of the match `[start, end)` that took part in it.
    fn group(
        &self,
        cache: &mut Memory,
        text: &[u8],
        start: usize,
        end: usize,
    ) -> Result<Option<(usize, usize)>, Unable> {
        let input = Input::new(text).range(start..end).anchored(Anchored::Yes);
        cache.slots.clear();
        cache.slots.resize(self.slots, None);
        cache.visited.reset(&self.groups);
        self.groups
            .try_search_slots(&mut cache.visited, &input, &mut cache.slots)
            .map_err(Unable::from)?
            .ok_or(Unable)?;
        for pair in cache.slots[2..].chunks_exact(2) {
            if let (Some(begin), Some(last)) = (pair[0], pair[1]) {
                return Ok(Some((begin.get(), last.get())));
            }
        }
        Ok(None)
    }

    /// The span of the match that begins at `start`.
    fn find(
        &self,
        memory: &mut Memory,
        number: usize,
        text: &[u8],
        start: usize,
        read: &mut usize,
    ) -> Result<Option<(usize, usize)>, Unable> {
        let cache = memory.caches[number][0].get_or_insert_with(|| self.automaton.0.create_cache());
        let Some(end) = self.automaton.end(cache, text, start, read)? else { return Ok(None) };
        Ok(self.group(memory, text, start, end)?.filter(|(begin, last)| begin < last))
    }

    /// Whether the bytes around `[begin, last)` meet the conditions in `part`.
    fn holds(
        &self,
        caches: &mut [Option<dfa::Cache>; 5],
        part: Range<usize>,
        text: &[u8],
        begin: usize,
        last: usize,
    ) -> Result<bool, Unable> {
        let before = &text[begin.saturating_sub(WINDOW)..begin];
        let after = &text[last..text.len().min(last + WINDOW)];
        for at in part {
            if let Some(automaton) = &self.conditions[at] {
                let cache = caches[at + 1].get_or_insert_with(|| automaton.0.create_cache());
                let found = if at < 2 { automaton.ends(cache, before)? } else { automaton.begins(cache, after)? };
                if found != at.is_multiple_of(2) {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// The end of a span in ASCII before its first stop word, without the blanks and commas before it. A capital letter with
/// a full stop is an initial if the next word is no stop word.
fn end_before_stop_word<E>(
    text: &[u8],
    begin: usize,
    last: usize,
    mut stops: impl FnMut(&str) -> Result<bool, E>,
) -> Result<usize, E> {
    let ends = |byte: u8| is_space(byte) || matches!(byte, b',' | b';' | b'/' | b'(' | b')');
    let mut word_from = |from: usize| -> Result<Option<(usize, usize, bool)>, E> {
        let Some(start) = (from..last).find(|at| !ends(text[*at])) else { return Ok(None) };
        let end = (start..last).find(|at| ends(text[*at])).unwrap_or(last);
        let word = String::from_utf8_lossy(&text[start..end]).to_ascii_lowercase();
        Ok(Some((start, end, stops(word.trim_matches(['.', '\'', ':', '&']))?)))
    };
    let mut found = word_from(begin)?;
    while let Some((start, end, is_stop)) = found {
        let next = word_from(end)?;
        if is_stop {
            let named = next.is_some_and(|(_, _, is_stop)| !is_stop);
            let initial = text[start].is_ascii_uppercase()
                && text.get(start + 1) == Some(&b'.')
                && text.get(start + 2).is_some_and(|byte| is_space(*byte) || *byte == b'-');
            if !(named && initial) {
                let is_gap = |byte: &u8| b" ,;/(\t\r\n-".contains(byte);
                return Ok(start - text[begin..start].iter().rev().take_while(|byte| is_gap(byte)).count());
            }
        }
        found = next;
    }
    Ok(last)
}

/// Sets of rules by position and pair of symbols: the rules for which a match may have them there. A rule that lists many
/// words has all their letters at each position, but few pairs of them.
struct Pairs {
    words: usize,
    sets: Vec<u64>,
}

impl Pairs {
    fn new(rules: &[Option<Rule>]) -> Self {
        let words = rules.len().div_ceil(64).max(1);
        let mut pairs = Self { words, sets: vec![0; (HEAD - 1) * KINDS * KINDS * words] };
        for (number, rule) in rules.iter().enumerate() {
            let Some(rule) = rule else { continue };
            let (word, bit) = (number / 64, 1u64 << (number % 64));
            for (place, after) in head_pairs(rule.groups.get_nfa()).iter().enumerate() {
                for (symbol, follows) in after.iter().enumerate() {
                    for (kind, _) in follows.iter().enumerate().filter(|(_, possible)| **possible) {
                        pairs.sets[((symbol * KINDS + kind) * (HEAD - 1) + place) * words + word] |= bit;
                    }
                }
            }
        }
        pairs
    }

    /// Writes the rules that may match from the first of `kinds` on.
    fn possible(&self, kinds: &[u8; HEAD], found: &mut [u64]) {
        found.fill(!0);
        for (place, pair) in kinds.windows(2).enumerate() {
            let at = (usize::from(pair[0]) * KINDS + usize::from(pair[1])) * (HEAD - 1) + place;
            let mut any = 0;
            for (found, set) in found.iter_mut().zip(&self.sets[at * self.words..][..self.words]) {
                *found &= set;
                any |= *found;
            }
            if any == 0 {
                return;
            }
        }
    }
}

/// The kind of a symbol: the bytes of ASCII, other bytes, the end.
fn kind(symbol: usize) -> u8 {
    match symbol {
        END => 129,
        0..128 => symbol as u8,
        _ => 128,
    }
}

/// Kinds of symbols.
const KINDS: usize = 130;

type Follows = [bool; KINDS];

/// For each of the first positions of a match but the last the kinds that may follow each kind.
fn head_pairs(nfa: &NFA) -> Vec<Vec<Follows>> {
    let mut found = vec![vec![[false; KINDS]; KINDS]; HEAD - 1];
    let mut known: Vec<Option<Box<Follows>>> = vec![None; nfa.states().len()];
    let mut states = vec![nfa.start_anchored()];
    for place in 0..HEAD - 1 {
        let (steps, ends) = steps(nfa, &states, false);
        if ends {
            found[place..].iter_mut().flatten().for_each(|follows| follows.fill(true));
            break;
        }
        let mut next = Vec::with_capacity(steps.len());
        for (low, high, to) in steps {
            let follows = known[to.as_usize()].get_or_insert_with(|| {
                let mut follows = Box::new([false; KINDS]);
                let (steps, ends) = self::steps(nfa, &[to], false);
                for (low, high, _) in steps {
                    follows[usize::from(kind(usize::from(low)))..=usize::from(kind(usize::from(high)))].fill(true);
                }
                if ends {
                    follows.fill(true);
                }
                follows
            });
            for own in &mut found[place][usize::from(kind(usize::from(low)))..=usize::from(kind(usize::from(high)))] {
                own.iter_mut().zip(follows.iter()).for_each(|(own, other)| *own |= other);
            }
            next.push(to);
        }
        next.sort_unstable();
        next.dedup();
        states = next;
    }
    found
}

/// The ranges of bytes by which the states go on, with the states after them, and whether a match may end there. At the
/// start of a text `first` is true.
fn steps(nfa: &NFA, states: &[StateID], first: bool) -> (Vec<(u8, u8, StateID)>, bool) {
    let mut found = Vec::new();
    let mut ends = false;
    let mut seen = std::collections::HashSet::new();
    let mut open = states.to_vec();
    while let Some(state) = open.pop() {
        if !seen.insert(state) {
            continue;
        }
        match nfa.state(state) {
            State::ByteRange { trans } => found.push((trans.start, trans.end, trans.next)),
            State::Sparse(sparse) => found.extend(sparse.transitions.iter().map(|t| (t.start, t.end, t.next))),
            State::Dense(dense) => found.extend(
                (0..=255u8)
                    .map(|byte| (byte, byte, dense.transitions[usize::from(byte)]))
                    .filter(|step| step.2 != StateID::ZERO),
            ),
            State::Look { look: Look::Start, .. } if !first => {}
            State::Look { next, .. } | State::Capture { next, .. } => open.push(*next),
            State::Union { alternates } => open.extend_from_slice(alternates),
            State::BinaryUnion { alt1, alt2 } => open.extend([*alt1, *alt2]),
            State::Fail => {}
            State::Match { .. } => ends = true,
        }
    }
    (found, ends)
}

/// The rules that may match at the start of a text, by its first symbol.
struct Starts {
    words: usize,
    sets: Vec<u64>,
}

impl Starts {
    fn new(rules: &[Option<Rule>]) -> Self {
        let words = rules.len().div_ceil(64).max(1);
        let mut starts = Self { words, sets: vec![0; KINDS * words] };
        for (number, rule) in rules.iter().enumerate() {
            let Some(rule) = rule else { continue };
            let nfa = rule.groups.get_nfa();
            let (steps, ends) = steps(nfa, &[nfa.start_anchored()], true);
            let mut add = |kind: usize| starts.sets[kind * words + number / 64] |= 1u64 << (number % 64);
            for (low, high, _) in steps {
                (kind(usize::from(low))..=kind(usize::from(high))).for_each(|kind| add(usize::from(kind)));
            }
            if ends {
                (0..KINDS).for_each(add);
            }
        }
        starts
    }
}

/// The memory of a scan.
pub struct Memory {
    caches: Vec<[Option<dfa::Cache>; 5]>,
    visited: backtrack::Cache,
    slots: Vec<Option<regex_automata::util::primitives::NonMaxUsize>>,
    candidates: Vec<Vec<usize>>,
}

/// The answer of the caller about a span: refused, or its range in characters and the byte at its end.
pub type Answer = Option<(usize, usize, usize)>;

/// What a scan found.
#[derive(Default)]
pub struct Found {
    /// The rule and the range in characters of each span, by rule and position.
    pub spans: Vec<(usize, usize, usize)>,
    /// Rules that have to be run by the reference.
    pub left: Vec<usize>,
}

/// Compiled rules. A rule that does not compile is left to the reference.
pub struct Scanner {
    rules: Vec<Option<Rule>>,
    pairs: Pairs,
    starts: Starts,
}

impl Scanner {
    /// The scanner of these rules.
    pub fn new(written: &[Written]) -> Self {
        let rules: Vec<_> = written.iter().map(Rule::compile).collect();
        Self { pairs: Pairs::new(&rules), starts: Starts::new(&rules), rules }
    }

    /// The rules that do not compile.
    pub fn left(&self) -> Vec<usize> {
        (0..self.rules.len()).filter(|at| self.rules[*at].is_none()).collect()
    }

    /// All rules.
    pub fn all(&self) -> Vec<usize> {
        (0..self.rules.len()).collect()
    }

    /// Memory for one scan at a time.
    pub fn memory(&self) -> Memory {
        Memory {
            caches: self.rules.iter().map(|_| [None, None, None, None, None]).collect(),
            visited: backtrack::Cache::new(&BoundedBacktracker::always_match().expect("a pattern without states")),
            slots: Vec::new(),
            candidates: vec![Vec::new(); self.rules.len()],
        }
    }

    /// The spans of all rules in `text`; `lower` is the text in lower case. `ask` decides about a span of a rule that
    /// asks, or that a letter beyond ASCII touches.
    pub fn scan<C: Caller>(
        &self,
        memory: &mut Memory,
        text: &str,
        lower: &[u8],
        caller: &mut C,
    ) -> Result<Found, C::Error> {
        let wide = Wide::new(text);
        let text = text.as_bytes();
        let mut states: Vec<_> = self.rules.iter().map(|_| Progress::default()).collect();
        for block in (0..text.len()).step_by(BLOCK) {
            self.collect(memory, text, block..text.len().min(block + BLOCK));
            for (number, (rule, state)) in self.rules.iter().zip(&mut states).enumerate() {
                let Some(rule) = rule else { continue };
                if memory.candidates[number].is_empty() || state.left {
                    continue;
                }
                let needed = || rule.needs.is_empty() || rule.needs.iter().any(|word| word.find(lower).is_some());
                if *state.needed.get_or_insert_with(needed) {
                    let candidates = std::mem::take(&mut memory.candidates[number]);
                    let done = self.run(rule, number, memory, text, &wide, &candidates, state, caller)?;
                    state.left = done.is_err();
                    memory.candidates[number] = candidates;
                }
            }
        }
        let mut found = Found::default();
        for (number, (rule, state)) in self.rules.iter().zip(states).enumerate() {
            if rule.is_none() || state.left {
                found.left.push(number);
            } else {
                found.spans.extend(state.spans.into_iter().map(|(first, after)| (number, first, after)));
            }
        }
        Ok(found)
    }

    /// Writes the positions of `part` from which each rule may match.
    fn collect(&self, memory: &mut Memory, text: &[u8], part: Range<usize>) {
        memory.candidates.iter_mut().for_each(Vec::clear);
        let mut found = vec![0; self.pairs.words];
        let kind_at = |at: usize| kind(text.get(at).map_or(END, |byte| usize::from(*byte)));
        let mut kinds: [u8; HEAD] = std::array::from_fn(|place| kind_at(part.start + place));
        for at in part {
            if at == 0 {
                let first = usize::from(kinds[0]) * self.starts.words;
                found.copy_from_slice(&self.starts.sets[first..][..self.starts.words]);
            } else {
                self.pairs.possible(&kinds, &mut found);
            }
            for (word, set) in found.iter().enumerate() {
                let mut possible = *set;
                while possible != 0 {
                    memory.candidates[word * 64 + possible.trailing_zeros() as usize].push(at);
                    possible &= possible - 1;
                }
            }
            kinds.copy_within(1.., 0);
            kinds[HEAD - 1] = kind_at(at + HEAD);
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn run<C: Caller>(
        &self,
        rule: &Rule,
        number: usize,
        memory: &mut Memory,
        text: &[u8],
        wide: &Wide,
        candidates: &[usize],
        state: &mut Progress,
        caller: &mut C,
    ) -> Result<Result<(), Unable>, C::Error> {
        for start in candidates.iter().copied() {
            if start < state.from {
                continue;
            }
            if state.read > READ.0 * text.len() + READ.1 {
                return Ok(Err(Unable));
            }
            let (begin, last) = match rule.find(memory, number, text, start, &mut state.read) {
                Ok(Some(range)) => range,
                Ok(None) => continue,
                Err(unable) => return Ok(Err(unable)),
            };
            let touched = (rule.edges.0 && begin > 0 && text[begin - 1] >= 0x80)
                || (rule.edges.1 && text.get(last).is_some_and(|byte| *byte >= 0x80));
            let has_stops = matches!(rule.asks, Asks::Stops | Asks::StopsAndAccepts);
            match rule.holds(&mut memory.caches[number], 0..if has_stops { 2 } else { 4 }, text, begin, last) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(unable) => return Ok(Err(unable)),
            }
            let mut last = last;
            let stops_here = has_stops && wide.0.is_empty();
            if stops_here {
                let end = end_before_stop_word(text, begin, last, |word| caller.stops(number, word))?;
                if end <= begin {
                    continue;
                }
                if rule.asks == Asks::Stops {
                    last = end;
                    match rule.holds(&mut memory.caches[number], 2..4, text, begin, last) {
                        Ok(true) => {}
                        Ok(false) => continue,
                        Err(unable) => return Ok(Err(unable)),
                    }
                }
            }
            let decides = rule.asks == Asks::No || (rule.asks == Asks::Stops && stops_here);
            let answer = if !decides || touched {
                caller.ask(number, begin, last)?
            } else {
                Some((wide.char(begin), wide.char(last), last))
            };
            if let Some((first, after, byte)) = answer {
                state.spans.push((first, after));
                state.from = byte;
            }
        }
        Ok(Ok(()))
    }
}

/// The bytes of a text that do not begin a character.
struct Wide(Vec<usize>);

impl Wide {
    fn new(text: &str) -> Self {
        if text.is_ascii() {
            return Self(Vec::new());
        }
        Self((0..text.len()).filter(|at| !text.is_char_boundary(*at)).collect())
    }

    /// The character that begins at `byte`.
    fn char(&self, byte: usize) -> usize {
        byte - self.0.partition_point(|at| *at < byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(text: &str) -> usize {
        let stops = |word: &str| Ok::<_, ()>(matches!(word, "i" | "seen" | "and"));
        end_before_stop_word(text.as_bytes(), 0, text.len(), stops).unwrap_or(usize::MAX)
    }

    #[test]
    fn a_span_ends_before_its_first_stop_word() {
        for (text, expected) in [
            ("Ada Okafor", 10),
            ("Ada, Seen", 3),
            ("Ada\x1cOkafor/and", 10),
            ("seen Ada", 0),
            ("I. Vane", 7),
            ("I. and", 0),
            ("Ada I.", 3),
            (" ,", 2),
            ("", 0),
        ] {
            assert_eq!(end(text), expected, "{text}");
        }
    }

    #[test]
    fn pairs_of_symbols_come_from_words_of_a_list() {
        let nfa = compile("(?:ab|cd)e|f$", false, WhichCaptures::None).map(|nfa| head_pairs(&nfa));
        let found = nfa.unwrap_or_default();
        let may = |place: usize, pair: &[u8; 2]| found[place][usize::from(pair[0])][usize::from(pair[1])];
        assert!(may(0, b"ab") && may(0, b"cd") && may(0, b"fx") && !may(0, b"ad") && !may(0, b"cb"));
        assert!(may(1, b"xe"), "a match may have ended");
    }
}
