//! The exponential function and the hyperbolic tangent of eight floats.

use crate::lanes::{Block, Kernel, Lanes, WIDTH};

const LN_2_HIGH: f32 = 0.693_359_4; // the first bits of ln 2: its product with a small whole number is exact
const LN_2_LOW: f32 = -2.121_944_4e-4;
const LEAST: f32 = -87.0; // e to this power is still a normal float

/// e to the power of `x`, at least e to the power of -87. `x` is at most 88. The relative error is below 2e-7.
#[inline(always)]
pub fn exp<L: Lanes>(lanes: L, x: L::V) -> L::V {
    let x = lanes.max(x, lanes.splat(LEAST));
    let whole = lanes.round(lanes.mul(x, lanes.splat(std::f32::consts::LOG2_E)));
    let rest = lanes.mul_add(whole, lanes.splat(-LN_2_HIGH), x);
    let rest = lanes.mul_add(whole, lanes.splat(-LN_2_LOW), rest);
    // The series of the exponential function; |rest| is at most ln 2 / 2.
    let mut sum = lanes.splat(1.0 / 5040.0);
    for term in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        sum = lanes.mul_add(sum, rest, lanes.splat(term));
    }
    lanes.mul(sum, lanes.power_of_two(whole))
}

/// The hyperbolic tangent, with an absolute error below 5e-7.
#[inline(always)]
pub fn tanh<L: Lanes>(lanes: L, x: L::V) -> L::V {
    // tanh x = 1 - 2 / (e^2x + 1); beyond 20 it is 1.
    let x = lanes.max(lanes.min(x, lanes.splat(20.0)), lanes.splat(-20.0));
    let power = exp(lanes, lanes.add(x, x));
    let fraction = lanes.div(lanes.splat(2.0), lanes.add(power, lanes.splat(1.0)));
    lanes.sub(lanes.splat(1.0), fraction)
}

/// Replaces each block by its hyperbolic tangent.
pub struct Tanh<'a>(pub &'a mut [Block]);

impl Kernel for Tanh<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        for block in self.0 {
            lanes.store(tanh(lanes, lanes.load(block)), block);
        }
    }
}

/// The number of blocks that hold `floats`.
pub fn blocks_of(floats: usize) -> usize {
    floats.div_ceil(WIDTH)
}

#[cfg(test)]
mod tests {
    use super::{Kernel, Lanes, Tanh, exp};
    use crate::lanes::{Block, run};
    use crate::portable::Portable;

    struct Exp<'a>(&'a mut [Block]);

    impl Kernel for Exp<'_> {
        type Output = ();

        #[inline(always)]
        fn run<L: Lanes>(self, lanes: L) {
            for block in self.0 {
                lanes.store(exp(lanes, lanes.load(block)), block);
            }
        }
    }

    fn inputs(low: f32, high: f32) -> Vec<Block> {
        let steps = 4_000;
        (0..steps)
            .map(|at| std::array::from_fn(|lane| low + (high - low) * (at * 8 + lane) as f32 / (steps * 8) as f32))
            .collect()
    }

    #[test]
    fn exp_is_exact_to_seven_digits() {
        for portable in [false, true] {
            let x = inputs(-86.9, 88.0);
            let mut y = x.clone();
            if portable {
                Exp(&mut y).run(Portable)
            } else {
                run(Exp(&mut y))
            }
            for (x, y) in x.iter().flatten().zip(y.iter().flatten()) {
                let wanted = f64::from(*x).exp();
                assert!((f64::from(*y) - wanted).abs() <= 3e-7 * wanted, "{x}: {y}");
            }
        }
    }

    #[test]
    fn tanh_is_exact_to_six_decimals() {
        for portable in [false, true] {
            let x = inputs(-25.0, 25.0);
            let mut y = x.clone();
            if portable {
                Tanh(&mut y).run(Portable)
            } else {
                run(Tanh(&mut y))
            }
            for (x, y) in x.iter().flatten().zip(y.iter().flatten()) {
                assert!((f64::from(*y) - f64::from(*x).tanh()).abs() <= 5e-7, "{x}: {y}");
            }
        }
    }
}
