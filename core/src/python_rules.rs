//! Rules and the features of words as classes of Python.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyFrozenSet, PyString};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::arguments::wrong;
use crate::scan::{Answer, Asks, Caller, Memory, Scanner, Written};
use crate::words;

type Conditions = (Option<String>, Option<String>, Option<String>, Option<String>);
type WrittenRule = (String, (bool, bool), Conditions, Vec<String>, bool, Option<Py<PyFrozenSet>>);
type Spans = Vec<(usize, usize, usize)>;

/// Python, which decides about spans.
struct Asked<'a, 'py> {
    ask: &'a Bound<'py, PyAny>,
    stops: &'a [Option<Py<PyFrozenSet>>],
}

impl Caller for Asked<'_, '_> {
    type Error = PyErr;

    fn ask(&mut self, rule: usize, begin: usize, last: usize) -> PyResult<Answer> {
        self.ask.call1((rule, begin, last))?.extract()
    }

    fn stops(&mut self, rule: usize, word: &str) -> PyResult<bool> {
        match &self.stops[rule] {
            Some(words) => words.bind(self.ask.py()).contains(word),
            None => Ok(false),
        }
    }
}

/// Rules that are searched together.
#[pyclass(frozen, module = "deid_agent_core")]
pub struct RuleScanner {
    scanner: Scanner,
    stops: Vec<Option<Py<PyFrozenSet>>>,
    free: Mutex<Vec<Memory>>,
}

#[pymethods]
impl RuleScanner {
    /// Each rule has its pattern, whether letters may not touch its left and right end, its four conditions, the words
    /// that it needs, whether `ask` decides, and the words that end its spans.
    #[new]
    fn new(rules: Vec<WrittenRule>) -> Self {
        let written: Vec<_> = rules
            .iter()
            .map(|(pattern, edges, (before, not_before, after, not_after), needs, asks, stop)| Written {
                pattern,
                edges: *edges,
                conditions: [before.as_deref(), not_before.as_deref(), after.as_deref(), not_after.as_deref()],
                needs,
                asks: match (stop.is_some(), *asks) {
                    (false, false) => Asks::No,
                    (false, true) => Asks::Accepts,
                    (true, false) => Asks::Stops,
                    (true, true) => Asks::StopsAndAccepts,
                },
            })
            .collect();
        let scanner = Scanner::new(&written);
        let stops = rules.into_iter().map(|rule| rule.5).collect();
        Self { scanner, stops, free: Mutex::new(Vec::new()) }
    }

    /// The rules that do not compile.
    fn left(&self) -> Vec<usize> {
        self.scanner.left()
    }

    /// `(rule, start, end)` of each span in characters, and the rules that the reference has to run.
    ///
    /// `text` is UTF-8, else the reference has to run all of them; `lower` the text in lower case. `ask(rule, first, last)` gets a range of bytes and returns None,
    /// or the range in characters and the byte at its end.
    fn find(
        &self,
        text: &Bound<'_, PyBytes>,
        lower: &Bound<'_, PyBytes>,
        ask: &Bound<'_, PyAny>,
    ) -> PyResult<(Spans, Vec<usize>)> {
        let Ok(read) = std::str::from_utf8(text.as_bytes()) else { return Ok((Vec::new(), self.scanner.all())) };
        let taken = self.free.lock().ok().and_then(|mut free| free.pop());
        let mut memory = taken.unwrap_or_else(|| self.scanner.memory());
        let mut caller = Asked { ask, stops: &self.stops };
        let work = || self.scanner.scan(&mut memory, read, lower.as_bytes(), &mut caller);
        let found = catch_unwind(AssertUnwindSafe(work)).map_err(|_| PyRuntimeError::new_err("internal error"))?;
        if let Ok(mut free) = self.free.lock() {
            free.push(memory);
        }
        found.map(|found| (found.spans, found.left))
    }
}

/// The numbers of features of words.
#[pyclass(frozen, module = "deid_agent_core")]
pub struct WordRows(words::WordRows);

#[pymethods]
impl WordRows {
    /// The features by name, with the number of each known value.
    #[new]
    fn new(features: Vec<(String, Bound<'_, PyDict>)>) -> PyResult<Self> {
        let mut read = Vec::with_capacity(features.len());
        for (name, numbers) in features {
            let mut values = Vec::with_capacity(numbers.len());
            for (value, number) in numbers {
                // A lone surrogate is no value of a word in ASCII.
                if let Ok(value) = value.extract::<String>() {
                    values.push((value, number.extract()?));
                }
            }
            read.push((name, values));
        }
        words::WordRows::new(read).map(Self).ok_or_else(|| wrong("features"))
    }

    /// The number of each feature of `word`, 0 for an unknown value, in 32 bits. None if the word is not ASCII.
    fn row<'py>(&self, py: Python<'py>, word: &Bound<'py, PyString>) -> Option<Bound<'py, PyBytes>> {
        let row = self.0.row(word.to_str().ok()?)?;
        let bytes: Vec<u8> = row.iter().flat_map(|number| number.to_ne_bytes()).collect();
        Some(PyBytes::new(py, &bytes))
    }
}
