//! The rules as a class of Python.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;

use crate::scan::{Answer, Memory, Scanner, Written};

type Conditions = (Option<String>, Option<String>, Option<String>, Option<String>);
type WrittenRule = (String, (bool, bool), Conditions, Vec<String>, bool);
type Spans = Vec<(usize, usize, usize)>;

/// Rules that are searched together.
#[pyclass(frozen, module = "deid_agent_core")]
pub struct RuleScanner {
    scanner: Scanner,
    free: Mutex<Vec<Memory>>,
}

#[pymethods]
impl RuleScanner {
    /// Each rule has its pattern, whether letters may not touch its left and right end, its four conditions, the words
    /// that it needs, and whether `ask` decides.
    #[new]
    fn new(rules: Vec<WrittenRule>) -> Self {
        let written: Vec<_> = rules
            .iter()
            .map(|(pattern, edges, (before, not_before, after, not_after), needs, asks)| Written {
                pattern,
                edges: *edges,
                conditions: [before.as_deref(), not_before.as_deref(), after.as_deref(), not_after.as_deref()],
                needs,
                asks: *asks,
            })
            .collect();
        Self { scanner: Scanner::new(&written), free: Mutex::new(Vec::new()) }
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
        let asked = |rule: usize, first: usize, last: usize| ask.call1((rule, first, last))?.extract::<Answer>();
        let work = || self.scanner.scan(&mut memory, read, lower.as_bytes(), asked);
        let found = catch_unwind(AssertUnwindSafe(work)).map_err(|_| PyRuntimeError::new_err("internal error"))?;
        if let Ok(mut free) = self.free.lock() {
            free.push(memory);
        }
        found.map(|found| (found.spans, found.left))
    }
}
