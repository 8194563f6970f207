//! The arithmetic of deid-agent's models, as a module of Python.
//!
//! Functions take arrays by the buffer protocol and copy them. Arrays are checked before use: one of a wrong shape is a
//! `ValueError` that names the argument. No text enters this crate, and no error contains a value.

pub mod chain;
pub mod curves;
pub mod halves;
pub mod lanes;
pub mod matrix;
pub mod network;
#[cfg(feature = "python")]
mod python;
pub mod recurrent;
pub mod schedule;
pub mod templates;
