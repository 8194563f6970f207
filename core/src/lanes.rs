//! Eight or sixteen floats at a time, by AVX2 or AVX-512 if the processor has it, else in plain Rust.
//!
//! This is the only file with `unsafe`. A value of `Avx2` exists only if the processor has AVX2, FMA and F16C, and one of
//! `Avx512` only if it also has AVX-512F, because `detect` is their only constructor. The instructions in their methods
//! are therefore available whenever a method can be called. Loads and stores take references to arrays of the right
//! length, so they stay inside of their slice.
#![allow(unsafe_code)]

use crate::instructions::Instructions;
use crate::portable::Portable;

/// The number of lanes.
pub const WIDTH: usize = 8;
/// The floats of one load or store.
pub type Block = [f32; WIDTH];

/// Eight floats, and the operations on them.
pub trait Lanes: Copy {
    /// Eight floats.
    type V: Copy;

    /// `value` in every lane.
    fn splat(self, value: f32) -> Self::V;
    /// The floats of `from`.
    fn load(self, from: &Block) -> Self::V;
    /// The floats of `from`, which are in 16 bits (IEEE 754). None is infinite or no number.
    fn load_halves(self, from: &[u16; WIDTH]) -> Self::V;
    /// Writes `value` to `to`.
    fn store(self, value: Self::V, to: &mut Block);
    /// `a + b`
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a - b`
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b`
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a / b`
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once or twice.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// The greater one.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// The smaller one.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// The nearest whole number, for a magnitude below 2^22.
    fn round(self, a: Self::V) -> Self::V;
    /// 2 to the power of `a`, a whole number from -126 to 127.
    fn power_of_two(self, a: Self::V) -> Self::V;
}

/// Sixteen floats, for products.
pub trait Pairs: Copy {
    /// Sixteen floats.
    type P: Copy;
    /// Whether there are 32 registers of sixteen floats, and not 16 of eight.
    const MANY: bool;

    /// `value` in every lane.
    fn splat(self, value: f32) -> Self::P;
    /// The floats of `from`.
    fn load(self, from: &[Block; 2]) -> Self::P;
    /// Adds `value` to `to`.
    fn add_to(self, value: Self::P, to: &mut [Block; 2]);
    /// `a * b + c`, rounded once or twice.
    fn mul_add(self, a: Self::P, b: Self::P, c: Self::P) -> Self::P;
}

/// A product that runs with any `Pairs`. `run` must be inlined.
pub trait PairKernel {
    /// Computes the product.
    fn run<L: Pairs>(self, lanes: L);
}

/// A computation that runs with any `Lanes`. `run` must be inlined, so that it uses the instructions of its lanes.
pub trait Kernel {
    /// The result.
    type Output;

    /// Computes the result.
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

/// Runs `kernel` with the widest lanes of this processor.
#[inline]
pub fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    if let Some(lanes) = Avx2::detect() {
        // SAFETY: `lanes` exists, so the processor has the features that the function is compiled for.
        return unsafe { run_avx2(kernel, lanes) };
    }
    kernel.run(Portable)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_avx2<K: Kernel>(kernel: K, lanes: Avx2) -> K::Output {
    kernel.run(lanes)
}

/// Runs `kernel` with the widest lanes of this processor.
#[inline]
pub fn run_pairs<K: PairKernel>(kernel: K) {
    #[cfg(target_arch = "x86_64")]
    {
        if let Some(lanes) = Avx512::detect() {
            // SAFETY: `lanes` exists, so the processor has the features that the function is compiled for.
            return unsafe { run_pairs_avx512(kernel, lanes) };
        }
        if let Some(lanes) = Avx2::detect() {
            // SAFETY: as above.
            return unsafe { run_pairs_avx2(kernel, lanes) };
        }
    }
    kernel.run(Portable);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
fn run_pairs_avx2<K: PairKernel>(kernel: K, lanes: Avx2) {
    kernel.run(lanes);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f")]
fn run_pairs_avx512<K: PairKernel>(kernel: K, lanes: Avx512) {
    kernel.run(lanes);
}

/// The instructions in use.
pub fn instructions() -> Instructions {
    #[cfg(target_arch = "x86_64")]
    {
        if Avx512::detect().is_some() {
            return Instructions::Avx512;
        }
        if Avx2::detect().is_some() {
            return Instructions::Avx2;
        }
    }
    Instructions::Portable
}

#[cfg(target_arch = "x86_64")]
pub use x86::{Avx2, Avx512};

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Block, Lanes, Pairs, WIDTH};
    use crate::instructions::{Instructions, allowed};
    use std::arch::x86_64::*;

    /// AVX2, FMA and F16C.
    #[derive(Clone, Copy)]
    pub struct Avx2(());

    impl Avx2 {
        /// The lanes, if the processor has them and tests do not exclude them.
        #[inline]
        pub fn detect() -> Option<Self> {
            let found =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            (found && allowed(Instructions::Avx2)).then_some(Self(()))
        }
    }

    // SAFETY of all blocks below: `self` exists, so the processor has the instructions. The pointers come from
    // references to eight elements, and the instructions for unaligned addresses are used.
    impl Lanes for Avx2 {
        type V = __m256;

        #[inline(always)]
        fn splat(self, value: f32) -> __m256 {
            unsafe { _mm256_set1_ps(value) }
        }
        #[inline(always)]
        fn load(self, from: &Block) -> __m256 {
            unsafe { _mm256_loadu_ps(from.as_ptr()) }
        }
        #[inline(always)]
        fn load_halves(self, from: &[u16; WIDTH]) -> __m256 {
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast())) }
        }
        #[inline(always)]
        fn store(self, value: __m256, to: &mut Block) {
            unsafe { _mm256_storeu_ps(to.as_mut_ptr(), value) }
        }
        #[inline(always)]
        fn add(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_add_ps(a, b) }
        }
        #[inline(always)]
        fn sub(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_sub_ps(a, b) }
        }
        #[inline(always)]
        fn mul(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_mul_ps(a, b) }
        }
        #[inline(always)]
        fn div(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_div_ps(a, b) }
        }
        #[inline(always)]
        fn mul_add(self, a: __m256, b: __m256, c: __m256) -> __m256 {
            unsafe { _mm256_fmadd_ps(a, b, c) }
        }
        #[inline(always)]
        fn max(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_max_ps(a, b) }
        }
        #[inline(always)]
        fn min(self, a: __m256, b: __m256) -> __m256 {
            unsafe { _mm256_min_ps(a, b) }
        }
        #[inline(always)]
        fn round(self, a: __m256) -> __m256 {
            unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(a) }
        }
        #[inline(always)]
        fn power_of_two(self, a: __m256) -> __m256 {
            unsafe {
                let biased = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(biased))
            }
        }
    }

    impl Pairs for Avx2 {
        type P = (__m256, __m256);
        const MANY: bool = false;

        #[inline(always)]
        fn splat(self, value: f32) -> Self::P {
            let both = Lanes::splat(self, value);
            (both, both)
        }
        #[inline(always)]
        fn load(self, from: &[Block; 2]) -> Self::P {
            (Lanes::load(self, &from[0]), Lanes::load(self, &from[1]))
        }
        #[inline(always)]
        fn add_to(self, value: Self::P, to: &mut [Block; 2]) {
            let (first, second) = Pairs::load(self, to);
            self.store(self.add(first, value.0), &mut to[0]);
            self.store(self.add(second, value.1), &mut to[1]);
        }
        #[inline(always)]
        fn mul_add(self, a: Self::P, b: Self::P, c: Self::P) -> Self::P {
            (Lanes::mul_add(self, a.0, b.0, c.0), Lanes::mul_add(self, a.1, b.1, c.1))
        }
    }

    /// AVX2 and AVX-512F.
    #[derive(Clone, Copy)]
    pub struct Avx512(());

    impl Avx512 {
        /// The lanes, if the processor has them and tests do not exclude them.
        #[inline]
        pub fn detect() -> Option<Self> {
            let found = Avx2::detect().is_some() && is_x86_feature_detected!("avx512f");
            (found && allowed(Instructions::Avx512)).then_some(Self(()))
        }
    }

    // SAFETY of all blocks below: as above, with sixteen elements.
    impl Pairs for Avx512 {
        type P = __m512;
        const MANY: bool = true;

        #[inline(always)]
        fn splat(self, value: f32) -> __m512 {
            unsafe { _mm512_set1_ps(value) }
        }
        #[inline(always)]
        fn load(self, from: &[Block; 2]) -> __m512 {
            unsafe { _mm512_loadu_ps(from.as_flattened().as_ptr()) }
        }
        #[inline(always)]
        fn add_to(self, value: __m512, to: &mut [Block; 2]) {
            let sum = unsafe { _mm512_add_ps(self.load(to), value) };
            unsafe { _mm512_storeu_ps(to.as_flattened_mut().as_mut_ptr(), sum) }
        }
        #[inline(always)]
        fn mul_add(self, a: __m512, b: __m512, c: __m512) -> __m512 {
            unsafe { _mm512_fmadd_ps(a, b, c) }
        }
    }
}
