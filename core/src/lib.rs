//! The arithmetic of deid-agent's models and the search of its rules, as a module of Python.
//!
//! Functions take arrays by the buffer protocol and copy them. Arrays are checked before use: one of a wrong shape is a
//! `ValueError` that names the argument. No text is kept, and no error contains a value.

#[cfg(feature = "python")]
mod arguments;
pub mod chain;
pub mod context;
pub mod curves;
pub mod decoder;
pub mod halves;
pub mod instructions;
pub mod lanes;
pub mod matrix;
pub mod network;
pub mod portable;
#[cfg(feature = "python")]
mod python;
#[cfg(feature = "python")]
mod python_features;
#[cfg(feature = "python")]
mod python_rules;
pub mod recurrent;
pub mod scan;
pub mod schedule;
pub mod templates;
pub mod view;
pub mod words;
