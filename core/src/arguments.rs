//! Arguments from Python: arrays by the buffer protocol, and errors that name an argument and never have a value.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A `ValueError` that names the argument.
pub fn wrong(name: &str) -> PyErr {
    PyValueError::new_err(format!("{name}: wrong shape or value"))
}

/// A `ValueError` that names the argument, unless `condition`.
pub fn require(condition: bool, name: &str) -> PyResult<()> {
    if condition { Ok(()) } else { Err(wrong(name)) }
}

/// The elements of an array in C order, and its shape.
pub struct Array<T> {
    /// The elements.
    pub values: Vec<T>,
    /// The shape.
    pub shape: Vec<usize>,
}

impl<T: Element> Array<T> {
    /// The array, which has this number of dimensions.
    pub fn read(py: Python, buffer: &PyBuffer<T>, dimensions: usize, name: &str) -> PyResult<Self> {
        require(buffer.dimensions() == dimensions, name)?;
        Ok(Self { values: buffer.to_vec(py)?, shape: buffer.shape().to_vec() })
    }

    /// The elements of an array of this shape.
    pub fn exactly(py: Python, buffer: &PyBuffer<T>, shape: &[usize], name: &str) -> PyResult<Vec<T>> {
        require(buffer.shape() == shape, name)?;
        buffer.to_vec(py)
    }
}

/// The elements as indices, each below `limit`.
pub fn indices(values: &[i64], limit: usize, name: &str) -> PyResult<Vec<u32>> {
    let limit = u32::try_from(limit).map_err(|_| wrong(name))?;
    let read = |value: &i64| u32::try_from(*value).ok().filter(|value| *value < limit).ok_or_else(|| wrong(name));
    values.iter().map(read).collect()
}

/// Checks that `sizes` are those of `units` units.
pub fn check_sizes(sizes: &[usize], units: usize, name: &str) -> PyResult<()> {
    let total = sizes.iter().try_fold(0usize, |total, size| total.checked_add(*size));
    require(total == Some(units), name)
}

/// Runs `work` without the lock of the interpreter. A panic is a `RuntimeError` without a message of its own.
pub fn guarded<T: Send>(py: Python, work: impl Send + FnOnce() -> T) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|_| PyRuntimeError::new_err("internal error"))
}
