//! Lanes in plain Rust.

use crate::halves::widen;
use crate::lanes::{Block, Lanes, Pairs, WIDTH};

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
        each(|i| widen(from[i]))
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

impl Pairs for Portable {
    type P = [Block; 2];
    const MANY: bool = false;

    #[inline(always)]
    fn splat(self, value: f32) -> Self::P {
        [[value; WIDTH]; 2]
    }
    #[inline(always)]
    fn load(self, from: &[Block; 2]) -> Self::P {
        *from
    }
    #[inline(always)]
    fn add_to(self, value: Self::P, to: &mut [Block; 2]) {
        *to = [Lanes::add(self, to[0], value[0]), Lanes::add(self, to[1], value[1])];
    }
    #[inline(always)]
    fn mul_add(self, a: Self::P, b: Self::P, c: Self::P) -> Self::P {
        [Lanes::mul_add(self, a[0], b[0], c[0]), Lanes::mul_add(self, a[1], b[1], c[1])]
    }
}
