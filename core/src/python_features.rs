//! Features of tokens as numbers, as classes of Python.
//!
//! What depends on the word or the lists alone is kept from one text to the next, in tables that are bounded. A table is
//! taken while it is used: Python is asked meanwhile, and another thread gets a table of its own.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyMapping, PyString, PyTuple};

use crate::arguments::{require, wrong};
use crate::context::{self, Context, Numbers};
use crate::view::{Mark, NONE, Range, Span, Speakers, View};
use crate::words;

/// A table with more rows is emptied before the next text.
const MOST_ROWS: usize = 32_768;

fn ranged(start: usize, end: usize) -> Range {
    Range { start, end }
}

/// A text in ASCII, its tokens, and what the first pass found.
#[pyclass(frozen, module = "deid_agent_core")]
pub struct TextView {
    view: View,
    tags: Py<PyTuple>,
}

#[pymethods]
impl TextView {
    /// `spans` are `(start, end, type, source)`, `marks` `(start, end, kind, is hard)`, `speakers` the places where words
    /// begin lines and the words; `tags` has the lists of each token.
    #[new]
    fn new(
        py: Python,
        text: &str,
        spans: Vec<(usize, usize, String, String)>,
        marks: Vec<(usize, usize, String, bool)>,
        speakers: Option<(Vec<usize>, HashSet<String>)>,
        tags: Py<PyTuple>,
    ) -> PyResult<Self> {
        require(text.is_ascii() && u32::try_from(text.len()).is_ok(), "text")?;
        let inside = |(start, end): (usize, usize)| start < end && end <= text.len();
        require(spans.iter().all(|span| inside((span.0, span.1))), "spans")?;
        require(marks.iter().all(|mark| inside((mark.0, mark.1))), "marks")?;
        let spans = spans.into_iter().map(|(a, b, kind, source)| Span { range: ranged(a, b), kind, source }).collect();
        let marks = marks.into_iter().map(|(a, b, kind, hard)| Mark { range: ranged(a, b), kind, hard }).collect();
        let speakers = speakers.map(|(turns, names)| Speakers { turns, names });
        let view = View::new(text, spans, marks, speakers);
        require(tags.bind(py).len() == view.tokens.len(), "tags")?;
        Ok(Self { view, tags })
    }

    fn __len__(&self) -> usize {
        self.view.tokens.len()
    }

    /// The tokens that follow an empty line.
    fn paragraph_starts(&self) -> Vec<usize> {
        self.view.paragraph_starts()
    }

    /// The sizes of the paragraphs, which are divided if they have more than `most` tokens.
    fn split(&self, most: usize) -> PyResult<Vec<usize>> {
        require(most > 0, "most")?;
        Ok(self.view.split(most))
    }

    /// A byte for each token: 2 inside a hard mark, 1 inside another mark, else 0.
    fn marked<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let marks = &self.view.marks;
        let code = |mark: &u32| marks.get(*mark as usize).map_or(0, |mark| if mark.hard { 2 } else { 1 });
        PyBytes::new(py, &self.view.mark.iter().map(code).collect::<Vec<u8>>())
    }
}

/// Where the numbers of a feature are.
enum Place {
    Word(usize),
    Before(usize),
    Tags(usize),
    TagsBefore(usize),
    Context(Context, Numbers),
}

/// Rows of numbers by word.
#[derive(Default)]
struct WordTable {
    rows: HashMap<Box<[u8]>, u32>,
    numbers: Vec<i32>,
}

impl WordTable {
    /// The row of each distinct word of a text. `compute` writes the numbers of a new word.
    fn rows(
        &mut self,
        view: &View,
        width: usize,
        mut compute: impl FnMut(&[u8], &mut Vec<i32>) -> PyResult<()>,
    ) -> PyResult<Vec<u32>> {
        let mut found = Vec::with_capacity(view.distinct.len());
        for token in &view.distinct {
            let word = view.word(*token as usize);
            let row = match self.rows.get(word) {
                Some(row) => *row,
                None => {
                    let row = self.rows.len() as u32;
                    compute(word, &mut self.numbers)?;
                    require(self.numbers.len() == (row as usize + 1) * width, "rows")?;
                    self.rows.insert(word.into(), row);
                    row
                }
            };
            found.push(row);
        }
        Ok(found)
    }

