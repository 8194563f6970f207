//! The instructions that this crate knows, and their limit for tests.

use std::sync::atomic::{AtomicU8, Ordering};

/// Instructions in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instructions {
    /// Plain Rust.
    Portable,
    /// AVX2, FMA and F16C.
    Avx2,
    /// AVX-512F as well.
    Avx512,
}

static MOST: AtomicU8 = AtomicU8::new(Instructions::Avx512 as u8);

/// Whether tests do not exclude `instructions`.
pub fn allowed(instructions: Instructions) -> bool {
    instructions as u8 <= MOST.load(Ordering::Relaxed)
}

/// Excludes instructions above `most`. Only tests need it.
pub fn use_at_most(most: Instructions) {
    MOST.store(most as u8, Ordering::Relaxed);
}
