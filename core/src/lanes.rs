//! Eight floats at a time, by AVX2 if the processor has it, else in plain Rust.
//!
//! This is the only file with `unsafe`. A value of `Avx2` exists only if the processor has AVX2, FMA and F16C, because
//! `detect` is its only constructor. The instructions in its methods are therefore available whenever a method can be
//! called. Loads and stores take references to arrays of the right length, so they stay inside of their slice.
#![allow(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

/// The number of lanes.
pub const WIDTH: usize = 8;
/// The floats of one load or store.
pub type Block = [f32; WIDTH];

static PORTABLE_ONLY: AtomicBool = AtomicBool::new(false);

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

/// The instructions that `run` uses: `avx2` or `portable`.
pub fn instructions() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if Avx2::detect().is_some() {
        return "avx2";
    }
    "portable"
}

/// Makes `run` use plain Rust, or again the widest lanes. Only tests need it.
pub fn use_portable(only: bool) {
    PORTABLE_ONLY.store(only, Ordering::Relaxed);
}

/// Plain Rust, for every processor. The compiler may use the instructions that all processors of a kind have.
#[derive(Clone, Copy)]
pub struct Portable;

#[inline(always)]
fn each(f: impl Fn(usize) -> f32) -> Block {
    std::array::from_fn(f)
}

impl Lanes for Portable {
    type V = Block;

    #[inline(always)]
    fn splat(self, value: f32) -> Block {
        [value; WIDTH]
    }
    #[inline(always)]
    fn load(self, from: &Block) -> Block {
        *from
    }
    #[inline(always)]
    fn load_halves(self, from: &[u16; WIDTH]) -> Block {
        each(|i| crate::halves::widen(from[i]))
    }
    #[inline(always)]
    fn store(self, value: Block, to: &mut Block) {
        *to = value;
    }
    #[inline(always)]
    fn add(self, a: Block, b: Block) -> Block {
        each(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Block, b: Block) -> Block {
        each(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Block, b: Block) -> Block {
        each(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Block, b: Block) -> Block {
        each(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn mul_add(self, a: Block, b: Block, c: Block) -> Block {
        each(|i| a[i] * b[i] + c[i])
    }
    #[inline(always)]
    fn max(self, a: Block, b: Block) -> Block {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Block, b: Block) -> Block {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn round(self, a: Block) -> Block {
        // Adding 1.5 * 2^23 leaves no bits for the fraction.
        const SHIFT: f32 = 12_582_912.0;
        each(|i| (a[i] + SHIFT) - SHIFT)
    }
    #[inline(always)]
    fn power_of_two(self, a: Block) -> Block {
        each(|i| f32::from_bits(((a[i] as i32 + 127) as u32) << 23))
    }
}

#[cfg(target_arch = "x86_64")]
pub use x86::Avx2;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Block, Lanes, PORTABLE_ONLY, WIDTH};
    use std::arch::x86_64::*;
    use std::sync::atomic::Ordering;

    /// AVX2, FMA and F16C.
    #[derive(Clone, Copy)]
    pub struct Avx2(());

    impl Avx2 {
        /// The lanes, if the processor has them and tests do not exclude them.
        #[inline]
        pub fn detect() -> Option<Self> {
            let found =
                is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
            (found && !PORTABLE_ONLY.load(Ordering::Relaxed)).then_some(Self(()))
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
}