    fn clear_if_full(&mut self) {
        if self.rows.len() > MOST_ROWS {
            *self = Self::default();
        }
    }
}

/// What is kept from one text to the next.
struct Tables {
    words: WordTable,
    senses: Py<PyAny>,
    tags: Py<PyDict>,
    tag_numbers: Vec<i32>,
    cues: Vec<String>,
}

impl Tables {
    fn new(py: Python, senses: &Bound<PyAny>) -> Self {
        Self {
            words: WordTable::default(),
            senses: senses.clone().unbind(),
            tags: PyDict::new(py).unbind(),
            tag_numbers: Vec::new(),
            cues: Vec::new(),
        }
    }
}

/// The numbers of the features of a model.
#[pyclass(frozen, module = "deid_agent_core")]
pub struct FeatureReader {
    places: Vec<Place>,
    word: words::WordRows,
    word_width: usize,
    senses: Vec<(usize, Numbers)>,
    tag_width: usize,
    read_tags: Py<PyAny>,
    free: Mutex<Vec<Tables>>,
}

fn read_numbers(numbers: &Bound<PyDict>) -> PyResult<Vec<(String, i32)>> {
    let mut values = Vec::with_capacity(numbers.len());
    for (value, number) in numbers {
        // A lone surrogate is in no text of ASCII.
        if let Ok(value) = value.extract::<String>() {
            values.push((value, number.extract()?));
        }
    }
    Ok(values)
}

#[pymethods]
impl FeatureReader {
    /// The features in order, each with its name, its group (`word`, `word before`, `sense`, `tags`, `tags before`,
    /// `context`), its place among the values of a sense, and the number of each known value.
    ///
    /// `read_tags` returns the numbers of the features of a set of lists, and the kinds of context that it is a cue for.
    #[new]
    fn new(features: Vec<(String, String, usize, Bound<'_, PyDict>)>, read_tags: Py<PyAny>) -> PyResult<Self> {
        let (mut places, mut of_words, mut senses) = (Vec::new(), Vec::new(), Vec::new());
        let mut tag_width = 0;
        let words = features.iter().filter(|feature| feature.1.starts_with("word")).count();
        for (name, group, at, numbers) in features {
            let numbers = || read_numbers(&numbers);
            match group.as_str() {
                "word" | "word before" => {
                    require(words::is_feature(&name), "features")?;
                    let place = of_words.len();
                    places.push(if group == "word" { Place::Word(place) } else { Place::Before(place) });
                    of_words.push((name, numbers()?));
                }
                "sense" => {
                    places.push(Place::Word(words + senses.len()));
                    senses.push((at, Numbers::new(numbers()?)));
                }
                "tags" | "tags before" => {
                    places.push(if group == "tags" { Place::Tags(tag_width) } else { Place::TagsBefore(tag_width) });
                    tag_width += 1;
                }
                "context" => {
                    let context = Context::named(&name).ok_or_else(|| wrong("features"))?;
                    places.push(Place::Context(context, Numbers::new(numbers()?)));
                }
                _ => return Err(wrong("features")),
            }
        }
        let word = words::WordRows::new(of_words).ok_or_else(|| wrong("features"))?;
        let word_width = words + senses.len();
        Ok(Self { places, word, word_width, senses, tag_width, read_tags, free: Mutex::new(Vec::new()) })
    }

    /// The number of each feature of each token, in 32 bits: `[feature, token]`, or `[token, feature]` with `by_token`.
    /// `senses` has the sense of each word.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        text: &TextView,
        senses: &Bound<'py, PyMapping>,
        by_token: bool,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let taken = self.free.lock().ok().and_then(|mut free| free.pop());
        let mut tables = taken
            .filter(|tables| tables.senses.is(senses) && tables.cues.len() <= MOST_ROWS)
            .unwrap_or_else(|| Tables::new(py, senses.as_any()));
        tables.words.clear_if_full();
        // Written in place: the numbers of a long text are much larger than the text.
        let size = size_of::<i32>() * self.places.len() * text.view.tokens.len();
        let found = PyBytes::new_with(py, size, |out| self.fill(py, &mut tables, text, senses, by_token, out))?;
        if let Ok(mut free) = self.free.lock() {
            free.push(tables);
        }
        Ok(found)
    }
}

impl FeatureReader {
    fn fill(
        &self,
        py: Python,
        tables: &mut Tables,
        text: &TextView,
        senses: &Bound<PyMapping>,
        by_token: bool,
        out: &mut [u8],
    ) -> PyResult<()> {
        let view = &text.view;
        let rows = tables.words.rows(view, self.word_width, |word, numbers| {
            numbers.extend(self.word.row_of(word));
            self.add_senses(word, senses, numbers)
        })?;
        let tags = self.number_tags(py, tables, text)?;
        let words = &tables.words.numbers;
        let size = view.tokens.len();
        let count = self.places.len();
        let cues: Vec<&str> = tags.iter().map(|tag| tables.cues[*tag as usize].as_str()).collect();
        for (feature, place) in self.places.iter().enumerate() {
            let (first, step) = if by_token { (feature, count) } else { (feature * size, 1) };
            let of_word =
                |token: usize, at: usize| words[rows[view.words[token] as usize] as usize * self.word_width + at];
            let of_tags = |token: usize, at: usize| tables.tag_numbers[tags[token] as usize * self.tag_width + at];
            let mut write = |number: &dyn Fn(usize) -> i32| {
                for token in 0..size {
                    let at = size_of::<i32>() * (first + token * step);
                    out[at..][..size_of::<i32>()].copy_from_slice(&number(token).to_ne_bytes());
                }
            };
            let before = |token: usize, number: &dyn Fn(usize) -> i32| match view.previous[token] {
                NONE => 0,
                other => number(other as usize),
            };
            match place {
                Place::Word(at) => write(&|token| of_word(token, *at)),
                Place::Before(at) => write(&|token| before(token, &|token| of_word(token, *at))),
                Place::Tags(at) => write(&|token| of_tags(token, *at)),
                Place::TagsBefore(at) => write(&|token| before(token, &|token| of_tags(token, *at))),
                Place::Context(feature, numbers) => {
                    let found = context::encode(view, *feature, &cues, numbers);
                    write(&|token| found[token]);
                }
            }
        }
        Ok(())
    }

    fn add_senses(&self, word: &[u8], senses: &Bound<PyMapping>, numbers: &mut Vec<i32>) -> PyResult<()> {
        if self.senses.is_empty() {
            return Ok(());
        }
        let low = String::from_utf8_lossy(word).to_ascii_lowercase();
        let sense = senses.call_method1("get", (low,))?;
        if sense.is_none() {
            numbers.extend(self.senses.iter().map(|(_, known)| known.of(b"")));
            return Ok(());
        }
        let sense = sense.cast::<PyTuple>()?.clone();
        for (at, known) in &self.senses {
            let value = sense.get_item(*at)?;
            numbers.push(known.of(value.cast::<PyString>()?.to_str().unwrap_or("").as_bytes()));
        }
        Ok(())
    }

    /// The number of the set of lists of each token.
    fn number_tags(&self, py: Python, tables: &mut Tables, text: &TextView) -> PyResult<Vec<u32>> {
        let known = tables.tags.bind(py).clone();
        let mut own: HashMap<usize, u32> = HashMap::new();
        let mut found = Vec::with_capacity(text.view.tokens.len());
        for tags in text.tags.bind(py) {
            let address = tags.as_ptr() as usize;
            let number = match own.get(&address) {
                Some(number) => *number,
                None => {
                    let number = match known.get_item(&tags)? {
                        Some(number) => number.extract()?,
                        None => self.add_tags(py, tables, &tags)?,
                    };
                    own.insert(address, number);
                    number
                }
            };
            found.push(number);
        }
        Ok(found)
    }

    fn add_tags(&self, py: Python, tables: &mut Tables, tags: &Bound<PyAny>) -> PyResult<u32> {
        let (numbers, cue): (Vec<i32>, String) = self.read_tags.bind(py).call1((tags,))?.extract()?;
        require(numbers.len() == self.tag_width, "rows")?;
        let number = tables.cues.len() as u32;
        tables.tag_numbers.extend(numbers);
        tables.cues.push(cue);
        tables.tags.bind(py).set_item(tags, number)?;
        Ok(number)
    }
}

/// The rows of words in the tables of a network.
#[pyclass(frozen, module = "deid_agent_core")]
pub struct WordReader {
    words: Py<PyDict>,
    published: Option<Py<PyMapping>>,
    characters: Vec<i32>,
    most: usize,
    free: Mutex<Vec<WordTable>>,
}

/// The row of a word or character without a row of its own.
const UNKNOWN: i32 = 1;

#[pymethods]
impl WordReader {
    /// The rows of the learned words, of the published ones, and of characters; `most` characters of a word are read.
    #[new]
    fn new(
        words: Py<PyDict>,
        published: Option<Py<PyMapping>>,
        characters: Bound<'_, PyDict>,
        most: usize,
    ) -> PyResult<Self> {
        require(most > 1 && most.is_multiple_of(2), "most")?;
        let mut of_ascii = vec![UNKNOWN; 128];
        for (text, row) in read_numbers(&characters)? {
            if let [byte @ 0..128] = *text.as_bytes() {
                require(row > 0, "characters")?;
                of_ascii[usize::from(byte)] = row;
            }
        }
        Ok(Self { words, published, characters: of_ascii, most, free: Mutex::new(Vec::new()) })
    }

    /// For each distinct word of the texts its learned row, its published row and the rows of its characters, in 64 bits
    /// `[number, word]`, and for each token the index of its word in 64 bits.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        texts: Bound<'py, PyList>,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let mut table = self.free.lock().ok().and_then(|mut free| free.pop()).unwrap_or_default();
        table.clear_if_full();
        let width = 2 + self.most;
        let mut places: HashMap<u32, i64> = HashMap::new();
        let (mut own, mut index) = (Vec::new(), Vec::new());
        for text in texts {
            let text = text.cast_into::<TextView>()?;
            let view = &text.get().view;
            let rows = table.rows(view, width, |word, numbers| self.read(py, word, numbers))?;
            let of_text: Vec<i64> = rows
                .into_iter()
                .map(|row| {
                    *places.entry(row).or_insert_with(|| {
                        own.push(row);
                        own.len() as i64 - 1
                    })
                })
                .collect();
            index.extend(view.words.iter().flat_map(|word| of_text[*word as usize].to_ne_bytes()));
        }
        let mut words = Vec::with_capacity(own.len() * width * 8);
        for at in 0..width {
            for row in &own {
                words.extend(i64::from(table.numbers[*row as usize * width + at]).to_ne_bytes());
            }
        }
        if let Ok(mut free) = self.free.lock() {
            free.push(table);
        }
        Ok((PyBytes::new(py, &words), PyBytes::new(py, &index)))
    }
}

impl WordReader {
    fn read(&self, py: Python, word: &[u8], numbers: &mut Vec<i32>) -> PyResult<()> {
        let low = String::from_utf8_lossy(word).to_ascii_lowercase();
        let is_number = low.len() > 2 && word.iter().all(u8::is_ascii_digit);
        let learned = match is_number {
            true => self.words.bind(py).get_item("0".repeat(low.len().min(8)))?,
            false => self.words.bind(py).get_item(&low)?,
        };
        numbers.push(learned.map_or(Ok(UNKNOWN), |row| row.extract())?);
        numbers.push(match &self.published {
            None => 0,
            Some(rows) => rows.bind(py).call_method1("get", (low, 0))?.extract()?,
        });
        let half = self.most / 2;
        let row = |byte: &u8| self.characters[usize::from(*byte & 0x7f)];
        if word.len() > self.most {
            numbers.extend(word[..half].iter().chain(&word[word.len() - half..]).map(row));
        } else {
            numbers.extend(word.iter().map(row));
            numbers.extend(std::iter::repeat_n(0, self.most - word.len()));
        }
        Ok(())
    }
}
